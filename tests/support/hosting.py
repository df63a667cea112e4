"""A host driven by hand: started, moved along by its clock, and stopped."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from outcrop.engine import CancelToken
from outcrop.engine.host import Host

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from outcrop.engine import ManualClock
    from outcrop.engine.host import Driver


async def settle() -> None:
    """Let the loop turn until nothing is left to do but wait."""
    for _ in range(100):
        await asyncio.sleep(0)


async def advance(clock: ManualClock, seconds: float) -> None:
    """Move the clock from timer to timer, and let each have its effects."""
    until = clock.monotonic() + seconds
    await settle()
    while (left := until - clock.monotonic()) > 0:
        due = clock.next_due
        clock.advance(left if due is None else min(left, due))
        await settle()


@asynccontextmanager
async def hosting(drivers: Sequence[Driver], clock: ManualClock) -> AsyncGenerator[Host]:
    """A host that runs these drivers, its first rounds done; stopped at the end, and gone by then."""
    stop, host = CancelToken(), Host(drivers, clock=clock)
    running = asyncio.create_task(host.run(stop))
    await settle()
    try:
        yield host
    finally:
        stop.fire()
        await running
        assert clock.next_due is None
