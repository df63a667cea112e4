"""Events, timers and timeouts inside subgraphs, and the end of threads that wait there."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelReason,
    CancelToken,
    CheckpointPolicy,
    ChunkStream,
    RefusalCode,
    RunOptions,
    WakeOptions,
    WakeReason,
)
from outcrop.stores.query import ThreadQuery
from outcrop.stores.record import ThreadState, WaitKind
from support.engine import EVERY_NODE, Doc, World, told
from support.levels import Nested, approving, done, metadata, refused, three_deep, versions, waiting

if TYPE_CHECKING:
    from outcrop.engine import Graph

POLICIES = list(CheckpointPolicy)
MINUTE = timedelta(minutes=1)


def sleeping(world: World) -> Graph[Doc]:
    """`lie`, a timer of a minute, `rise`."""
    graph = world.graph("lie")
    graph.timer("sleep", delay=MINUTE)
    world.trailing(graph, "rise")
    graph.edge("lie", "sleep")
    graph.edge("sleep", "rise")
    return graph


def paying(world: World, *, timeout: timedelta | None = None, route: bool = False) -> Graph[Doc]:
    """`bill`, a wait for `paid`, `ship`; and `remind`, where the time out may lead."""
    graph = world.graph("bill")
    graph.wait_for_event("pay", event="paid", timeout=timeout, on_timeout="remind" if route else None)
    world.trailing(graph, "ship")
    graph.edge("bill", "pay")
    graph.edge("pay", "ship")
    if route:
        world.trailing(graph, "remind")
    return graph


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_timer_below_wakes_into_its_child(policy: CheckpointPolicy) -> None:
    """G014: only the innermost level has the wait, and listings show it."""
    world = World()
    case = Nested(sleeping, world=world, policy=policy)
    threads = case.threads()
    result = waiting(await threads.run("t", Doc()))
    assert result.waiting_at == ("Work", "sleep")
    assert result.wait is not None
    assert result.wait.kind is WaitKind.TIMER
    row = await world.last()
    assert row.wait is None
    assert row.nested is not None
    assert row.nested.wait == result.wait
    assert versions(row) == ["1.5.0", "1.5.0"]
    listed = (await world.memory.list_threads(ThreadQuery())).threads
    assert [(one.waiting_at, one.wait) for one in listed] == [(("Work", "sleep"), result.wait)]

    message = refused(await threads.wake("t"), RefusalCode.NOT_DUE)
    assert "[Work/sleep]" in message
    message = refused(await threads.resume("t"), RefusalCode.NOT_WAITING)
    assert message.startswith("thread 't' is waiting for a timer at [Work/sleep] until ")
    world.clock.advance(60)
    report = await threads.wake_due(WakeOptions(now=world.clock.now()))
    assert [(one.thread_id, one.reason) for one in report.woken] == [("t", WakeReason.TIMER)]
    assert done(report.woken[0].result).trail == ["before", "Work/lie", "Work/rise", "after"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_event_below_is_signalled(policy: CheckpointPolicy) -> None:
    """G015, G026: a signal's payload is the child's; an answer for outer levels goes with no event."""
    world = World()
    threads, _ = three_deep(world, paying(world), policy)
    assert waiting(await threads.run("t", Doc())).waiting_at == ("Work", "Inner", "pay")
    message = refused(await threads.signal("t", "shipped"), RefusalCode.NOT_WAITING)
    assert message == (
        "thread 't' is not waiting for event 'shipped': it is waiting for event 'paid' at [Work/Inner/pay]"
    )
    message = refused(await threads.resume("t", Answer(levels={"": {"n": 1}})), RefusalCode.NOT_WAITING)
    assert message.endswith("only a signal of that event answers it")
    result = done(await threads.signal("t", "paid", {"n": 12}))
    assert result.n == 12
    assert result.trail[-1] == "Work/Inner/ship"


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_timeout_below_takes_its_route_there(policy: CheckpointPolicy) -> None:
    world = World()
    case = Nested(paying(world, timeout=MINUTE, route=True), world=world, policy=policy)
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    world.clock.advance(60)
    assert done(await threads.wake("t")).trail == ["before", "Work/bill", "Work/remind", "after"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_timeout_below_without_a_route_ends_every_level(policy: CheckpointPolicy) -> None:
    """G016."""
    world = World()
    case = Nested(paying(world, timeout=MINUTE), world=world, policy=policy)
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    world.clock.advance(60)
    result = await threads.wake("t")
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.ENDED
    assert result.stopped_at == ("Work", "pay")
    row = await world.last()
    assert told(row) == "ended:Work>- / ended:pay>-"
    assert [metadata(level) for level in row.levels()] == [{"strata.end_reason": "timed_out"}] * 2
    assert all(level.wait is None for level in row.levels())


async def test_a_due_thread_streams_its_child_then_the_outer_level() -> None:
    """G022."""
    world = World()
    case = Nested(sleeping, world=world)
    waiting(await case.threads().run("t", Doc()))
    world.clock.advance(60)
    stream = ChunkStream()
    done(await case.threads().wake("t", RunOptions(stream=stream)))
    assert [f"{one.type} {one.node_name}" async for one in stream] == [
        "NodeStart Work",
        "NodeStart Work/rise",
        "NodeEnd Work/rise",
        "NodeEnd Work",
        "NodeStart after",
        "NodeEnd after",
    ]


@pytest.mark.parametrize("policy", POLICIES)
async def test_ending_a_thread_that_waits_below_ends_every_level(policy: CheckpointPolicy) -> None:
    """H002: with its decisions; and it takes no answer any more."""
    world = World()
    child = world.graph("one", "two", "three")
    child.interrupt("one")
    child.interrupt("two", timeout=MINUTE)
    case = Nested(child, world=world, policy=policy)
    threads = case.threads()
    waiting(await threads.run("t", Doc(), RunOptions(metadata={"tenant": "acme"})))
    waiting(await threads.resume("t"))
    result = await threads.end("t", by="carol")
    assert isinstance(result, Cancelled)
    assert (result.node, result.stopped_at) == ("Work", ("Work", "two"))
    row = await world.last()
    assert told(row) == "ended:Work>- / ended:two>-"
    assert versions(row) == ["1.4.0", "1.4.0"]
    assert [level.metadata for level in row.levels()] == [
        {"tenant": "acme", "strata.end_reason": "requested", "strata.ended_by": "carol"}
    ] * 2
    assert row.nested is not None
    assert row.nested.decision is not None
    assert row.nested.decision.boundary == "one"
    assert row.nested.wait is None
    refused(await threads.resume("t"), RefusalCode.ENDED)


@pytest.mark.parametrize("policy", POLICIES)
async def test_ending_a_thread_cancelled_below_drops_its_reason(policy: CheckpointPolicy) -> None:
    """H004."""
    world = World()
    token = CancelToken()
    child = world.graph("one")

    @child.node(name="two")
    async def cancel(_doc: Doc) -> None:
        token.fire()

    world.trailing(child, "three")
    child.edge("one", "two")
    child.edge("two", "three")
    case = Nested(child, world=world, policy=policy)
    cancelled = await case.threads().run("t", Doc(), RunOptions(cancellation=token))
    assert isinstance(cancelled, Cancelled)
    assert metadata(await world.last()) == {"cancel_reason": "requested"}
    assert isinstance(await case.threads().end("t"), Cancelled)
    row = await world.last()
    assert told(row) == "ended:Work>- / ended:three>-"
    assert [level.metadata for level in row.levels()] == [{"strata.end_reason": "requested"}] * 2


async def test_a_thread_that_died_below_is_ended_where_it_was() -> None:
    """I029 below: each level's place is the node that it was to run."""
    world = World()
    case = Nested(approving, world=world)
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    stop = CancelToken()
    stop.fire()
    await threads.resume("t", options=RunOptions(stop=stop))
    assert (await world.log())[-1].startswith("running:")
    assert isinstance(await threads.end("t"), Cancelled)
    assert (await world.log())[-1].startswith("ended:")


async def test_listing_finds_a_thread_by_where_it_waits_below() -> None:
    world = World()
    case = Nested(approving, world=world, policy=EVERY_NODE)
    waiting(await case.threads().run("t", Doc()))
    page = await world.memory.list_threads(ThreadQuery(states=frozenset({ThreadState.INTERRUPTED})))
    assert [one.waiting_at for one in page.threads] == [("Work", "approve")]
