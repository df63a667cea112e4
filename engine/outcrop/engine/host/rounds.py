"""The loop that every driver runs in: a round at start, then one every interval.

Owns the waits between rounds. Knows nothing of what a round does. Invariant: a round that
fails doubles the wait, up to five minutes, and never ends the loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from outcrop.engine.cancellation import is_dropped, task_cancels

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock

LONGEST_WAIT: Final = 300.0
"""Seconds between rounds, however often they failed; a longer interval stays as it is."""

_MOST_DOUBLINGS: Final = 30


def wait_after(failures: int, interval: float) -> float:
    """Seconds to wait after that many failed rounds in a row. Pure."""
    return min(interval * 2.0 ** min(failures, _MOST_DOUBLINGS), max(LONGEST_WAIT, interval))


async def run_rounds(
    once: Callable[[], Awaitable[None]],
    *,
    interval: Callable[[], float],
    clock: Clock,
    stop: CancelToken,
    told: Callable[[BaseException | None, float], None],
) -> None:
    """Call `once` in rounds until `stop` fires; a round that has begun is finished.

    `interval` is asked for its seconds after each round, so that it may be spread. `told`
    hears how each round ended, with None for well, and the seconds until the next.
    """
    failures = 0
    while not stop.fired:
        failure = await _failure_of(once)
        failures = 0 if failure is None else failures + 1
        wait = wait_after(failures, interval())
        told(failure, wait)
        await _wait(clock, wait, stop)


async def _failure_of(once: Callable[[], Awaitable[None]]) -> BaseException | None:
    """What the round failed with, or None; raises only what ends the whole program or task."""
    cancels = task_cancels()
    try:
        await once()
    except Exception as error:  # noqa: BLE001 - whatever failed, the next round may do
        return error
    except asyncio.CancelledError as error:  # of something that the round waited for, or of us
        if is_dropped(error, cancels):
            raise
        return error
    return None


async def _wait(clock: Clock, seconds: float, stop: CancelToken) -> None:
    """Wait, or until `stop` fires."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    withdraw, timer = stop.on_fire(settle), clock.call_later(seconds, settle)
    try:
        await done
    finally:
        timer.cancel()
        withdraw()
