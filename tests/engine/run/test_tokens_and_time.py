"""The small ports that runs stand on: cancel tokens, clocks, and a store that takes its time."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    CancelReason,
    CancelToken,
    Completed,
    Failed,
    ManualClock,
    RunOptions,
    SystemClock,
    Transient,
)
from outcrop.engine.clock import sleep
from support.engine import EVERY_NODE, LEASED, Doc, World


def test_a_token_fires_once_with_its_first_reason() -> None:
    token, calls = CancelToken(), list[str]()
    token.on_fire(lambda: calls.append("first"))
    withdraw = token.on_fire(lambda: calls.append("withdrawn"))
    withdraw()
    token.fire(CancelReason.DEADLINE, cause="why")
    token.fire(CancelReason.REQUESTED)
    token.on_fire(lambda: calls.append("late"))()
    assert (token.fired, token.reason, token.cause) == (True, CancelReason.DEADLINE, "why")
    assert calls == ["first", "late"]


def test_children_fire_with_their_parent_and_not_the_other_way() -> None:
    parent = CancelToken()
    one, two = CancelToken(parent), CancelToken(parent)
    one.fire()
    assert not parent.fired
    parent.fire(CancelReason.DEADLINE, cause=7)
    assert (one.reason, two.reason, two.cause) == (CancelReason.REQUESTED, CancelReason.DEADLINE, 7)


async def test_waiting_for_a_token() -> None:
    token = CancelToken()
    waiting = asyncio.create_task(token.wait())
    await asyncio.sleep(0)
    token.fire()
    await waiting
    await token.wait()


async def test_an_abandoned_wait_leaves_nothing_behind() -> None:
    token = CancelToken()
    waiting = asyncio.create_task(token.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert token._callbacks == {}


def test_manual_time_fires_timers_at_their_own_instants_in_order() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    seen = list[tuple[str, float]]()
    clock.call_later(2, lambda: seen.append(("b", clock.monotonic())))

    def nest() -> None:
        clock.call_later(0.5, lambda: seen.append(("nested", clock.monotonic())))

    clock.call_later(1, nest)
    clock.call_later(2, lambda: seen.append(("c", clock.monotonic())))
    clock.call_later(1, lambda: seen.append(("cancelled", 0))).cancel()
    before = clock.next_due
    clock.advance(5)
    assert seen == [("nested", 1.5), ("b", 2), ("c", 2)]
    assert before == 1
    assert (clock.now(), clock.next_due) == (datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC), None)


async def test_sleeping_by_a_clock() -> None:
    clock = ManualClock()
    await sleep(clock, 0)
    asleep = asyncio.create_task(sleep(clock, 3))
    await asyncio.sleep(0)
    clock.advance(2.9)
    await asyncio.sleep(0)
    assert not asleep.done()
    clock.advance(0.2)
    await asleep


async def test_system_time() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
    await sleep(clock, 0.001)


@pytest.mark.parametrize("lease", [None, LEASED.lease])
async def test_a_store_that_really_suspends_changes_nothing(lease: Any) -> None:
    """B015: every save point waits for it."""
    world = World()

    def suspending(call: Any) -> Any:
        async def wait(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            answer = await call(*args, **kwargs)
            await asyncio.sleep(0)
            return answer

        return wait

    for method in ("save", "load", "acquire_lease", "release_lease"):
        setattr(world.store, method, suspending(getattr(world.store, method)))
    graph = world.graph("a")
    world.failing(graph, "b", Transient("no", retry_after=1))
    graph.edge("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    options = LEASED if lease else RunOptions()
    await threads.run("t", Doc(), options)
    assert isinstance(await threads.resume("t", Answer(), options), Failed)
    assert isinstance(await threads.resume("t", Answer(), options), Completed)
    assert await world.log() == [
        "running:->a", "interrupted:a>b", "running:a>b", "failed:b>b", "running:b>b", "completed:b>-",
    ]  # fmt: skip


@pytest.mark.parametrize("hint", [math.inf, math.nan])
async def test_a_hint_without_end_is_no_hint(hint: float) -> None:
    world = World()
    graph = world.graph()
    world.failing(graph, "a", Transient("no", retry_after=hint))
    assert isinstance(await world.threads(graph.compile()).run("t", Doc()), Failed)
    assert "strata.retry_after_ms" not in ((await world.last()).metadata or {})


async def test_a_deadline_far_away_is_harmless() -> None:
    world = World()
    _, threads = world.line("a")
    options = RunOptions(deadline=world.clock.now() + timedelta(days=36500))
    assert isinstance(await threads.run("t", Doc(), options), Completed)
