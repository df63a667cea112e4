"""Section G: event waits, timers, and waking what is due."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outcrop.engine import (
    Cancelled,
    CancelReason,
    CancelToken,
    CheckpointPolicy,
    Completed,
    Failed,
    Fatal,
    Graph,
    Interrupted,
    RefusalCode,
    Refused,
    RunOptions,
    Skipped,
    Threads,
    WakeOptions,
    WakeReason,
)
from outcrop.stores.errors import Unavailable
from outcrop.stores.query import ThreadQuery
from outcrop.stores.record import Wait, WaitKind
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, OTHER, Doc, Gate, World, gated

MINUTE = timedelta(minutes=1)


def waiting(
    world: World, kind: str, policy: CheckpointPolicy = BOUNDARIES, *, route: bool = True, **identity: Any
) -> Threads[Doc]:
    """`a`, then a wait named `w`, then `b`; what times out goes to `late`, if it has a route."""
    graph = world.graph(**identity)
    for name in ("a", "b"):
        world.trailing(graph, name)
    timing: dict[str, Any] = {"timeout": 5 * MINUTE, "on_timeout": "late" if route else None}
    if kind == "timer":
        graph.timer("w", delay=5 * MINUTE)
    elif kind == "event":
        graph.wait_for_event("w", event="paid", **timing)
    elif kind == "plain event":
        graph.wait_for_event("w", event="paid")
    elif kind == "human":
        graph.interrupt("w", **timing)
    if route and kind in ("event", "human"):
        world.trailing(graph, "late")
    graph.edge("a", "w")
    graph.edge("w", "b")
    return world.threads(graph.compile(checkpoints=policy))


async def test_a_timer_fires_when_due_and_not_before() -> None:
    """G001, G025."""
    world = World()
    threads = waiting(world, "timer")
    result = await threads.run("t", Doc())
    assert isinstance(result, Interrupted)
    assert result.wait == Wait(WaitKind.TIMER, None, "2026-01-02T03:09:05Z")
    assert (await world.last()).schema_version == "1.5.0"
    world.clock.advance(299)
    early = await threads.wake("t")
    assert early == Refused(
        thread_id="t",
        code=RefusalCode.NOT_DUE,
        message="thread 't' is not due until 2026-01-02T03:09:05Z: it is waiting for a timer at [w]",
    )
    assert (await threads.wake_due()).handled == 0
    assert await world.log() == ["interrupted:w>b"]
    world.clock.advance(1)
    assert isinstance(await threads.wake("t"), Completed)
    assert await world.log() == ["interrupted:w>b"] * 2
    assert (await world.last()).decision is None
    assert world.ran == ["a", "b"]


async def test_a_timer_in_a_loop_is_woken_once_a_call() -> None:
    """G003."""
    world = World()
    graph = world.graph("a")
    graph.timer("w", delay=MINUTE)
    graph.edge("a", "w")
    graph.edge("w", "a", when=lambda doc: len(doc.trail) < 3)
    world.trailing(graph, "b")
    graph.edge("w", "b")
    graph.edge("a", "w", when=lambda _doc: True)
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    for minute in (1, 2):
        world.clock.advance(60)
        report = await threads.wake_due()
        assert [type(woken.result) for woken in report.woken] == [Interrupted]
        wait = (await world.last()).wait
        assert wait is not None
        assert wait.wake_at == f"2026-01-02T03:0{4 + minute + 1}:05Z"


async def test_a_timers_own_time_is_rounded_up() -> None:
    """G004, G001."""
    world, graph = World(), Graph(Doc)
    graph.timer("w", until=lambda _doc: datetime(2026, 1, 2, 3, 4, 5, 900_000, tzinfo=UTC))
    world.trailing(graph, "b")
    graph.edge("w", "b")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    assert (await world.last()).wait == Wait(WaitKind.TIMER, None, "2026-01-02T03:04:06Z")
    world.clock.advance(0.9)
    assert isinstance(await threads.wake("t"), Refused)
    world.clock.advance(0.1)
    assert isinstance(await threads.wake("t"), Completed)


@pytest.mark.parametrize(
    ("until", "message"),
    [
        (lambda _doc: datetime(2026, 1, 2), "timer 'w' has a time without a time zone: 2026-01-02T00:00:00"),  # noqa: DTZ001 - the case
        (lambda _doc: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
async def test_a_timer_whose_time_fails_fails_its_node(until: Any, message: str) -> None:
    """The issue's rule for predicates, for `until`."""
    world, graph = World(), Graph(Doc)
    graph.timer("w", until=until)
    world.trailing(graph, "z")
    graph.edge("w", "z")
    result = await world.threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Failed)
    assert (result.message, await world.log()) == (message, ["failed:w>w"])


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_signal_applies_its_payload_and_goes_on(policy: CheckpointPolicy) -> None:
    """G005, G006."""
    world = World()
    threads = waiting(world, "event", policy)
    await threads.run("t", Doc())
    assert (await world.last()).wait == Wait(WaitKind.EVENT, "paid", "2026-01-02T03:09:05Z")
    result = await threads.signal("t", "paid", {"n": 8})
    assert isinstance(result, Completed)
    assert (result.state.n, result.state.trail) == (8, ["a", "b"])
    assert (await world.last()).decision is None
    world.clock.advance(600)
    assert (await threads.wake_due()).handled == 0


