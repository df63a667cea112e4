"""Run events: which, in which order, and that nothing an observer does matters to the run (R001 to R006)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import (
    Answer,
    CancelToken,
    ChunkStream,
    Completed,
    Failed,
    Fatal,
    Graph,
    LeaseOptions,
    RecoverOptions,
    Refused,
    Retry,
    RunEvent,
    RunOptions,
    Transient,
)
from outcrop.engine.events import (
    BranchCompleted,
    CheckpointSaved,
    HopLimitExceeded,
    NodeCompleted,
    Recovered,
    Resumed,
    RunCompleted,
    RunStarted,
    WakeKind,
)
from outcrop.engine.failpoints import armed
from outcrop.stores.errors import StoreError
from support.engine import BOUNDARIES, EVERY_NODE, TTL, Crash, Doc, Gate, World, crashing, gated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine import Threads
    from outcrop.engine.events import EventKind


class Watcher:
    """An observer that keeps what it is told, and can be waited for."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self.over = threading.Event()

    def __call__(self, event: RunEvent) -> None:
        self.events.append(event)
        if isinstance(event.kind, RunCompleted):
            self.over.set()

    async def told(self) -> list[str]:
        """The run's events in short, once the last is there."""
        assert await asyncio.to_thread(self.over.wait, 5)
        return [short(event) for event in self.events]

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events]


def short(event: RunEvent) -> str:
    """The kind, where, which attempt, and how it ended."""
    kind, words = event.kind, [type(event.kind).__name__]
    if event.node_path is not None:
        words.append(event.node_path + (f"#{event.attempt}" if event.attempt is not None else ""))
    match kind:
        case RunStarted(mode=mode, node=node):
            words.append(f"{mode.value}:{node}")
        case NodeCompleted(result=result) | BranchCompleted(result=result):
            words.append(result.value)
        case CheckpointSaved(status=status, resume_stamp=stamp):
            words.append(f"{status.value}{' stamp' if stamp else ''}")
        case RunCompleted(outcome=outcome):
            words.append(outcome.value)
        case _:
            pass
    return " ".join(words)


class Panic(BaseException):
    """What is no failure of a node."""


def watched(watcher: Watcher, **options: object) -> RunOptions:
    return RunOptions(observer=watcher, **options)  # type: ignore[arg-type] # whatever a test says


def approving(world: World) -> Threads[Doc]:
    graph: Graph[Doc] = Graph(Doc)
    world.failing(graph, "Classify", Transient("busy"), retry=Retry(max_retries=1))
    world.trailing(graph, "Approve")
    world.trailing(graph, "Execute")
    graph.edge("Classify", "Approve")
    graph.edge("Approve", "Execute")
    graph.interrupt("Approve")
    return world.threads(graph.compile())


async def test_the_documented_sequence_of_a_run_and_its_resume() -> None:
    """R001, F021, G020: the reference of 9.3, word for word."""
    world, watcher, again = World(), Watcher(), Watcher()
    threads = approving(world)
    await threads.run("t", Doc(), watched(watcher))
    assert await watcher.told() == [
        "RunStarted run:Classify",
        "NodeStarted Classify#1",
        "RetryScheduled Classify#1",
        "NodeCompleted Classify#2 Committed",
        "NodeStarted Approve#1",
        "NodeCompleted Approve#1 Committed",
        "CheckpointSaved interrupted",
        "InterruptedAt",
        "RunCompleted Interrupted",
    ]
    await threads.resume("t", Answer(by="dana"), watched(again))
    assert await again.told() == [
        "RunStarted resume:Execute",
        "CheckpointSaved interrupted stamp",
        "Resumed",
        "NodeStarted Execute#1",
        "NodeCompleted Execute#1 Committed",
        "RunCompleted Completed",
    ]
    (resumed,) = [kind for kind in again.kinds() if isinstance(kind, Resumed)]
    assert (resumed.is_approved, resumed.reviewer, resumed.waiting_at) == (True, "dana", ("Approve",))


