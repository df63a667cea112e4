"""The retention driver: purges threads that have been finished for long.

Owns which states count as finished. Every replica may run it: each thread is purged in one
atomic step, and never under a live lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.engine.clock import SystemClock
from outcrop.stores.record import ThreadState

from .purging import purge_in_batches, purge_refusal
from .settings import RetentionSettings

if TYPE_CHECKING:
    from datetime import timedelta

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock
    from outcrop.stores.port import CheckpointRetention

    from .driver import Done

FINISHED: Final = frozenset({ThreadState.COMPLETED, ThreadState.ENDED})
"""What is purged unless told otherwise: threads that nothing can bring on."""

_DEFAULTS = RetentionSettings()


class RetentionDriver:
    """Purges threads last changed longer ago than `settings.older_than`, by `clock`."""

    name = "retention"

    def __init__(
        self,
        store: CheckpointRetention,
        settings: RetentionSettings = _DEFAULTS,
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
        if (refused := purge_refusal("retention", self._settings)) is not None:
            return refused
        known = {state.value for state in ThreadState}
        unknown = (state for state in self._settings.states if state not in known)
        return next(
            (f"the retention driver doesn't know the thread state '{state}'" for state in unknown), None
        )

    async def round(self, stop: CancelToken, done: Done) -> None:
        """Purge in batches, until there is no more."""
        states = frozenset(map(ThreadState, self._settings.states)) or FINISHED
        size = self._settings.batch_size
        await purge_in_batches(
            lambda before: self._store.purge(before, states=states, limit=size),
            self._settings,
            self._clock.now(),
            stop=stop,
            done=done,
        )
