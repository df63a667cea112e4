"""The timeout of the Redis connection's waits."""

from __future__ import annotations

import asyncio

import pytest

from outcrop.stores.redis.patience import Patience


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_wait_that_is_over_its_time_ends() -> None:
    """Also after a longer one, whose timer is still set; and the task goes on uncancelled."""
    patience = Patience()
    with patience.within(60):
        await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(TimeoutError), patience.within(0.01):
            await never()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    patience.close()


async def test_a_renewed_wait_goes_on() -> None:
    patience, came = Patience(), 0

    async def wait() -> None:
        nonlocal came
        with patience.within(0.2):
            for _ in range(3):
                await asyncio.sleep(0.12)
                came += 1
                patience.renew()
            await never()

    with pytest.raises(TimeoutError):
        await wait()
    assert came == 3


async def test_a_wait_is_not_ended_by_the_timer_of_one_before() -> None:
    patience = Patience()
    with patience.within(0.05):
        await asyncio.sleep(0)
    await asyncio.sleep(0.03)
    with patience.within(0.2):
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.2)  # nothing waits when it fires
    patience.close()


async def test_a_cancelled_wait_stays_cancelled() -> None:
    patience = Patience()

    async def wait() -> None:
        with patience.within(60):
            await never()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    patience.close()