async def test_a_failing_branch_and_a_fallback() -> None:
    """R002: a failure is told before its row or its fallback."""
    world, watcher = World(), Watcher()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", reduce=lambda _doc, _states: None, fallback="mend")

    @group.branch
    async def fine(_doc: Doc) -> None: ...

    @group.branch
    async def broken(_doc: Doc) -> None:
        raise Fatal("no")

    world.trailing(graph, "mend")
    assert isinstance(await world.threads(graph.compile()).run("t", Doc(), watched(watcher)), Completed)
    assert await watcher.told() == [
        "RunStarted run:g",
        "NodeStarted g#1",
        "BranchStarted g/fine#1",
        "BranchStarted g/broken#1",
        "BranchCompleted g/fine#1 Succeeded",
        "BranchCompleted g/broken#1 Failed",
        "NodeCompleted g#1 Failed",
        "NodeStarted mend#1",
        "NodeCompleted mend#1 Committed",
        "RunCompleted Completed",
    ]
    (failed,) = [
        kind for kind in watcher.kinds() if isinstance(kind, NodeCompleted) and kind.error is not None
    ]
    assert (failed.error, failed.fallback) == ("branch 'broken': no", "mend")


async def test_a_nested_boundary() -> None:
    """R002: the child's events are inside its node's, and the node ends interrupted."""
    world, watcher, again = World(), Watcher(), Watcher()
    child = world.graph("Draft", "Send")
    child.interrupt("Draft")
    graph: Graph[Doc] = Graph(Doc)
    graph.subgraph("Work", child.compile(), input=lambda doc: doc, output=lambda _, doc: doc)
    threads = world.threads(graph.compile())
    await threads.run("t", Doc(), watched(watcher))
    assert await watcher.told() == [
        "RunStarted run:Work",
        "NodeStarted Work#1",
        "NodeStarted Work/Draft#1",
        "NodeCompleted Work/Draft#1 Committed",
        "NodeCompleted Work#1 Interrupted",
        "CheckpointSaved interrupted",
        "InterruptedAt",
        "RunCompleted Interrupted",
    ]
    await threads.resume("t", options=watched(again))
    told = await again.told()
    assert told[0] == "RunStarted resume:Work"
    assert told[3:] == [
        "NodeStarted Work#1",
        "NodeStarted Work/Send#1",
        "NodeCompleted Work/Send#1 Committed",
        "NodeCompleted Work#1 Committed",
        "RunCompleted Completed",
    ]


async def test_numbers_have_no_gaps_under_many_branches() -> None:
    """R003."""
    watcher = Watcher()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", reduce=lambda _doc, _states: None)
    for number in range(16):

        @group.branch(name=f"b{number}")
        async def turn(_doc: Doc) -> None:
            for _ in range(5):
                await asyncio.sleep(0)

    await World().threads(graph.compile()).run("t", Doc(), watched(watcher))
    await watcher.told()
    assert [event.sequence for event in watcher.events] == list(range(1, len(watcher.events) + 1))
    assert len({event.run_id for event in watcher.events}) == 1


@pytest.mark.parametrize("how", ["cancelled", "timed out", "panic", "failed", "dropped"])
async def test_every_node_completes_once(how: str) -> None:
    """R004."""
    world, watcher, gate = World(), Watcher(), Gate()
    graph: Graph[Doc] = Graph(Doc)
    if how in ("cancelled", "timed out", "dropped"):
        gated(graph, "slow", gate, timeout=5.0 if how == "timed out" else None)
    else:

        @graph.node(name="slow")
        async def breaking(_doc: Doc) -> None:
            raise Panic if how == "panic" else Fatal("no")

    token = CancelToken()
    threads = world.threads(graph.compile())
    run = asyncio.ensure_future(threads.run("t", Doc(), watched(watcher, cancellation=token)))
    if how in ("cancelled", "timed out", "dropped"):
        await gate.reached.wait()
        match how:
            case "cancelled":
                token.fire()
            case "timed out":
                world.clock.advance(5)
            case _:
                run.cancel()
    with suppress(asyncio.CancelledError, Panic):
        await run
    told = await watcher.told()
    assert sum(line.startswith("NodeStarted") for line in told) == 1
    assert sum(line.startswith("NodeCompleted") for line in told) == 1
    assert told[-1].startswith("RunCompleted")


