"""Holding a thread's lease while a run works: acquired once, renewed aside, released at the end.

Owns when a lease counts as lost: the store says another holds it, or no renewal succeeded
for a whole ttl of local monotonic time. Knows no rows: saves are fenced by the store.

Renewing is a port. `thread_renewer` renews on a thread of its own, so that a node that
blocks the event loop can't lose a lease; `LoopRenewer` runs on the loop and a `Clock`, for
tests and the simulation.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from outcrop.stores.port import Acquired

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from outcrop.stores.port import Held, LeaseStore, NotLatest
    from outcrop.stores.record import Lease

    from .clock import Clock, Timer
    from .options import LeaseOptions

MIN_INTERVAL = 0.001


class Renewal(Protocol):
    """One lease being renewed."""

    @property
    def renewed_at(self) -> float:
        """Monotonic time at which the last renewal that succeeded was asked for."""
        ...

    def drop(self) -> None:
        """Start no renewal any more; idempotent."""
        ...

    async def stop(self) -> None:
        """Drop, and return once a renewal in flight is over."""
        ...


class LeaseRenewer(Protocol):
    """Renews leases every third of their ttl until they are stopped or lost."""

    def hold(
        self, leases: LeaseStore, lease: Lease, ttl: timedelta, *, since: float, on_lost: Callable[[], None]
    ) -> Renewal:
        """Renew `lease`, acquired at the monotonic time `since`, until it is stopped.

        `on_lost` is called once at most, on the event loop that called `hold`, when the
        store says that the lease is another's or no renewal has succeeded for a ttl.
        """
        ...


class Tenure:
    """A run's hold on its thread: the lease, and whether it still stands."""

    __slots__ = ("_clock", "_freed_at", "_leases", "_renewal", "lease", "lost", "ttl")

    def __init__(self, leases: LeaseStore, lease: Lease, ttl: float, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self._renewal: Renewal | None = None
        self._freed_at: float | None = None
        self.lease = lease
        self.ttl = ttl
        self.lost = False

    def renew_by(
        self, renewer: LeaseRenewer, ttl: timedelta, since: float, on_lost: Callable[[], None]
    ) -> None:
        """Have the lease renewed; `on_lost` follows `lost`."""

        def lose() -> None:
            self.lost = True
            on_lost()

        self._renewal = renewer.hold(self._leases, self.lease, ttl, since=since, on_lost=lose)

    @property
    def renewed_at(self) -> float:
        """Monotonic time at which the last renewal that succeeded was asked for."""
        return -math.inf if self._renewal is None else self._renewal.renewed_at

    @property
    def remaining(self) -> float:
        """Seconds for which the lease surely stands, by the local monotonic clock."""
        return self.renewed_at + self.ttl - self._clock.monotonic()

    @property
    def stands(self) -> bool:
        """Whether the run may still work: not lost, and renewed within the last ttl.

        A process that was stopped and continued finds out here, before its renewer does.
        """
        if not self.lost and self.remaining <= 0:
            self.lost = True
        return not self.lost

    def drop(self) -> None:
        """Stop renewing and leave the lease to expire: the run was dropped."""
        if self._renewal is not None:
            self._renewal.drop()

    def freed(self, renewed_at: float) -> None:
        """Note that a save freed the thread; `renewed_at` was the last renewal before it."""
        self._freed_at = renewed_at

    async def release(self) -> None:
        """Stop renewing and free the thread, unless the lease is lost; errors don't matter."""
        if self.lost:
            self.drop()  # a renewal in flight may hang, and has nothing to tell any more
            return
        if self._renewal is not None:
            await self._renewal.stop()
        if self._freed_at == self.renewed_at:
            return  # the last save freed it, and no renewal has taken it again since
        with suppress(Exception):  # it expires by itself
            await self._leases.release_lease(self.lease)


async def take_lease(
    leases: LeaseStore,
    thread_id: str,
    options: LeaseOptions,
    *,
    clock: Clock,
    renewer: LeaseRenewer,
    on_lost: Callable[[], None],
    expected: int | None = None,
) -> Tenure | Held | NotLatest:
    """Acquire the thread's lease and have it renewed, or tell what speaks against it; raises as the store.

    With `expected`, only while the thread's log ends there.
    """
    since = clock.monotonic()
    answer = await leases.acquire_lease(thread_id, options.owner, options.ttl, expected=expected)
    if not isinstance(answer, Acquired):
        return answer
    tenure = Tenure(leases, answer.lease, options.ttl.total_seconds(), clock)
    tenure.renew_by(renewer, options.ttl, since, on_lost)
    return tenure


@dataclass(slots=True, eq=False)
class Hold:
    """One lease to renew, as every renewer keeps it."""

    leases: LeaseStore
    lease: Lease
    ttl: timedelta
    renewed_at: float
    on_lost: Callable[[], None]

    @property
    def interval(self) -> float:
        """Seconds between renewals."""
        return max(self.ttl.total_seconds() / 3, MIN_INTERVAL)

    def may_stand(self, now: float) -> bool:
        """Whether a ttl has yet to pass since the last renewal that succeeded."""
        return now - self.renewed_at < self.ttl.total_seconds()

    async def renew(self, leases: LeaseStore, clock: Clock) -> bool:
        """Ask once; False when the lease is lost."""
        asked_at = clock.monotonic()
        try:
            renewed = await leases.renew_lease(self.lease, self.ttl)
        except Exception:  # noqa: BLE001 - whatever failed, the lease stands until its ttl is over
            return self.may_stand(clock.monotonic())
        if renewed is None:
            return False
        self.renewed_at = asked_at
        return True


class LoopRenewer:
    """Renews on the running event loop, by the given clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def hold(
        self, leases: LeaseStore, lease: Lease, ttl: timedelta, *, since: float, on_lost: Callable[[], None]
    ) -> Renewal:
        """Renew the lease until it is stopped; `since` is on the clock's monotonic time."""
        held = _LoopRenewal(Hold(leases, lease, ttl, since, on_lost), self._clock)
        held.schedule()
        return held


class _LoopRenewal:
    def __init__(self, hold: Hold, clock: Clock) -> None:
        self._hold = hold
        self._clock = clock
        self._stopped = False
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def renewed_at(self) -> float:
        return self._hold.renewed_at

    def schedule(self) -> None:
        self._timer = self._clock.call_later(self._hold.interval, self._begin)

    def drop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def stop(self) -> None:
        self.drop()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        kept = await self._hold.renew(self._hold.leases, self._clock)
        if self._stopped:
            return
        if kept:
            self.schedule()
        else:
            self._stopped = True
            self._hold.on_lost()
