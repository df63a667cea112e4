"""The drivers' rounds as a worker runs them: counted, logged, and spread over the replicas.

The loop itself is the engine host's; here is only what a worker adds to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.engine.host import run_rounds
from outcrop.worker.logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock
    from outcrop.worker.metrics import Metrics

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
        await run_rounds(self._once, interval=self._spread, clock=self._clock, stop=stop, told=self._told)

    def _told(self, failure: BaseException | None, _wait: float) -> None:
        result = "ok" if failure is None else "failed"
        self._metrics.count("outcrop_driver_rounds_total", driver=self._driver, result=result)
        if failure is not None:
            self._log.warning("round_failed", error=type(failure).__name__)

    def _spread(self) -> float:
        return self._interval * (1 - _JITTER + 2 * _JITTER * self._uniform())
