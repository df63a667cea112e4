"""Questions over crashes and on every store: an answer that was taken is never asked for again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.engine import Answer, CheckpointPolicy, Completed, Graph, Interrupted, Threads
from outcrop.engine.failpoints import armed
from outcrop.engine.questions import answers_in, questions_in
from outcrop.stores import open_store
from outcrop.stores.memory import MemoryStore
from outcrop.stores.record import ThreadState
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, Crash, Doc, World, crashing
from support.fan_outs import gather
from support.levels import done, three_deep, waiting
from support.questions import THREE, Asker, asking, open_questions
from support.storages import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine import NodeContext
    from outcrop.stores.port import Store
    from outcrop.stores.record import Json
    from support.storages import Places

POINTS = ("save.before", "save.after", "node.before", "node.after", "lease.acquired", "lease.releasing")
POLICIES = list(CheckpointPolicy)


class Journey:
    """A thread whose questions are answered one at a time, by whoever reads its latest row."""

    def __init__(
        self, world: World, threads: Threads[Doc], store: Store, thread: str, *, lease: bool
    ) -> None:
        self.world, self.threads, self.store, self.thread = world, threads, store, thread
        self.options = [LEASED] if lease else []
        self.struck = False
        self.given: list[str] = []

    async def to_the_end(self, hit: Callable[[str], None]) -> Doc:
        """Run, answer and recover, with `hit` at the failpoints; the final state."""
        for _ in range(40):
            self.world.clock.advance(31)  # a dead run's lease is over
            try:
                with armed(hit):
                    if (state := await self._push()) is not None:
                        return state
            except Crash:
                self.struck = True
        raise AssertionError("the thread didn't complete")

    async def _push(self) -> Doc | None:
        row = await self.store.load(self.thread)
        if row is None:
            await self.threads.run(self.thread, Doc(), *self.options)
            return None
        match row.checkpoint.state:
            case ThreadState.COMPLETED:
                return self.threads.graph.states.thaw(row.checkpoint.frozen_state)
            case ThreadState.RUNNING:
                await self.threads.recover(self.thread, *self.options)
            case _:
                notes = (await self.store.get_notes([row])).get(row.sequence, ())
                first = questions_in(notes)[0]
                self.given.append(first.id)
                answer = Answer(replies={first.id: f"{first.id}!"})
                await self.threads.resume(self.thread, answer, *self.options)
        return None

    async def asked(self) -> list[list[str]]:
        """What was open at each row, where something was."""
        rows = list((await self.store.get_log(self.thread)).entries)
        notes = await self.store.get_notes(rows)
        open_at = ([one.id for one in questions_in(notes.get(row.sequence, ()))] for row in rows)
        return [ids for ids in open_at if ids]


def three_questions(world: World) -> tuple[Threads[Doc], Asker]:
    """Three questions in one node, two levels down."""
    asker = Asker(*THREE)
    return three_deep(world, asking(world, asker))[0], asker


def branches(world: World, *, keep: bool) -> tuple[Threads[Doc], list[Asker], list[NodeContext]]:
    """A group of `a` (asks twice), `b` (asks once) and `c` (asks nothing), a level down."""
    graph = world.graph("before")
    group = graph.group("G", reduce=gather, keep_finished=keep)
    askers = [Asker("a1", "a2", name="a"), Asker("b1", name="b")]
    for asker in askers:
        group.branch(name=asker.name)(asker.work)

    quiet: list[NodeContext] = []

    @group.branch(name="c")
    async def c(doc: Doc, ctx: NodeContext) -> None:
        quiet.append(ctx)
        doc.trail.append("c")

    graph.edge("before", "G")
    return three_deep(world, graph)[0], askers, quiet


@pytest.mark.parametrize("point", POINTS)
async def test_three_questions_in_one_node_over_a_crash_at_any_hit_of_any_point(point: str) -> None:
    """Issue 5, 5: each is asked in one row, and answered once; the node has one key throughout."""
    for count in range(1, 60):
        world = World()
        threads, asker = three_questions(world)
        journey = Journey(world, threads, world.memory, "t", lease=True)
        state = await journey.to_the_end(crashing(point, count))
        assert state.trail[-4:] == [f"Work/Inner/{one}!" for one in THREE] + ["Work/Inner/after"]
        assert await journey.asked() == [[one] for one in THREE], count
        assert len({ctx.idempotency_key for ctx in asker.contexts}) == 1
        full = [f"{one}!" for one in THREE]
        assert all(got == full[: len(got)] for got in asker.answers)
        if not journey.struck:
            assert count > 1, "the point is never reached"
            return
    raise AssertionError("more hits than this test knows of")


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "point", [*POINTS, "branch.before", "branch.after", "branch.kept", "notes.before", "notes.after"]
)
async def test_questions_of_branches_over_a_crash_at_any_hit_of_any_point(point: str, keep: bool) -> None:
    """Those of two branches, one after the other; no answer is lost, nor given to another."""
    for count in range(1, 80):
        world = World()
        threads, (a, b), quiet = branches(world, keep=keep)
        journey = Journey(world, threads, world.memory, "t", lease=True)
        state = await journey.to_the_end(crashing(point, count))
        assert state.trail[-3:] == ["Work/Inner/a2!", "Work/Inner/b1!", "Work/Inner/c"], count
        asked = await journey.asked()
        assert asked == [["a1", "b1"], ["a2", "b1"], ["b1"]]
        assert len({ctx.idempotency_key for ctx in (*a.contexts, *b.contexts, *quiet)}) == 3
        assert all(got == ["a1!", "a2!"][: len(got)] for got in a.answers)
        assert all(got == ["b1!"][: len(got)] for got in b.answers)
        if not journey.struck:
            if point in ("branch.kept", "notes.before", "notes.after") and not keep:
                return
            assert count > 1, "the point is never reached"
            if keep:
                assert len(quiet) == 1
            return
    raise AssertionError("more hits than this test knows of")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoded", [False, True])
async def test_three_questions_over_crashes_on_every_store(kind: str, encoded: bool, places: Places) -> None:
    """Plain and as deltas, with blobs; a thread for each hit of each point around saves and nodes."""
    async with places.fresh(kind) as place:
        store = await open_store((place.encoded if encoded else place).url)
        try:
            for point in ("save.before", "save.after", "node.before"):
                for count in range(1, 40):
                    world = World(store)
                    threads, asker = three_questions(world)
                    journey = Journey(world, threads, store, f"{point}-{count}", lease=False)
                    state = await journey.to_the_end(crashing(point, count))
                    assert state.trail[-4:-1] == [f"Work/Inner/{one}!" for one in THREE]
                    assert await journey.asked() == [[one] for one in THREE], (point, count)
                    assert len({ctx.idempotency_key for ctx in asker.contexts}) == 1
                    if not journey.struck:
                        break
                assert count > 1
        finally:
            await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_questions_of_branches_on_every_store(kind: str, places: Places) -> None:
    """With what finished kept: killed around each save of a note too."""
    async with places.fresh(kind) as place:
        store = await open_store(place.url)
        try:
            for point in ("save.after", "notes.before", "notes.after"):
                for count in range(1, 12, 2):
                    world = World(store)
                    threads, _, quiet = branches(world, keep=True)
                    journey = Journey(world, threads, store, f"{point}-{count}", lease=False)
                    state = await journey.to_the_end(crashing(point, count))
                    assert state.trail[-3:] == ["Work/Inner/a2!", "Work/Inner/b1!", "Work/Inner/c"]
                    assert (await journey.asked())[0] == ["a1", "b1"]
                    assert len(quiet) == 1 or journey.struck
        finally:
            await store.close()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
async def test_both_policies_ask_on_every_store(kind: str, policy: CheckpointPolicy, places: Places) -> None:
    """By position, with JSON of every kind; the store is opened anew before each answer."""
    values: tuple[Json, ...] = (None, ["\u00e9", {"deep": [1.5, True]}], {"price": 12, "note": "x" * 5000})
    async with places.fresh(kind) as place:
        asker, position = Asker(*THREE), 0
        while True:
            store = await open_store(place.url)
            world = World(store)
            threads = world.threads(asking(world, asker).compile(checkpoints=policy))
            try:
                if position == 0:
                    result = await threads.run("t", Doc())
                else:
                    result = await threads.resume("t", Answer(replies={position - 1: values[position - 1]}))
            finally:
                await store.close()
            if not isinstance(result, Interrupted):
                break
            (question,) = result.questions
            assert (question.id, question.position) == (THREE[position], position)
            assert question.payload == {"what": THREE[position]}
            position += 1
        assert position == 3
        assert isinstance(result, Completed)
        assert asker.answers[-1] == list(values)


async def test_purging_a_thread_forgets_its_questions() -> None:
    """A new thread of the same ID starts with none."""
    world, asker = World(), Asker(*THREE)
    threads = world.threads(asking(world, asker).compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    waiting(await threads.resume("t", Answer(replies={"colour": "red"})))
    await threads.end("t")
    world.clock.advance(5)
    assert await world.memory.purge(world.clock.now(), states=frozenset({ThreadState.ENDED})) == 1
    assert [one.id for one in open_questions(await threads.run("t", Doc()))] == ["colour"]


async def test_a_boundaries_graph_carries_answers_in_its_stamps() -> None:
    world, asker = World(), Asker(*THREE)
    threads = world.threads(asking(world, asker).compile(checkpoints=BOUNDARIES))
    waiting(await threads.run("t", Doc()))
    for one in THREE[:-1]:
        waiting(await threads.resume("t", Answer(replies={one: one})))
    done(await threads.resume("t", Answer(replies={THREE[-1]: "end"})))
    rows = await world.entries()
    notes = await world.memory.get_notes(rows)
    assert [
        (
            row.checkpoint.resumed_at is not None,
            [len(got) for got in answers_in(notes[row.sequence]).values()],
        )
        for row in rows
    ] == [(False, []), (True, [1]), (False, [1]), (True, [2]), (False, [2]), (True, [3])]


async def test_a_kept_result_of_a_group_is_no_answer() -> None:
    """Notes of different kinds at one path don't stand in each other's way."""
    world = World(MemoryStore())
    graph = Graph(Doc)
    asker = Asker("q", name="a")
    graph.group("G", reduce=gather, keep_finished=True).branch(name="a")(asker.work)
    world.failing(graph, "end", RuntimeError("once"))
    graph.edge("G", "end")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    with armed(crashing("notes.after", 1)), pytest.raises(Crash):
        await threads.resume("t", Answer(replies={"q": "yes"}))
    await threads.recover("t")
    assert done(await threads.resume("t")).trail == ["yes", "end"]
    assert asker.runs == 2
