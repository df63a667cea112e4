"""Kept results: what a group or a map has finished isn't run again, by a recovery or by a retry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelReason,
    Completed,
    Failed,
    Fatal,
    Graph,
    Interrupted,
    NodeContext,
    Retry,
    Transient,
)
from outcrop.engine.composites import first_success
from outcrop.engine.failpoints import armed
from outcrop.stores import open_store
from outcrop.stores.record import NoteKind
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, TTL, Crash, Doc, World, crashing
from support.fan_outs import Stage, Watch, gather, settle
from support.storages import KINDS
from support.stores import STORE_KINDS, store_binding

if TYPE_CHECKING:
    from pathlib import Path

    from outcrop.engine import Threads
    from outcrop.stores.port import Store
    from outcrop.stores.record import Lease
    from support.storages import Places

NAMES = ("a", "b", "c", "d")


class Kept:
    """A thread of a group or a map of four, one after the other, that notes what ran."""

    def __init__(self, store: Store, kind: str, *, keep_finished: bool = True, **options: Any) -> None:
        self.world, self.watch = World(store), Watch()
        self.contexts: list[NodeContext] = []
        self.graph: Graph[Doc] = Graph(Doc)
        options = {"reduce": gather, "keep_finished": keep_finished, "max_concurrency": 1, **options}
        if kind == "group":
            group = self.graph.group("g", **options)
            for name in NAMES:
                group.branch(name=name)(self._work)
        else:
            child: Graph[Doc] = Graph(Doc)
            child.node(name="work")(self._work)
            self.graph.map(
                "g",
                child.compile(),
                items=lambda _: list(NAMES),
                key=str,
                input=lambda _, item: Doc(note=item),
                **options,
            )

    async def _work(self, doc: Doc, ctx: NodeContext) -> None:
        self.contexts.append(ctx)
        doc.trail.append(doc.note or ctx.node)

    @property
    def ran(self) -> list[str]:
        return [ctx.node_path.split("/")[1] for ctx in self.contexts]

    def threads(self) -> Threads[Doc]:
        return self.world.threads(self.graph.compile(checkpoints=EVERY_NODE), telemetry=self.watch)


@pytest.mark.parametrize("store", STORE_KINDS)
@pytest.mark.parametrize("kind", ["group", "map"])
@pytest.mark.parametrize(("point", "kept"), [("branch.kept", 0), ("notes.before", -1), ("notes.after", 0)])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_a_recovery_runs_only_what_was_not_finished(
    store: str, kind: str, point: str, kept: int, at: int, tmp_path: Path
) -> None:
    """Killed around each save of a result; the end is as if nothing had happened."""
    async with store_binding(store, tmp_path).open() as opened:
        case = Kept(opened, kind)
        with armed(crashing(point, at)), pytest.raises(Crash):
            await case.threads().run("t", Doc())
        first, finished = len(case.ran), at + kept
        keys = {ctx.node_path: ctx.idempotency_key for ctx in case.contexts}
        case.watch.events.clear()
        result = await case.threads().recover("t")
        assert isinstance(result, Completed)
        assert result.state.trail == list(NAMES)
        assert case.ran[first:] == list(NAMES[finished:])
        again = {ctx.node_path: ctx.idempotency_key for ctx in case.contexts[first:]}
        assert all(keys.get(path, key) == key for path, key in again.items())
        assert all(ctx.is_recovery for ctx in case.contexts[first:])
        ends = case.watch.ends()
        assert [name for name in NAMES if ends[f"g/{name}"].kept] == list(NAMES[:finished])


@pytest.mark.parametrize("kind", ["group", "map"])
@pytest.mark.parametrize("engine", KINDS)
async def test_a_kill_after_each_branch_on_every_engine(engine: str, kind: str, places: Places) -> None:
    """Whoever goes on opens the store anew, and runs the unfinished branches only."""
    async with places.fresh(engine) as place:
        for at in range(1, len(NAMES) + 1):
            thread, ran = f"t{at}", list[str]()
            for is_dead in (True, False):
                store = await open_store(place.url)
                try:
                    case = Kept(store, kind)
                    if is_dead:
                        with armed(crashing("branch.kept", at)), pytest.raises(Crash):
                            await case.threads().run(thread, Doc())
                    else:
                        result = await case.threads().recover(thread)
                        assert isinstance(result, Completed)
                        assert result.state.trail == list(NAMES)
                    ran += case.ran
                finally:
                    await store.close()
            assert ran == list(NAMES)


@pytest.mark.parametrize("kind", ["group", "map"])
async def test_without_keep_finished_a_recovery_runs_everything_flagged_under_the_same_keys(
    kind: str,
) -> None:
    """I017."""
    case = Kept(World().memory, kind, keep_finished=False)
    with armed(crashing("branch.after", 3)), pytest.raises(Crash):
        await case.threads().run("t", Doc())
    first = list(case.contexts)
    assert isinstance(await case.threads().recover("t"), Completed)
    again = case.contexts[len(first) :]
    assert [ctx.node_path.split("/")[1] for ctx in again] == list(NAMES)
    assert all(ctx.is_recovery for ctx in again)
    assert [ctx.idempotency_key for ctx in again[:3]] == [ctx.idempotency_key for ctx in first]
    assert not any(ctx.is_recovery for ctx in first)


async def test_a_retry_runs_only_what_was_not_finished() -> None:
    stage = Stage(keep_finished=True, retry=Retry(max_retries=1))
    stage.branch("a")
    stage.branch("b", Transient("again"))
    result = await stage.run("a", "b")
    assert isinstance(result, Completed)
    assert result.state.trail == ["in", "a", "b", "out"]
    assert stage.started == ["a", "b", "b"]
    assert "end g/a Succeeded kept" in stage.watch.told()


async def test_kept_results_go_when_the_group_commits() -> None:
    """A later visit of the group runs its branches again."""
    stage = Stage(keep_finished=True)
    stage.branches("a")
    stage.world.trailing(stage.graph, "end")
    stage.graph.edge("out", "g", when=lambda doc: doc.trail.count("a") < 2)
    stage.graph.edge("out", "end")
    result = await stage.run("a")
    assert isinstance(result, Completed)
    assert result.state.trail == ["in", "a", "out", "a", "out", "end"]
    assert stage.started == ["a", "a"]


async def test_a_failed_thread_keeps_what_was_finished_for_its_resume() -> None:
    stage = Stage(keep_finished=True)
    stage.branch("a")
    stage.branch("b", Fatal("no"))
    assert isinstance(await stage.run("a", "b"), Failed)
    result = await stage.threads().resume("t")
    assert isinstance(result, Completed)
    assert stage.started == ["a", "b", "b"]


async def test_a_kept_success_decides_a_race_and_nothing_starts() -> None:
    world = World()
    case = Kept(world.memory, "group", join=first_success())
    with armed(crashing("branch.kept", 1)), pytest.raises(Crash):
        await case.threads().run("t", Doc())
    result = await case.threads().recover("t")
    assert isinstance(result, Completed)
    assert result.state.trail == ["a"]
    assert case.ran == ["a"]


async def test_kept_branches_are_not_run_again_when_a_question_is_answered() -> None:
    stage = Stage(keep_finished=True)
    stage.branches("a")

    @stage.group.branch
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        doc.trail.append(f"ask:{await ctx.interrupt('?')}")

    assert isinstance(await stage.run("a"), Interrupted)
    result = await stage.threads().resume("t", Answer(replies={0: "yes"}))
    assert isinstance(result, Completed)
    assert result.state.trail == ["in", "a", "ask:yes", "out"]
    assert stage.started == ["a"]


async def test_nothing_is_kept_inside_an_item() -> None:
    """A group in a map's item keeps no results, whatever it says."""
    stage = Stage(keep_finished=True)
    stage.branches("a")
    stage.gates["a"].set()
    outer: Graph[Doc] = Graph(Doc)
    outer.map(
        "m",
        stage.graph.compile(),
        items=lambda _: ["x"],
        key=str,
        input=lambda doc, _: doc,
        reduce=gather,
    )
    threads = stage.world.threads(outer.compile(checkpoints=EVERY_NODE))
    with armed(crashing("branch.after", 1)), pytest.raises(Crash):
        await threads.run("t", Doc())
    assert isinstance(await threads.recover("t"), Completed)
    assert stage.started == ["a", "a"]


