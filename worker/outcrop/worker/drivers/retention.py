"""The retention driver: purges threads that have been finished for long.

The engine host's driver, counted. Every replica runs it, whoever owns the threads' partitions:
a purge takes each thread in one atomic step, and none under a live lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.engine import host

if TYPE_CHECKING:
    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock
    from outcrop.stores.port import CheckpointRetention
    from outcrop.worker.metrics import Metrics


class RetentionDriver:
    """Purges what `settings` say, until `stop` fires."""

    def __init__(
        self,
        store: CheckpointRetention,
        settings: host.RetentionSettings,
        *,
        clock: Clock,
        metrics: Metrics,
        stop: CancelToken,
    ) -> None:
        self._driver = host.RetentionDriver(store, settings, clock=clock)
        self._metrics = metrics
        self._stop = stop

    async def round(self) -> None:
        """Purge all there is now; raises as the store does."""
        await self._driver.round(self._stop, self._count)

    def _count(self, purged: int) -> None:
        self._metrics.count("outcrop_threads_purged_total", purged)
