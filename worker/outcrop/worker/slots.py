"""Concurrency slots: how many handlers work at once in this process.

Knows nothing of messages or partitions. A slot is taken before a handler starts and given
back while it only waits, so that a thread waiting out a peer's lease never keeps another
from running. First come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine.cancellation import CancelToken


class Slots:
    """`limit` places, of which each `Slot` holds at most one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: deque[asyncio.Future[bool]] = deque()

    @property
    def taken(self) -> int:
        """How many places are held now."""
        return self.limit - self._free

    async def acquire(self, unless: Sequence[CancelToken] = ()) -> bool:
        """Wait for a place; False, without one, when a token of `unless` fires first."""
        if any(token.fired for token in unless):
            return False
        if self._free:
            self._free -= 1
            return True
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        withdrawals = [token.on_fire(lambda: _settle(place, taken=False)) for token in unless]
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self.release()  # the place came in the moment that the wait was cancelled
            raise
        finally:
            for withdraw in withdrawals:
                withdraw()

    def release(self) -> None:
        """Give a place back, to whoever waits longest."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(True)
                return
        self._free += 1


class Slot:
    """One handler's place among `slots`, held or not; freeing a free one does nothing."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._held = False

    async def take(self, unless: Sequence[CancelToken] = ()) -> None:
        """Hold a place, waiting for one unless a token of `unless` fires."""
        if not self._held:
            self._held = await self._slots.acquire(unless)

    def free(self) -> None:
        """Give the place back if it is held."""
        if self._held:
            self._held = False
            self._slots.release()


def _settle(place: asyncio.Future[bool], *, taken: bool) -> None:
    if not place.done():
        place.set_result(taken)