async def test_an_event_wait_without_a_timeout_is_never_due() -> None:
    """5.1, G025."""
    world = World()
    threads = waiting(world, "plain event", route=False)
    await threads.run("t", Doc())
    assert (await world.last()).wait == Wait(WaitKind.EVENT, "paid", None)
    refused = await threads.wake("t")
    assert isinstance(refused, Refused)
    assert refused.message == "thread 't' is not due: it is waiting for event 'paid' at [w], with no timeout"


@pytest.mark.parametrize(
    ("kind", "verb", "message"),
    [
        (
            "event",
            "other",
            "thread 't' is not waiting for event 'other': it is waiting for event 'paid' at [w]",
        ),
        ("human", "paid", "thread 't' is not waiting for event 'paid': it is waiting for a human at [w]"),
        ("timer", "paid", "thread 't' is not waiting for event 'paid': it is waiting for a timer at [w]"),
        (
            "event",
            None,
            "thread 't' is waiting for event 'paid' at [w]: only a signal of that event answers it",
        ),
        (
            "timer",
            None,
            "thread 't' is waiting for a timer at [w] until 2026-01-02T03:09:05Z: it wakes when due",
        ),
    ],
)
async def test_the_wrong_answer_is_refused(kind: str, verb: str | None, message: str) -> None:
    """G007."""
    world = World()
    threads = waiting(world, kind)
    await threads.run("t", Doc())
    result = await (threads.resume("t") if verb is None else threads.signal("t", verb))
    assert result == Refused(thread_id="t", code=RefusalCode.NOT_WAITING, message=message)
    assert len(await world.rows()) == 1


async def test_a_failed_thread_waits_for_no_event_and_is_not_due() -> None:
    """G008, G025."""
    world = World()
    graph = world.graph()
    world.failing(graph, "a", Fatal("no"))
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    refused = await threads.signal("t", "paid")
    assert isinstance(refused, Refused)
    assert refused.message == "thread 't' is not waiting for event 'paid': its latest checkpoint is failed"
    refused = await threads.wake("t")
    assert isinstance(refused, Refused)
    assert refused.message == "thread 't' is not due: its latest checkpoint is failed"


@pytest.mark.parametrize("kind", ["event", "human"])
async def test_a_timeout_takes_its_route(kind: str) -> None:
    """G009, G011, G023, G013."""
    world = World()
    threads = waiting(world, kind)
    await threads.run("t", Doc())
    await threads.run("answered", Doc())
    await (threads.signal("answered", "paid") if kind == "event" else threads.resume("answered"))
    world.clock.advance(299)
    assert (await threads.wake_due()).handled == 0
    world.clock.advance(2)
    report = await threads.wake_due()
    (woken,) = report.woken
    assert (woken.thread_id, woken.reason) == ("t", WakeReason.TIMEOUT)
    assert isinstance(woken.result, Completed)
    assert (woken.result.state.trail, report.skipped) == (["a", "late"], [])
    assert (await world.last()).decision is None


