"""Going back in a thread: states changed, rows made the latest again, and run again."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import (
    Answer,
    CheckpointPolicy,
    Completed,
    Failed,
    Fatal,
    Graph,
    Interrupted,
    NodeContext,
    RefusalCode,
    Refused,
    RunOptions,
    Threads,
)
from outcrop.engine.events import RunCompleted
from outcrop.engine.failpoints import armed
from outcrop.engine.history import tree_of
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, OTHER, Crash, Doc, Gate, World, gated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine import RunEvent, RunResult
    from outcrop.stores.record import Checkpoint, Lease

POLICIES = list(CheckpointPolicy)


def review(world: World, policy: CheckpointPolicy = EVERY_NODE) -> Threads[Doc]:
    """`draft`, then `approve` (a boundary), then `publish`."""
    graph = world.graph("draft", "approve", "publish")
    graph.interrupt("approve")
    return world.threads(graph.compile(checkpoints=policy))


def code(result: object) -> RefusalCode:
    assert isinstance(result, Refused), result
    return result.code


def trail(result: RunResult[Doc]) -> Sequence[str]:
    assert isinstance(result, Completed), result
    return result.state.trail


async def parents(threads: Threads[Doc]) -> list[int | None]:
    return [entry.parent for entry in await threads.history("t")]


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_updated_state_is_what_the_thread_goes_on_with(policy: CheckpointPolicy) -> None:
    """Session 03, `invoke to the static interrupt, edit the state, continue`."""
    world = World()
    threads = review(world, policy)
    waiting = await threads.run("t", Doc())
    assert isinstance(waiting, Interrupted)
    updated = await threads.update_state("t", {"n": 7})
    assert updated == replace(
        waiting, state=Doc(trail=["draft", "approve"], n=7), sequence=waiting.sequence + 1
    )
    done = await threads.resume("t")
    assert trail(done) == ["draft", "approve", "publish"]
    assert isinstance(done, Completed)
    assert done.state.n == 7


async def test_an_update_runs_nothing_and_keeps_every_earlier_row() -> None:
    world = World()
    threads = review(world)
    await threads.run("t", Doc())
    before, ran = await world.entries(), len(world.contexts)
    await threads.update_state("t", {"n": 1})
    after = await world.entries()
    assert after[:-1] == before
    assert len(world.contexts) == ran
    assert (await world.log())[-1] == "interrupted:approve>publish"


@pytest.mark.parametrize("values", [{"n": "many"}, {"trail": 3}, {"trail": None}])
async def test_values_that_do_not_fit_the_state_are_refused(values: dict[str, str | int | None]) -> None:
    world = World()
    threads = review(world)
    await threads.run("t", Doc())
    before = await world.entries()
    assert code(await threads.update_state("t", values)) is RefusalCode.STATE
    assert await world.entries() == before


async def test_as_a_node_the_thread_goes_on_where_that_node_leads() -> None:
    """Session 04, time travel with an update as a node."""
    world = World()
    graph = world.graph("ask")
    for name in ("yes", "no"):
        world.trailing(graph, name)
    graph.edge("ask", "yes", when=lambda doc: doc.n > 0)
    graph.edge("ask", "no")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    assert trail(await threads.run("t", Doc())) == ["ask", "no"]
    updated = await threads.update_state("t", {"n": 1}, as_node="ask", at_sequence=1)
    assert isinstance(updated, Interrupted)
    assert (updated.suspended_node, updated.next_node) == ("ask", "yes")
    assert trail(await threads.resume("t")) == ["ask", "yes"]
    assert await parents(threads) == [None, 0, 1, 1, 3, 4]


async def test_as_the_last_node_the_thread_is_complete() -> None:
    world = World()
    threads = review(world)
    await threads.run("t", Doc())
    updated = await threads.update_state("t", {"n": 3}, as_node="publish")
    assert isinstance(updated, Completed)
    assert (await world.log())[-1] == "completed:publish>-"


async def test_as_the_last_node_a_boundaries_graph_has_no_row_to_write() -> None:
    world = World()
    threads = review(world, BOUNDARIES)
    await threads.run("t", Doc())
    assert code(await threads.update_state("t", {}, as_node="publish")) is RefusalCode.NO_NEXT_NODE


async def test_as_a_boundary_the_thread_waits_there() -> None:
    world = World()
    graph = world.graph("draft", "approve", "publish")
    graph.interrupt("approve", timeout=timedelta(hours=1))
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    await threads.resume("t")
    updated = await threads.update_state("t", {}, as_node="approve")
    assert isinstance(updated, Interrupted)
    assert updated.wait is not None
    assert updated.wait.wake_at is not None
    assert isinstance(await threads.resume("t", boundary="approve"), Completed)


async def test_as_no_node_or_with_no_way_on_is_refused() -> None:
    world, graph = World(), Graph(Doc)
    world.trailing(graph, "a")
    world.trailing(graph, "b")
    world.trailing(graph, "c")
    graph.edge("a", "b")
    graph.edge("b", "c", when=lambda doc: doc.n == 0)
    graph.edge("c", "a", when=lambda doc: 1 // doc.n == 5)
    graph.edge("c", "b", when=lambda _doc: False)
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    before = await world.entries()
    for node, values in (("nobody", {}), ("b", {"n": 1}), ("c", {"n": 0})):
        assert code(await threads.update_state("t", values, as_node=node)) is RefusalCode.INVALID, node
    assert await world.entries() == before


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_fork_stands_where_its_row_stood(policy: CheckpointPolicy) -> None:
    """Session 05: fork from an earlier checkpoint, and go on; the old branch stays."""
    world = World()
    threads = review(world, policy)
    waiting = await threads.run("t", Doc())
    assert isinstance(waiting, Interrupted)
    await threads.resume("t", Answer(overrides={"n": 1}))
    before = await world.entries()
    forked = await threads.fork("t", waiting.sequence)
    assert isinstance(forked, Interrupted)
    assert forked == replace(waiting, sequence=forked.sequence)
    assert (await world.entries())[: len(before)] == before
    done = await threads.resume("t", Answer(overrides={"n": 2}))
    assert isinstance(done, Completed)
    assert done.state == Doc(trail=["draft", "approve", "publish"], n=2)


async def test_a_fork_of_a_row_in_mid_run_can_be_resumed() -> None:
    world = World()
    threads = world.line("a", "b", "c")[1]
    await threads.run("t", Doc())
    forked = await threads.fork("t", 1)
    assert isinstance(forked, Interrupted)
    assert (forked.suspended_node, forked.next_node) == ("a", "b")
    assert trail(await threads.resume("t")) == ["a", "b", "c"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_rerun_runs_what_follows_its_row_again(policy: CheckpointPolicy) -> None:
    """Session 05, replay; session 16, replay before an interrupt."""
    world = World()
    threads = review(world, policy)
    waiting = await threads.run("t", Doc())
    assert isinstance(waiting, Interrupted)
    await threads.resume("t", Answer(overrides={"n": 1}))
    world.contexts.clear()
    again = await threads.rerun("t", waiting.sequence)
    assert isinstance(again, Completed)
    assert again.state == Doc(trail=["draft", "approve", "publish"], n=0)
    assert [ctx.node for ctx in world.contexts] == ["publish"]


async def test_what_runs_again_does_so_under_new_keys() -> None:
    world = World()
    threads = world.line("a", "b", "c")[1]
    await threads.run("t", Doc())
    for at in (0, 1, 2, 1, 0):
        await threads.rerun("t", at)
    keys = [ctx.idempotency_key for ctx in world.contexts]
    assert len(keys) == len(set(keys)) == 3 + (3 + 2 + 1 + 2 + 3)


async def test_a_rerun_that_crashes_is_recovered_on_its_branch() -> None:
    """Session 01, crash then resume, on a branch."""
    world = World()
    threads = world.line("a", "b", "c")[1]
    await threads.run("t", Doc())
    saves = list[str]()

    def crash(point: str) -> None:
        saves.append(point)
        if saves.count("save.after") == 2:
            raise Crash

    with armed(crash), pytest.raises(Crash):
        await threads.rerun("t", 0)
    world.contexts.clear()
    assert trail(await threads.recover("t")) == ["a", "b", "c"]
    assert [ctx.node for ctx in world.contexts] == ["b", "c"]
    tree = tree_of(await threads.history("t"))
    assert {0, 4} <= tree.current
    assert not {1, 2, 3} & tree.current


async def test_a_failed_row_forked_is_still_a_failed_one() -> None:
    world = World()
    graph = world.graph("a")
    world.failing(graph, "b", Fatal("no"))
    graph.edge("a", "b")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    failed = await threads.run("t", Doc())
    assert isinstance(failed, Failed)
    assert failed.sequence is not None
    forked = await threads.fork("t", failed.sequence)
    assert isinstance(forked, Failed)
    assert forked.message == failed.message
    assert trail(await threads.resume("t")) == ["a", "b"]


async def test_rows_that_lead_nowhere_are_refused() -> None:
    """Session 18, a finished thread."""
    world = World()
    threads = review(world)
    await threads.run("t", Doc())
    await threads.resume("t")
    last = len(await world.entries()) - 1
    assert code(await threads.update_state("t", {})) is RefusalCode.NO_NEXT_NODE
    assert code(await threads.fork("t", last)) is RefusalCode.NO_NEXT_NODE
    assert code(await threads.rerun("t", last)) is RefusalCode.NO_NEXT_NODE
    assert len(await world.entries()) == last + 1


async def test_what_there_is_not_is_refused() -> None:
    world = World()
    threads = review(world)
    assert code(await threads.fork("t", 0)) is RefusalCode.NO_THREAD
    await threads.run("t", Doc())
    for at in (-1, 99):
        assert code(await threads.fork("t", at)) is RefusalCode.NO_CHECKPOINT
        assert code(await threads.rerun("t", at)) is RefusalCode.NO_CHECKPOINT
        assert code(await threads.update_state("t", {}, at_sequence=at)) is RefusalCode.NO_CHECKPOINT
    stale = RunOptions(expected_sequence=0)
    assert code(await threads.fork("t", 0, stale)) is RefusalCode.STALE


async def test_a_live_run_is_not_forked_away_from() -> None:
    world, graph = World(), Graph(Doc)
    seen = list[object]()

    @graph.node(name="a")
    async def look(_doc: Doc, _ctx: NodeContext) -> None:
        seen.append(await threads.fork("t", 0, OTHER))
        seen.append(await threads.update_state("t", {"n": 1}))
        seen.append(await threads.rerun("t", 0))

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    assert isinstance(await threads.run("t", Doc(), LEASED), Completed)
    assert [code(one) for one in seen] == [RefusalCode.HELD] * 3


async def test_a_lease_is_free_again_after_an_update() -> None:
    world = World()
    threads = review(world)
    await threads.run("t", Doc(), LEASED)
    assert isinstance(await threads.update_state("t", {"n": 1}, LEASED), Interrupted)
    assert await world.memory.get_lease("t") is None


async def test_a_signal_still_answers_an_updated_wait() -> None:
    world, graph = World(), Graph(Doc)
    world.trailing(graph, "a")
    world.trailing(graph, "b")
    graph.wait_for_event("paid", event="payment")
    graph.edge("a", "paid")
    graph.edge("paid", "b")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    await threads.update_state("t", {"n": 4})
    done = await threads.signal("t", "payment", {"note": "in"})
    assert isinstance(done, Completed)
    assert done.state == Doc(trail=["a", "b"], n=4, note="in")


async def test_an_open_question_stays_open_in_an_update_and_a_fork_and_is_asked_again_in_a_rerun() -> None:
    """Session 10, two interrupts in one node, gone back to."""
    world, graph = World(), Graph(Doc)

    @graph.node(name="ask")
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        first = await ctx.interrupt("first?", id="one")
        second = await ctx.interrupt("second?", id="two")
        doc.trail.append(f"{first} {second}")

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    asked = await threads.resume("t", Answer(replies={"one": "x"}))
    assert isinstance(asked, Interrupted)
    for result in (
        await threads.update_state("t", {"n": 1}),
        await threads.fork("t", asked.sequence),
        await threads.rerun("t", asked.sequence),
    ):
        assert isinstance(result, Interrupted), result
        assert [(one.id, one.payload) for one in result.questions] == [("two", "second?")]
    assert trail(await threads.resume("t", Answer(replies={"two": "y"}))) == ["x y"]


async def test_marks_and_recoveries_of_a_row_are_not_its_copys() -> None:
    world = World()
    threads = review(world)

    def mark(row: Checkpoint, *, stamp: bool, lease: Lease | None) -> dict[str, str]:
        return {"outcrop.command_id": f"{row.thread_id} {stamp} {lease}"}

    marked = RunOptions(metadata={"who": "me"}, marks=mark)
    await threads.run("t", Doc(), marked)
    await threads.fork("t", len(await world.entries()) - 1, RunOptions(metadata={"who": "you", "why": "x"}))
    metadata = (await world.last()).metadata or {}
    assert {key: value for key, value in metadata.items() if key != "strata.hops"} == {
        "who": "you",
        "why": "x",
    }


async def test_the_tree_of_forks_and_reruns() -> None:
    world = World()
    threads = review(world)
    await threads.run("t", Doc())  # 0 1 2: waits at 2
    await threads.resume("t")  # 3 claim, 4 completed
    await threads.fork("t", 2)  # 5 hangs on 2
    await threads.rerun("t", 1)  # 6 hangs on 1, 7 waits
    await threads.run("t", Doc())  # 8 9 10: a new root
    tree = tree_of(await threads.history("t"))
    assert tree.roots == (0, 8)
    assert tree.children == {0: (1,), 1: (2, 6), 2: (3, 5), 3: (4,), 6: (7,), 8: (9,), 9: (10,)}
    assert tree.current == {8, 9, 10}


async def test_a_live_run_without_rows_is_not_gone_back_under() -> None:
    """Under Boundaries only the stamp tells of a resumed run, and its lease."""
    world, gate = World(), Gate()
    graph: Graph[Doc] = Graph(Doc)
    world.trailing(graph, "draft")
    graph.interrupt("draft")
    gated(graph, "publish", gate)
    graph.edge("draft", "publish")
    threads = world.threads(graph.compile(checkpoints=BOUNDARIES))
    await threads.run("t", Doc())
    run = asyncio.create_task(threads.resume("t", options=LEASED))
    await gate.reached.wait()
    for verb in (threads.rerun("t", 0), threads.fork("t", 0), threads.update_state("t", {"n": 1})):
        assert code(await verb) is RefusalCode.HELD
    gate.opened.set()
    assert isinstance(await run, Completed)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_rerun_passes_no_boundary_that_nobody_answered(policy: CheckpointPolicy) -> None:
    world = World()
    threads = review(world, policy)
    waiting = await threads.run("t", Doc())
    assert isinstance(waiting, Interrupted)
    assert code(await threads.rerun("t", waiting.sequence)) is RefusalCode.UNANSWERED
    await threads.update_state("t", {"n": 1})
    assert code(await threads.rerun("t", waiting.sequence)) is RefusalCode.UNANSWERED
    assert world.ran == ["draft", "approve"]
    assert isinstance(await threads.resume("t"), Completed)
    answered = waiting.sequence + 1
    assert trail(await threads.rerun("t", answered)) == ["draft", "approve", "publish"]


async def test_a_rerun_stops_again_at_a_static_interrupt_that_nobody_answered() -> None:
    world = World()
    graph = world.graph("a", "b")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE, interrupt_before=["b"]))
    waiting = await threads.run("t", Doc())
    assert isinstance(waiting, Interrupted)
    again = await threads.rerun("t", waiting.sequence)
    assert isinstance(again, Interrupted)
    assert world.ran == ["a"]


async def test_going_back_is_told_in_order() -> None:
    world, events = World(), list[str]()
    told = threading.Event()

    def observe(event: RunEvent) -> None:
        events.append(type(event.kind).__name__)
        if isinstance(event.kind, RunCompleted):
            told.set()

    threads = review(world)
    await threads.run("t", Doc())
    await threads.fork("t", 0, replace(LEASED, observer=observe))
    assert await asyncio.to_thread(told.wait, 5)
    assert events == ["RunStarted", "LeaseAcquired", "CheckpointSaved", "RunCompleted"]
    told.clear()
    events.clear()
    await threads.fork("t", 99, replace(LEASED, observer=observe))
    assert await asyncio.to_thread(told.wait, 5)
    assert (events[0], events[-1]) == ("RunStarted", "RunCompleted")
