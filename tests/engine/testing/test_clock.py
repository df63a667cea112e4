"""Skipped time: what waits for the clock waits for nothing, and what is real is waited for."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from outcrop.engine import (
    Backoff,
    Cancelled,
    CancelReason,
    Completed,
    Failed,
    Graph,
    Jitter,
    LeaseOptions,
    NodeContext,
    Retry,
    RunOptions,
    RunResult,
    Threads,
    Transient,
)
from outcrop.engine.testing import SkippingClock
from outcrop.stores.memory import MemoryStore
from support.engine import EVERY_NODE, Doc


def ran(clock: SkippingClock, graph: Graph[Doc], options: RunOptions | None = None) -> RunResult[Doc]:
    store = MemoryStore(clock=clock.now)
    threads = Threads(graph.compile(checkpoints=EVERY_NODE), store, clock=clock, uniform=lambda: 1.0)
    return clock.run(threads.run("t", Doc(), options or RunOptions()))


def test_sleeps_are_skipped_in_order() -> None:
    clock, woken = SkippingClock(), list[tuple[str, float]]()

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async def all_of_them() -> None:
        await asyncio.gather(wait("year", 365 * 86_400), wait("hour", 3600), wait("minute", 60))

    start = clock.now()
    clock.run(all_of_them())
    assert woken == [("minute", 60), ("hour", 3600), ("year", pytest.approx(365 * 86_400))]
    assert clock.now() - start == timedelta(days=365)


def test_backoffs_are_skipped() -> None:
    clock, graph, attempts = SkippingClock(), Graph(Doc), list[float]()

    @graph.node(retry=Retry(max_retries=3, backoff=Backoff(100, 1000, Jitter.NONE)))
    async def flaky(_doc: Doc) -> None:
        attempts.append(clock.monotonic())
        if len(attempts) < 4:
            raise Transient("busy")

    assert isinstance(ran(clock, graph), Completed)
    assert attempts == [0, 100, 300, 700]


def test_a_timeout_cuts_a_real_sleep_of_a_node() -> None:
    clock, graph = SkippingClock(), Graph(Doc)

    @graph.node(timeout=5)
    async def slow(_doc: Doc) -> None:
        await asyncio.sleep(3600)

    assert isinstance(ran(clock, graph), Failed)
    assert clock.monotonic() == 5


def test_a_deadline_passes() -> None:
    clock, graph = SkippingClock(), Graph(Doc)

    @graph.node
    async def slow(_doc: Doc) -> None:
        await asyncio.sleep(3600)

    result = ran(clock, graph, RunOptions(deadline=clock.now() + timedelta(seconds=30)))
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.DEADLINE
    assert clock.monotonic() == 30


def test_a_lease_is_renewed_while_time_is_skipped() -> None:
    clock, graph = SkippingClock(), Graph(Doc)

    @graph.node
    async def slow(_doc: Doc) -> None:
        await asyncio.sleep(3600)

    options = RunOptions(lease=LeaseOptions("w", timedelta(seconds=30)))
    assert isinstance(ran(clock, graph, options), Completed)
    assert clock.monotonic() == 3600


def test_a_sync_node_is_waited_for() -> None:
    """The loop has nothing to do but a timer, again and again, and time stands still all the same."""
    clock, graph, seen = SkippingClock(), Graph(Doc), list[float]()
    both = graph.group("both", reduce=lambda _doc, _branches: None)

    @both.branch
    async def sleeper(_doc: Doc) -> None:
        seen.append(-1)
        loops.append(asyncio.get_running_loop())
        started.set()
        await asyncio.sleep(60)
        seen.append(clock.monotonic())

    started, loops = threading.Event(), list[asyncio.AbstractEventLoop]()

    @both.branch
    def worker(_doc: Doc) -> None:
        started.wait()
        for _ in range(50):  # rounds of the loop, each of which could skip
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loops[0]).result()
        seen.append(clock.monotonic())

    assert isinstance(ran(clock, graph), Completed)
    assert seen == [-1, 0, 60]


def test_time_is_held_for_something_real() -> None:
    clock = SkippingClock()

    async def real() -> float:
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        asyncio.get_running_loop().call_later(60, lambda: None)
        with clock.held():
            thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(answered.set))
            thread.start()
            await answered.wait()
        thread.join()
        return clock.monotonic()

    assert clock.run(real()) == 0


def test_a_timer_beside_something_real_takes_real_time() -> None:
    """Else whoever waits for both, like a store that tries again, would hang."""
    clock = SkippingClock()

    async def real() -> None:
        with clock.held():
            await asyncio.sleep(0.01)

    started = time.monotonic()
    clock.run(real())
    assert time.monotonic() - started >= 0.01
    assert clock.monotonic() == 0.01


def test_a_sync_node_that_hangs_times_out_in_real_time() -> None:
    clock, graph, given_up = SkippingClock(), Graph(Doc), threading.Event()

    @graph.node(timeout=0.01)
    def hang(_doc: Doc, ctx: NodeContext) -> None:
        ctx.cancellation.on_fire(given_up.set)
        given_up.wait()

    assert isinstance(ran(clock, graph), Failed)
    assert clock.monotonic() == 0.01


def test_time_passes_by_hand_between_runs() -> None:
    clock = SkippingClock()
    clock.advance(60)
    clock.advance(timedelta(minutes=1))
    clock.run(asyncio.sleep(30))
    assert clock.monotonic() == 150


def test_a_cancelled_timer_is_not_skipped_to() -> None:
    clock, fired = SkippingClock(), list[str]()

    async def timers() -> None:
        clock.call_later(10, lambda: fired.append("cancelled")).cancel()
        clock.call_later(-1, lambda: fired.append("at once"))
        await asyncio.sleep(5)

    clock.run(timers())
    assert fired == ["at once"]
    assert clock.monotonic() == 5


async def test_it_works_in_its_own_loop_only() -> None:
    clock = SkippingClock()
    with pytest.raises(RuntimeError, match=r"call clock\.run"):
        clock.call_later(1, lambda: None)
    with pytest.raises(RuntimeError, match="running event loop"):
        clock.run(asyncio.sleep(1))
    await asyncio.to_thread(clock.run, asyncio.sleep(1))
    assert clock.monotonic() == 1
