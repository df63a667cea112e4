"""The loop that every driver runs in: a round at start, then one every interval.

Owns the waits between rounds. Knows nothing of what a round does. Invariant: a round that fails
doubles the wait, up to five minutes, and never stops the worker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from outcrop.worker.logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock
    from outcrop.worker.metrics import Metrics

LONGEST_WAIT: Final = 300.0
"""Seconds between rounds, however often they failed."""

_JITTER: Final = 0.1


class Rounds:
    """Calls `once` in rounds; `uniform` draws from [0, 1) and spreads the replicas' rounds."""

    def __init__(
        self,
        driver: str,
        once: Callable[[], Awaitable[None]],
        *,
        interval: timedelta,
        clock: Clock,
        uniform: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._driver = driver
        self._once = once
        self._interval = interval.total_seconds()
        self._clock = clock
        self._uniform = uniform
        self._metrics = metrics
        self._log = EventLog("drivers").bind(driver=driver)

    async def run(self, stop: CancelToken) -> None:
        """Run rounds until `stop` fires; a round that has begun is finished."""
        failures = 0
        while not stop.fired:
            failures = 0 if await self._round() else failures + 1
            await _wait(self._clock, self._delay(failures), stop)

    async def _round(self) -> bool:
        try:
            await self._once()
        except Exception as error:  # noqa: BLE001 - whatever failed, the next round may do
            self._metrics.count("outcrop_driver_rounds_total", driver=self._driver, result="failed")
            self._log.warning("round_failed", error=type(error).__name__)
            return False
        self._metrics.count("outcrop_driver_rounds_total", driver=self._driver, result="ok")
        return True

    def _delay(self, failures: int) -> float:
        spread = 1 - _JITTER + 2 * _JITTER * self._uniform()
        longest = max(LONGEST_WAIT, self._interval)
        return min(self._interval * spread * 2.0 ** min(failures, 30), longest)


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
