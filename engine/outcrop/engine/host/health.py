"""Whether the store answers, for a program's health endpoint.

Loads a thread that there never is, so nothing is written and nothing of anybody's is read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from outcrop.engine.clock import SystemClock, sleep

if TYPE_CHECKING:
    from outcrop.engine.clock import Clock
    from outcrop.stores.port import CheckpointStore
    from outcrop.stores.record import Row

PROBED: Final = "strata.health"
"""The thread that is asked for."""


@dataclass(frozen=True, slots=True)
class Health:
    """How soon the store answered, or why it isn't healthy.

    The reason may be the store's own message: for the people who run it, not for the public.
    """

    latency: timedelta | None = None
    reason: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether it answered."""
        return self.reason is None


async def check_health(store: CheckpointStore, timeout: timedelta, *, clock: Clock | None = None) -> Health:  # noqa: ASYNC109 - by the clock's time, and an answer instead of an error
    """Ask the store once, and wait at most `timeout` for its answer. Raises nothing of the store's."""
    clock = clock or SystemClock()
    asked = clock.monotonic()
    answer = asyncio.ensure_future(store.load(PROBED))
    timer = asyncio.ensure_future(sleep(clock, timeout.total_seconds()))
    try:
        await asyncio.wait((answer, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        if not answer.done():
            answer.cancel()
            answer.add_done_callback(_ignored)
    if not answer.done():
        return Health(reason=f"no answer within {_told(timeout)}")
    if answer.cancelled():
        return Health(reason="the store gave up on its own call")
    if (error := answer.exception()) is not None:
        return Health(reason=str(error))
    return Health(latency=timedelta(seconds=clock.monotonic() - asked))


def _ignored(answer: asyncio.Future[Row | None]) -> None:
    """Take an error that comes too late, which nobody waits for any more."""
    if not answer.cancelled():
        answer.exception()


def _told(timeout: timedelta) -> str:
    seconds = timeout.total_seconds()
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
