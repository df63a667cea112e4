"""The wake driver: fires the timers and timeouts of a graph's threads that are due.

Owns how often a round repeats its sweep; the sweep is `Threads.wake_due`. Every replica may
run it: a wake is saved only if its thread hasn't changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.engine.driven import driver_refusal
from outcrop.engine.options import RunOptions
from outcrop.engine.wake import WakeOptions

from .driver import check_sweep, schedule_refusal
from .settings import WakeSettings

if TYPE_CHECKING:
    from datetime import timedelta

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.threads import Threads

    from .driver import Done

S = TypeVar("S")

_DEFAULTS = WakeSettings()
_RUN_DEFAULTS = RunOptions()


class WakeDriver(Generic[S]):
    """Wakes what is due; each thread goes on with the options `runs`."""

    def __init__(
        self, threads: Threads[S], settings: WakeSettings = _DEFAULTS, *, runs: RunOptions = _RUN_DEFAULTS
    ) -> None:
        self._threads = threads
        self._settings = settings
        self._runs = runs

    @property
    def name(self) -> str:
        """`wake:` and the state type."""
        return f"wake:{self._threads.graph.states.type_name}"

    @property
    def interval(self) -> timedelta:
        """As set."""
        return self._settings.interval

    def refusal(self) -> str | None:
        """See `Driver`."""
        size = self._settings.batch_size
        return schedule_refusal("wake", self.interval, size) or driver_refusal(size, None, self._runs)

    async def round(self, stop: CancelToken, done: Done) -> None:
        """Wake in batches, while one was full and woke something."""
        settings = self._settings
        while not stop.fired:
            options = WakeOptions(
                metadata=settings.metadata,
                limit=settings.batch_size,
                match_graph=settings.match_graph,
                options=self._runs,
                stop=stop,
            )
            report = await self._threads.wake_due(options)
            done(len(report.woken))
            check_sweep(report)
            if not report.woken or report.handled < settings.batch_size:
                return
