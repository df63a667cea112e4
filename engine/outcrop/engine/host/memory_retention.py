"""The memory retention driver: purges old records of the long-term memory store.

Every replica may run it: a record is deleted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.engine.clock import SystemClock
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.longterm.checks import check_purge
from outcrop.stores.longterm.record import Purge

from .purging import purge_in_batches, purge_refusal
from .settings import MemoryRetentionSettings

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock
    from outcrop.stores.longterm.port import LongTermRetention

    from .driver import Done

_DEFAULTS = MemoryRetentionSettings()


class MemoryRetentionDriver:
    """Purges records last written longer ago than `settings.older_than`, by `clock`."""

    name = "memory-retention"

    def __init__(
        self,
        store: LongTermRetention,
        settings: MemoryRetentionSettings = _DEFAULTS,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock or SystemClock()

    @property
    def interval(self) -> timedelta:
        """As set."""
        return self._settings.interval

    def refusal(self) -> str | None:
        """See `Driver`."""
        if (refused := purge_refusal("memory retention", self._settings)) is not None:
            return refused
        try:
            check_purge(self._purge(self._clock.now()))
        except InvalidRequest as error:
            return f"the memory retention driver: {error}"
        return None

    async def round(self, stop: CancelToken, done: Done) -> None:
        """Purge in batches, until there is no more."""
        await purge_in_batches(
            lambda before: self._store.purge(self._purge(before)),
            self._settings,
            self._clock.now(),
            stop=stop,
            done=done,
        )

    def _purge(self, before: datetime) -> Purge:
        settings = self._settings
        return Purge(
            older_than=before,
            namespace=settings.namespace,
            tenant=settings.tenant,
            limit=settings.batch_size,
        )