async def test_results_in_a_subgraph_are_kept_under_its_path() -> None:
    stage = Stage(keep_finished=True, max_concurrency=1)
    stage.branches("a", "b")
    for name in ("a", "b"):
        stage.gates[name].set()
    parent: Graph[Doc] = Graph(Doc)
    parent.subgraph("Work", stage.graph.compile(), input=lambda doc: doc, output=lambda _, child: child)
    threads = stage.world.threads(parent.compile(checkpoints=EVERY_NODE))
    with armed(crashing("branch.kept", 1)), pytest.raises(Crash):
        await threads.run("t", Doc())
    row = await stage.world.memory.load("t")
    assert row is not None
    notes = await stage.world.memory.get_notes([row])
    assert [(note.kind, note.path) for note in notes[row.sequence]] == [(NoteKind.FINISHED, "Work/g/a")]
    assert isinstance(await threads.recover("t"), Completed)
    assert stage.started == ["a", "b"]


async def test_a_run_without_rows_keeps_results_for_its_own_retries() -> None:
    """Boundaries: there is no row to put them beside."""
    stage = Stage(keep_finished=True, retry=Retry(max_retries=1))
    stage.branch("a")
    stage.branch("b", Transient("again"))
    for name in ("a", "b"):
        stage.gates[name].set()
    async with asyncio.timeout(10):
        result = await stage.threads(checkpoints=BOUNDARIES).run("t", Doc())
    assert isinstance(result, Completed)
    assert stage.started == ["a", "b", "b"]