@pytest.mark.parametrize("kind", ["event", "human"])
@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_timeout_without_a_route_ends_the_thread(kind: str, policy: CheckpointPolicy) -> None:
    """G010, G012, G024."""
    world = World()
    threads = waiting(world, kind, policy, route=False)
    await threads.run("t", Doc(), RunOptions(metadata={"tenant": "acme"}))
    world.clock.advance(300)
    result = await threads.wake("t")
    assert result == Cancelled(
        thread_id="t", reason=CancelReason.ENDED, node="w", state=Doc(trail=["a"]), stopped_at=("w",),
        sequence=len(await world.rows()) - 1,
    )  # fmt: skip
    row = await world.last()
    assert (await world.log())[-1] == "ended:w>-"
    assert (row.wait, row.schema_version) == (None, "1.4.0")
    assert row.metadata == {"tenant": "acme", "strata.end_reason": "timed_out"}
    found = await world.memory.list_threads(ThreadQuery(metadata={"strata.end_reason": "timed_out"}))
    assert [thread.thread_id for thread in found.threads] == ["t"]
    for refused in (await threads.wake("t"), await threads.signal("t", "paid")):
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.ENDED


async def test_of_two_drivers_one_wakes() -> None:
    """G017, G027."""
    world = World()
    threads = waiting(world, "timer")
    await threads.run("t", Doc())
    world.clock.advance(300)
    load = world.store.load

    async def slow(thread_id: str) -> Any:
        row = await load(thread_id)
        await asyncio.sleep(0)  # both have loaded the same row before either goes on
        return row

    world.store.load = slow  # type: ignore[method-assign]  # a store that suspends
    one, two = await asyncio.gather(threads.wake_due(), threads.wake_due())
    assert len(one.woken) + len(two.woken) == 1
    assert one.skipped + two.skipped == [Skipped("t", "another driver woke or ended it first")]
    assert await world.log() == ["interrupted:w>b"] * 2


async def test_a_thread_woken_after_the_listing_is_skipped() -> None:
    """G018."""
    world = World()
    threads = waiting(world, "timer")
    await threads.run("t", Doc())
    world.clock.advance(300)
    listing = world.store.list_threads

    async def woken_meanwhile(query: ThreadQuery) -> Any:
        page = await listing(query)
        await threads.wake("t")
        return page

    world.store.list_threads = woken_meanwhile  # type: ignore[method-assign]  # a driver in between
    report = await threads.wake_due()
    assert (report.woken, report.skipped) == ([], [Skipped("t", "it is no longer due")])


async def test_metadata_and_graph_filters_leave_other_threads_alone() -> None:
    """G019, L013, G026."""
    world = World()
    ours = waiting(world, "timer", id="ours", version="1")
    theirs = waiting(world, "timer", id="theirs", version="1")
    await ours.run("t", Doc(), RunOptions(metadata={"tenant": "a"}))
    await ours.run("u", Doc(), RunOptions(metadata={"tenant": "b"}))
    await theirs.run("x", Doc())
    world.clock.advance(300)
    report = await ours.wake_due(WakeOptions(metadata={"tenant": "a"}))
    assert [woken.thread_id for woken in report.woken] == ["t"]
    report = await ours.wake_due(WakeOptions(match_graph=False))
    assert [woken.thread_id for woken in report.woken] == ["u"]
    reason = "thread 'x' was written by graph 'theirs' version 1, not 'ours' version 1"
    assert report.skipped == [Skipped("x", reason)]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("timer", "thread 't' waits at [w], which is not a timer in this graph"),
        ("event", "thread 't' waits at [w], which has no timeout in this graph"),
        ("human", "thread 't' waits at [w], which has no timeout in this graph"),
    ],
)
async def test_a_wait_that_the_graph_does_not_know_is_refused(kind: str, message: str) -> None:
    """G019, G026."""
    world = World()
    await waiting(world, kind).run("t", Doc())
    world.clock.advance(300)
    other = world.threads(world.graph("w").compile())
    refused = await other.wake("t")
    assert isinstance(refused, Refused)
    assert refused.message == message
    assert (await other.wake_due()).skipped == [Skipped("t", message)]
    assert len(await world.rows()) == 1


async def test_an_event_wait_that_the_graph_does_not_know_is_refused() -> None:
    """5.4."""
    world = World()
    await waiting(world, "event").run("t", Doc())
    refused = await world.threads(world.graph("w").compile()).signal("t", "paid")
    assert isinstance(refused, Refused)
    assert refused.message == "thread 't' waits at [w], which is not a wait for event 'paid' in this graph"


