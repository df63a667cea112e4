"""Telling of threads whose latest row can't be read: each row once, for somebody to look after.

Nothing is done to them, and they keep no other thread from its wake or recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.worker.logs import EventLog

from .dispatch import Sighting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outcrop.stores.query import UnreadableThread


class Unreadable:
    """What one driver has told of."""

    def __init__(self, driver: str) -> None:
        self._log = EventLog("drivers").bind(driver=driver)
        self._told: set[Sighting] = set()

    def tell(self, threads: Iterable[UnreadableThread]) -> None:
        """Log the rows that weren't told before."""
        for thread in threads:
            sighting = Sighting(thread.thread_id, thread.sequence)
            if sighting not in self._told:
                self._told.add(sighting)
                self._log.error(
                    "row_unreadable",
                    thread=thread.thread_id,
                    sequence=thread.sequence,
                    reason=thread.reason,
                )
