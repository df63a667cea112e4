"""Due times of threads that stopped here, kept in memory so that a timer fires on its second.

Owns a heap of due times and one timer for the soonest. Knows no store: what it forgets (a crash, a
full heap, a command that couldn't be sent) the wake driver finds. What it sends for a thread
that has moved on is dropped by whoever handles it.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final

from outcrop.stores.instants import parse_instant

from .drivers.dispatch import Sighting
from .logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from outcrop.engine.clock import Clock, Timer
    from outcrop.stores.record import Row

    from .drivers.dispatch import Dispatch

LONGEST_SLEEP: Final = 60.0
"""Seconds after which the wall clock is looked at again, since it may have been set."""


class DueTimers:
    """Sends a `wake` when a thread that stopped here is due; keeps `limit` of them at most."""

    def __init__(self, dispatch: Dispatch, clock: Clock, *, limit: int = 100_000) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._limit = limit
        self._heap: list[tuple[datetime, Sighting]] = []
        self._latest: dict[str, int] = {}
        self._timer: Timer | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._log = EventLog("due")

    def add(self, row: Row) -> None:
        """Note a row that waits for a time; an earlier one of its thread counts no more."""
        wait = row.checkpoint.innermost.wait
        if wait is None or wait.wake_at is None or len(self._heap) >= self._limit:
            return
        sighting = Sighting(row.checkpoint.thread_id, row.sequence)
        if self._latest.get(sighting.thread_id, -1) >= sighting.sequence:
            return
        self._latest[sighting.thread_id] = sighting.sequence
        heapq.heappush(self._heap, (parse_instant(wait.wake_at), sighting))
        self._arm()

    async def close(self) -> None:
        """Fire nothing any more, and let what is being sent be sent."""
        self._heap.clear()
        self._arm()
        await asyncio.gather(*self._sending)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            left = (self._heap[0][0] - self._clock.now()).total_seconds()
            self._timer = self._clock.call_later(min(max(left, 0.0), LONGEST_SLEEP), self._fire)

    def _fire(self) -> None:
        now = self._clock.now()
        due: list[Sighting] = []
        while self._heap and self._heap[0][0] <= now:
            sighting = heapq.heappop(self._heap)[1]
            if self._latest.get(sighting.thread_id) == sighting.sequence:
                del self._latest[sighting.thread_id]
                due.append(sighting)
        self._arm()
        if due:
            task = asyncio.get_running_loop().create_task(self._send(due))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, due: Sequence[Sighting]) -> None:
        try:
            await self._dispatch.send(due)
        except Exception as error:  # noqa: BLE001 - the wake driver finds them
            self._log.warning("wake_not_sent", count=len(due), error=type(error).__name__)
