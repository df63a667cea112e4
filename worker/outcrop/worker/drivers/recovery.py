"""The recovery driver: finds `running` threads that nobody runs.

A thread is dead when no live lease holds it. One that was recovered too often without a node
committing is reported, not recovered: its node would kill one worker after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.engine.metadata import RECOVERIES
from outcrop.stores.query import MAX_PAGE, ThreadQuery
from outcrop.stores.record import ThreadState
from outcrop.worker.logs import EventLog

from .dispatch import Sighting
from .unreadable import Unreadable

if TYPE_CHECKING:
    from outcrop.stores.port import Store
    from outcrop.stores.query import ThreadSummary
    from outcrop.worker.metrics import Metrics
    from outcrop.worker.registry import Registry

    from .dispatch import Dispatch

_LONGEST_COUNT = 19


class RecoveryDriver:
    """Sends a `recover` for each dead thread of this worker's graphs and partitions."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        dispatch: Dispatch,
        *,
        max_recoveries: int,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._registry = registry
        self._dispatch = dispatch
        self._max_recoveries = max_recoveries
        self._metrics = metrics
        self._log = EventLog("drivers").bind(driver="recovery")
        self._unreadable = Unreadable("recovery")
        self._reported: frozenset[Sighting] = frozenset()

    async def round(self) -> None:
        """Look at all running threads once; raises as the store and the outbox do."""
        exhausted: set[Sighting] = set()
        cursor, is_first = None, True
        while is_first or cursor is not None:
            query = ThreadQuery(states=frozenset({ThreadState.RUNNING}), limit=MAX_PAGE, cursor=cursor)
            page = await self._store.list_threads(query)
            self._unreadable.tell(page.unreadable)
            await self._dispatch.send(await self._dead(page.threads, exhausted))
            cursor, is_first = page.next_cursor, False
        self._report(exhausted)

    async def _dead(self, threads: tuple[ThreadSummary, ...], exhausted: set[Sighting]) -> list[Sighting]:
        """Which of these to recover; those that may not be are added to `exhausted`."""
        dead: list[Sighting] = []
        for thread in threads:
            sighting = Sighting(thread.thread_id, thread.sequence)
            if not (self._registry.serves(thread.graph) and self._dispatch.wants(sighting)):
                continue
            if await self._store.get_lease(thread.thread_id) is not None:
                continue
            (exhausted.add if _recoveries(thread) >= self._max_recoveries else dead.append)(sighting)
        return dead

    def _report(self, exhausted: set[Sighting]) -> None:
        self._metrics.gauge("outcrop_recoveries_exhausted", len(exhausted))
        for sighting in sorted(exhausted - self._reported):
            self._log.error("recoveries_exhausted", thread=sighting.thread_id, sequence=sighting.sequence)
        self._reported = frozenset(exhausted)


def _recoveries(thread: ThreadSummary) -> int:
    told = thread.metadata.get(RECOVERIES, "")
    return int(told) if told.isascii() and told.isdigit() and len(told) <= _LONGEST_COUNT else 0