async def test_the_drivers_stop_token_cancels_nothing() -> None:
    """G002."""
    world, stop, gate = World(), CancelToken(), Gate()
    graph = world.graph()
    graph.timer("w", delay=MINUTE)
    gated(graph, "b", gate)
    graph.edge("w", "b")
    threads = world.threads(graph.compile())
    for thread_id in ("t", "u"):
        await threads.run(thread_id, Doc())
    world.clock.advance(60)
    sweep = asyncio.create_task(threads.wake_due(WakeOptions(stop=stop)))
    await gate.reached.wait()
    stop.fire()
    gate.opened.set()
    report = await sweep
    assert [type(woken.result) for woken in report.woken] == [Completed]
    assert (await threads.wake_due(WakeOptions(stop=stop))).handled == 0
    assert len((await threads.wake_due()).woken) == 1


async def test_a_held_thread_is_skipped_and_woken_later() -> None:
    """J014, G028."""
    world = World()
    threads = waiting(world, "timer")
    await threads.run("t", Doc())
    world.clock.advance(300)
    await world.memory.acquire_lease("t", "other", timedelta(seconds=10))
    report = await threads.wake_due(WakeOptions(options=LEASED))
    assert report.skipped == [Skipped("t", "it is held by 'other' until 2026-01-02T03:09:15Z")]
    refused = await threads.wake("t", OTHER)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.HELD
    world.clock.advance(10)
    assert len((await threads.wake_due(WakeOptions(options=LEASED))).woken) == 1
    assert await world.memory.get_lease("t") is None


async def test_a_due_durable_thread_is_claimed() -> None:
    """G030."""
    world = World()
    threads = waiting(world, "timer", EVERY_NODE)
    await threads.run("t", Doc())
    world.clock.advance(300)
    await threads.wake("t")
    assert (await world.log())[2:] == ["interrupted:w>b", "running:w>b", "completed:b>-"]
    claim = (await world.rows())[3]
    assert (claim.wait, claim.resumed_at, claim.metadata) == (None, None, {"strata.hops": "2"})


async def test_a_blank_event_is_refused_before_any_load() -> None:
    """G031, 2.3."""
    world = World()
    refused = await waiting(world, "event").signal("t", " ")
    assert refused == Refused(thread_id="t", code=RefusalCode.INVALID, message="a signal needs an event type")
    assert world.store.faults.calls["load"] == 0


@pytest.mark.parametrize("limit", [0, 1001])
async def test_a_bad_limit_refuses_the_whole_call(limit: int) -> None:
    """5.5."""
    report = await waiting(World(), "timer").wake_due(WakeOptions(limit=limit))
    assert report.refusal is not None


async def test_a_failed_listing_and_a_failed_load_are_told() -> None:
    """5.5."""
    world = World()
    threads = waiting(world, "timer")
    await threads.run("t", Doc())
    world.clock.advance(300)
    world.store.fail("load", Unavailable("gone"))
    report = await threads.wake_due()
    assert report.skipped == [Skipped("t", "its checkpoint can't be loaded: gone")]
    world.store.fail("list_threads", Unavailable("gone too"))
    assert (await threads.wake_due()).refusal == "gone too"


async def test_the_limit_counts_woken_and_skipped_and_pages_go_on() -> None:
    """5.5."""
    world = World()
    threads = waiting(world, "timer")
    for number in range(5):
        await threads.run(f"t{number}", Doc())
    await world.memory.save(replace((await world.last("t4")), schema_version="9.0.0"))
    world.clock.advance(300)
    report = await threads.wake_due(WakeOptions(limit=2))
    assert report.skipped == [Skipped("t4", "its checkpoint has unsupported schema_version '9.0.0'")]
    assert [woken.thread_id for woken in report.woken] == ["t3"]


async def test_now_decides_what_is_due() -> None:
    """5.5: the caller's clock may be another."""
    world = World()
    threads = waiting(world, "timer")
    await threads.run("t", Doc())
    later = world.clock.now() + timedelta(hours=1)
    report = await threads.wake_due(WakeOptions(now=later))
    assert len(report.woken) == 1
