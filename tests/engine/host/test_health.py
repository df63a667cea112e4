"""Whether the store answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from outcrop.engine.host import Health, check_health
from outcrop.stores.errors import Unavailable
from support.engine import World
from support.hosting import settle

if TYPE_CHECKING:
    from outcrop.stores.port import CheckpointStore
    from outcrop.stores.record import Row

SECOND = timedelta(seconds=1)


async def test_a_store_that_answers_is_healthy_and_nothing_is_written() -> None:
    """O9."""
    world = World()
    assert await check_health(world.store, SECOND, clock=world.clock) == Health(latency=timedelta())
    assert world.store.faults.calls == {"load": 1}
    assert await world.memory.load("strata.health") is None
    health = await check_health(world.store, SECOND)
    assert health.healthy
    assert health.latency is not None


async def test_a_store_that_fails_says_why() -> None:
    """O9."""
    world = World()
    world.store.fail("load", Unavailable("the database is locked"))
    health = await check_health(world.store, SECOND, clock=world.clock)
    assert (health.healthy, health.reason) == (False, "the database is locked")


class Hanging:
    """A store that doesn't answer, and fails when it is told not to any more."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.cancelled = False

    async def load(self, _thread_id: str) -> Row | None:
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise Unavailable("too late") from None
        return None


@pytest.mark.parametrize(
    ("limit", "told"),
    [(timedelta(milliseconds=200), "200ms"), (SECOND, "1s"), (timedelta(seconds=1.5), "1.5s")],
)
async def test_a_store_that_hangs_is_given_up_on_in_time(limit: timedelta, told: str) -> None:
    """O9."""
    world, store = World(), Hanging()
    asked = asyncio.create_task(
        check_health(cast("CheckpointStore", cast("Any", store)), limit, clock=world.clock)
    )
    await settle()
    world.clock.advance(limit.total_seconds() - 0.01)
    await settle()
    assert not asked.done()
    world.clock.advance(0.01)
    assert await asked == Health(reason=f"no answer within {told}")
    await settle()
    assert store.cancelled