async def test_a_lost_lease_found_while_keeping_a_result_ends_the_run() -> None:
    """It is the run's own end, not the branch's failure: nothing is retried, nothing written."""
    stage = Stage(keep_finished=True, retry=Retry(max_retries=3))
    stage.branches("a", "b")
    task = asyncio.create_task(stage.run(options=LEASED))
    while len(stage.started) < 2:
        await settle()
    await stage.world.memory.release_lease(await lease_of(stage))
    await stage.world.memory.acquire_lease("t", "w2", TTL)
    stage.gates["a"].set()
    result = await task
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.LEASE_LOST
    assert stage.started == ["a", "b"]
    assert stage.stopped == ["b"]
    assert (await stage.world.log())[-1] == "running:in>g"


async def lease_of(stage: Stage) -> Lease:
    lease = await stage.world.memory.get_lease("t")
    assert lease is not None
    return lease


@pytest.mark.parametrize("how", ["overrides", "update", "rerun", "nothing"])
async def test_kept_results_go_with_the_state_that_they_came_from(how: str) -> None:
    """They stay where it does; a rerun runs every branch again, as it says."""
    stage = Stage(keep_finished=True)
    stage.branch("a")
    stage.branch("b", Fatal("no"))
    assert isinstance(await stage.run("a", "b"), Failed)
    threads = stage.threads()
    if how == "update":
        await threads.update_state("t", {"note": "other"})
    if how == "rerun":
        latest = (await threads.history("t"))[-1].sequence
        result = await threads.rerun("t", latest)
    else:
        result = await threads.resume("t", Answer(overrides={"note": "other"} if how == "overrides" else {}))
    assert isinstance(result, Completed)
    again = ["b"] if how == "nothing" else ["a", "b"]
    assert stage.started == ["a", "b", *again]


async def test_who_lost_before_it_began_does_nothing() -> None:
    """A kept success decides the race after the task of another branch was made."""
    world, ran = World(), list[str]()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", join=first_success(), reduce=gather, keep_finished=True)

    @group.branch(name="slow")
    def slow(_doc: Doc) -> None:
        ran.append("slow")
        if len(ran) == 1:
            raise Transient("not yet")

    @group.branch(name="quick")
    def quick(doc: Doc) -> None:
        doc.trail.append("quick")

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    with armed(crashing("branch.kept", 1)), pytest.raises(Crash):
        await threads.run("t", Doc())
    before = list(ran)
    assert isinstance(await threads.recover("t"), Completed)
    assert ran == before