async def test_a_failing_observer_harms_nothing() -> None:
    """R005."""
    watcher = Watcher()

    def failing(event: RunEvent) -> None:
        watcher(event)
        raise ValueError("observer")

    world = World()
    _, threads = world.line("a", "b")
    assert isinstance(await threads.run("t", Doc(), RunOptions(observer=failing)), Completed)
    assert (await watcher.told())[-1] == "RunCompleted Completed"


async def test_a_blocked_observer_holds_up_nothing() -> None:
    """R005."""
    blocked = threading.Event()
    world = World()
    _, threads = world.line("a", "b")

    def block(_event: RunEvent) -> None:
        blocked.wait(5)

    result = await threads.run("t", Doc(), RunOptions(observer=block))
    blocked.set()
    assert isinstance(result, Completed)


async def test_a_leased_run_and_a_lost_lease() -> None:
    """J001, J008: what is told of leases."""
    world, watcher, gate = World(), Watcher(), Gate()
    graph: Graph[Doc] = Graph(Doc)
    gated(graph, "a", gate)
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    options = watched(watcher, lease=LeaseOptions("w1", TTL))
    run = asyncio.create_task(threads.run("t", Doc(), options))
    await gate.reached.wait()
    lease = await world.memory.get_lease("t")
    assert lease is not None
    await world.memory.release_lease(lease)
    await world.memory.acquire_lease("t", "w2", TTL)
    world.clock.advance(TTL.total_seconds() / 3)
    await run
    told = await watcher.told()
    assert told[:3] == ["RunStarted run:a", "LeaseAcquired", "CheckpointSaved running"]
    assert told[3:] == [
        "NodeStarted a#1",
        "LeaseWasLost",
        "NodeCompleted a#1 Cancelled",
        "RunCompleted Cancelled",
    ]


@pytest.mark.parametrize("method", ["load", "save"])
async def test_a_store_that_fails_still_ends_the_events(method: str) -> None:
    """B018: here the failure is a result, not an exception."""
    world, watcher = World(), Watcher()
    _, threads = world.line("a")
    world.store.fail(method, StoreError("gone"))
    if method == "load":
        assert isinstance(await threads.resume("t", options=watched(watcher)), Refused)
    else:
        assert isinstance(await threads.run("t", Doc(), watched(watcher)), Failed)
    assert (await watcher.told())[-1] == "RunCompleted Failed"


async def test_a_wake_is_told_and_streams() -> None:
    """G021: one stamp; the run starts at the next node."""
    world, watcher, chunks = World(), Watcher(), ChunkStream()
    graph = world.graph("lie")
    graph.timer("sleep", delay=timedelta(minutes=1))
    world.trailing(graph, "rise")
    graph.edge("lie", "sleep")
    graph.edge("sleep", "rise")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    world.clock.advance(60)
    await threads.wake("t", watched(watcher, stream=chunks))
    assert [f"{chunk.type} {chunk.node_name}" async for chunk in chunks] == ["NodeStart rise", "NodeEnd rise"]
    told = await watcher.told()
    assert told[0] == "RunStarted resume:rise"
    assert [kind.resume_stamp for kind in watcher.kinds() if isinstance(kind, CheckpointSaved)] == [True]
    (resumed,) = [kind for kind in watcher.kinds() if isinstance(kind, Resumed)]
    assert resumed.wake is WakeKind.TIMER


