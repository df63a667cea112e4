"""The recovery driver: continues a graph's threads whose run died.

Owns how often a round repeats its sweep, and what must be there for a dead run to be told
from a live one; the sweep is `Threads.recover_stale`. Every replica may run it: a recovery
claims its thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.engine.options import CheckpointPolicy, RunOptions
from outcrop.engine.recovery import RecoverOptions, recover_refusal

from .driver import check_sweep, schedule_refusal
from .settings import RecoverySettings

if TYPE_CHECKING:
    from datetime import timedelta

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.threads import Threads

    from .driver import Done

S = TypeVar("S")

_DEFAULTS = RecoverySettings()
_RUN_DEFAULTS = RunOptions()


class RecoveryDriver(Generic[S]):
    """Recovers what is dead; each thread goes on with the options `runs`."""

    def __init__(
        self,
        threads: Threads[S],
        settings: RecoverySettings = _DEFAULTS,
        *,
        runs: RunOptions = _RUN_DEFAULTS,
    ) -> None:
        self._threads = threads
        self._settings = settings
        self._runs = runs

    @property
    def name(self) -> str:
        """`recovery:` and the state type."""
        return f"recovery:{self._threads.graph.states.type_name}"

    @property
    def interval(self) -> timedelta:
        """As set."""
        return self._settings.interval

    def refusal(self) -> str | None:
        """See `Driver`."""
        settings, graph = self._settings, self._threads.graph
        if (refused := schedule_refusal("recovery", settings.interval, settings.batch_size)) is not None:
            return refused
        if graph.policy is not CheckpointPolicy.EVERY_NODE:
            return (
                f"the recovery driver for {graph.states.type_name} needs a graph compiled with "
                "CheckpointPolicy::EveryNode: without it no row says where a dead run was"
            )
        if self._runs.lease is None and not settings.stale_after:
            return (
                "the recovery driver needs a lease in its run config or a stale_after: "
                "without leases only the age of a running checkpoint says its run died"
            )
        return recover_refusal(self._threads, self._options(None))

    async def round(self, stop: CancelToken, done: Done) -> None:
        """Recover in batches, while one was full."""
        while not stop.fired:
            report = await self._threads.recover_stale(self._options(stop))
            done(len(report.recovered))
            check_sweep(report)
            if len(report.recovered) < self._settings.batch_size:
                return

    def _options(self, stop: CancelToken | None) -> RecoverOptions:
        settings = self._settings
        return RecoverOptions(
            stale_after=settings.stale_after,
            max_recoveries=settings.max_recoveries,
            metadata=settings.metadata,
            limit=settings.batch_size,
            match_graph=settings.match_graph,
            options=self._runs,
            stop=stop,
        )
