"""The wake driver: finds timers and timeouts that are due.

The backstop of the local timers (`due`): it also finds what another worker left. Every replica
runs it; the claim under the thread's lease makes a second command do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.query import MAX_PAGE, ThreadQuery
from outcrop.stores.record import ThreadState

from .dispatch import Sighting
from .unreadable import Unreadable

if TYPE_CHECKING:
    from outcrop.engine.clock import Clock
    from outcrop.stores.port import CheckpointQuery
    from outcrop.worker.registry import Registry

    from .dispatch import Dispatch


class WakeDriver:
    """Sends a `wake` for each due thread of this worker's graphs and partitions."""

    def __init__(
        self, store: CheckpointQuery, registry: Registry, dispatch: Dispatch, *, clock: Clock
    ) -> None:
        self._store = store
        self._registry = registry
        self._dispatch = dispatch
        self._clock = clock
        self._unreadable = Unreadable("wake")

    async def round(self) -> None:
        """Look at all due threads once; raises as the store and the outbox do."""
        now, cursor, is_first = self._clock.now(), None, True
        while is_first or cursor is not None:
            query = ThreadQuery(
                states=frozenset({ThreadState.INTERRUPTED}), due_by=now, limit=MAX_PAGE, cursor=cursor
            )
            page = await self._store.list_threads(query)
            self._unreadable.tell(page.unreadable)
            await self._dispatch.send(
                Sighting(thread.thread_id, thread.sequence)
                for thread in page.threads
                if self._registry.serves(thread.graph)
            )
            cursor, is_first = page.next_cursor, False