async def test_a_recovery_is_told_before_its_first_node() -> None:
    """I031."""
    world, watcher = World(), Watcher()
    _, threads = world.line("a", "b")
    with armed(crashing("node.before", 2)), pytest.raises(Crash):
        await threads.run("t", Doc())
    await threads.recover_stale(RecoverOptions(options=watched(watcher, lease=LeaseOptions("w", TTL))))
    told = await watcher.told()
    assert told[:5] == [
        "RunStarted recover:b",
        "LeaseAcquired",
        "CheckpointSaved running",
        "Recovered",
        "NodeStarted b#1",
    ]
    (recovered,) = [kind for kind in watcher.kinds() if isinstance(kind, Recovered)]
    assert (recovered.at, recovered.recoveries) == (("b",), 1)


async def test_a_hop_limit_is_told_before_its_row() -> None:
    """K012."""
    world, watcher = World(), Watcher()
    graph = world.graph("a")
    graph.edge("a", "a", when=lambda _doc: True)
    await world.threads(graph.compile(max_node_hops=2)).run("t", Doc(), watched(watcher))
    told = await watcher.told()
    assert told[-3:] == ["HopLimitExceeded a", "CheckpointSaved failed", "RunCompleted Failed"]
    (limit,) = [kind for kind in watcher.kinds() if isinstance(kind, HopLimitExceeded)]
    assert (limit.hops, limit.limit) == (2, 2)


async def test_an_end_and_an_end_again() -> None:
    """H010."""
    world, watcher, again = World(), Watcher(), Watcher()
    threads = approving(world)
    await threads.run("t", Doc())
    await threads.end("t", options=watched(watcher))
    assert await watcher.told() == [
        "RunStarted end:Approve",
        "CheckpointSaved ended",
        "RunCompleted Cancelled",
    ]
    await threads.end("t", options=watched(again))
    assert await again.told() == ["RunStarted end:Approve", "RunCompleted Cancelled"]


async def test_a_refused_resume_is_told_and_bad_options_are_not() -> None:
    world, watcher, silent = World(), Watcher(), Watcher()
    threads = approving(world)
    await threads.resume("t", options=watched(watcher))
    assert await watcher.told() == ["RunStarted resume:", "RunCompleted Failed"]
    await threads.resume("t", options=watched(silent, run_id=""))
    assert silent.events == []


async def test_events_are_the_same_under_both_policies_but_for_rows() -> None:
    told: list[Sequence[str]] = []
    for policy in (BOUNDARIES, EVERY_NODE):
        world, watcher = World(), Watcher()
        _, threads = world.line("a", "b", policy=policy)
        await threads.run("t", Doc(), watched(watcher))
        told.append([line for line in await watcher.told() if not line.startswith("CheckpointSaved")])
    assert told[0] == told[1]


async def test_a_retry_after_an_approval_is_told_as_the_operators() -> None:
    """F012: the row keeps the approver."""
    world, watcher = World(), Watcher()
    graph: Graph[Doc] = Graph(Doc)
    world.trailing(graph, "ask")
    world.failing(graph, "work", Fatal("no"))
    graph.interrupt("ask")
    graph.edge("ask", "work")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    assert isinstance(await threads.resume("t", Answer(by="ann")), Failed)
    await threads.resume("t", Answer(by="olga"), watched(watcher))
    await watcher.told()
    (resumed,) = [kind for kind in watcher.kinds() if isinstance(kind, Resumed)]
    assert (resumed.reviewer, world.contexts[-1].node) == ("olga", "work")
    decision = world.contexts[-1].decision
    assert decision is not None
    assert decision.reviewer == "ann"


async def test_a_callers_run_id_reaches_every_event() -> None:
    """R006."""
    world, watcher = World(), Watcher()
    _, threads = world.line("a")
    await threads.run("t", Doc(), watched(watcher, run_id="mine"))
    await watcher.told()
    assert {event.run_id for event in watcher.events} == {"mine"}
