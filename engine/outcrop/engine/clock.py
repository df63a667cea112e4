"""Time as a port: wall time for rows, monotonic time for leases, timeouts and backoff.

Everything in the engine and the worker that waits asks a `Clock`, so tests and the
simulation drive time by hand (`ManualClock`) and never sleep.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cancellation import CancelToken


class Timer(Protocol):
    """A callback due once; cancelling a fired or cancelled timer does nothing."""

    def cancel(self) -> None:
        """Keep the callback from being called."""
        ...


class Clock(Protocol):
    """Wall and monotonic time, and callbacks due on the latter."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the running event loop, `delay` seconds from now."""
        ...


class SystemClock:
    """The machine's own time; timers belong to the running event loop."""

    def now(self) -> datetime:
        """The machine's wall time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some start, the same in every thread."""
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back on the running event loop, by its own time."""
        return asyncio.get_running_loop().call_later(delay, callback)


@dataclass(slots=True)
class _ManualTimer:
    callback: Callable[[], None] | None

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Time that moves only when told to: `advance` fires what falls due, in order."""

    def __init__(self, now: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) -> None:
        self._now = now
        self._monotonic = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def now(self) -> datetime:
        """The wall time that `advance` has come to."""
        return self._now

    def monotonic(self) -> float:
        """The seconds advanced so far."""
        return self._monotonic

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back inside the `advance` that comes to it."""
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (self._monotonic + max(delay, 0.0), next(self._order), timer))
        return timer

    @property
    def next_due(self) -> float | None:
        """Seconds until the next timer, or None when none is pending."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] - self._monotonic if self._timers else None

    def advance(self, seconds: float) -> None:
        """Move both times forward, firing due timers at their own instants."""
        target = self._monotonic + seconds
        while (due := self.next_due) is not None and self._monotonic + due <= target:
            self._move(self._timers[0][0])
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()
        self._move(target)

    def _move(self, monotonic: float) -> None:
        self._now += timedelta(seconds=monotonic - self._monotonic)
        self._monotonic = monotonic


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait `seconds` of the clock's monotonic time; no wait at all for zero or less."""
    if seconds <= 0:
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        timer.cancel()


async def pause(clock: Clock, seconds: float, token: CancelToken) -> None:
    """Sleep, or until the token fires."""
    if seconds <= 0 or token.fired:
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    withdraw, timer = token.on_fire(wake), clock.call_later(seconds, wake)
    try:
        await done
    finally:
        withdraw()
        timer.cancel()
