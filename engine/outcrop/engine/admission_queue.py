"""Who has a slot, who waits, and who goes next. Pure: tells each entry its decision, once.

Higher priorities first, then arrival (or, when fair, the tenant with the fewest at work). A
slot for priority p is free while the active runs leave those reserved above p alone. A tenant
at its limit is passed over; a priority without a slot ends the walk (engine.md 9.1).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_REMEMBERED = 1024  # idle tenants, at most


class NotAdmittedReason(StrEnum):
    """Why a run got no slot."""

    QUEUE_FULL = "queue_full"
    SHED = "shed"
    QUEUE_TIMEOUT = "queue_timeout"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    CLOSED = "closed"


@dataclass(eq=False, slots=True)
class Entry:
    """One run; `decide` is told None for a slot, or why there is none."""

    priority: int
    tenant: str | None
    decide: Callable[[NotAdmittedReason | None], None]
    arrival: int = 0
    is_waiting: bool = False
    is_active: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Its place by priority and arrival; the lowest goes first."""
        return (-self.priority, self.arrival)


@dataclass(slots=True, kw_only=True)
class AdmissionQueue:
    """The runs of one scheduler; runs without a tenant count as one tenant that has no limit."""

    max_concurrent: int
    max_queued: int
    reservations: dict[int, int]
    tenant_limit: int | None
    tenant_limits: dict[str, int]
    tenant_max_queued: int | None
    fair: bool
    active: int = 0
    closed: bool = False
    _waiting: list[Entry] = field(default_factory=list[Entry])  # by rank
    _active_of: Counter[str | None] = field(default_factory=Counter["str | None"])
    _queued_of: Counter[str | None] = field(default_factory=Counter["str | None"])
    _last_admitted: dict[str | None, int] = field(default_factory=dict["str | None", int])  # oldest first
    _arrivals: int = 0
    _admissions: int = 0

    @property
    def queued(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def enter(self, entry: Entry) -> None:
        """Queue a newcomer, give out what slots there are, and shed what doesn't fit."""
        if self.closed:
            entry.decide(NotAdmittedReason.CLOSED)
            return
        self._arrivals += 1
        entry.arrival = self._arrivals
        entry.is_waiting = True
        insort(self._waiting, entry, key=lambda one: one.rank)
        self._queued_of[entry.tenant] += 1
        self._dispatch()
        if not entry.is_waiting:
            return
        most, tenant = self.tenant_max_queued, entry.tenant
        if most is not None and tenant is not None and self._queued_of[tenant] > most:
            self.refuse(entry, NotAdmittedReason.QUEUE_FULL)
        elif self.queued > self.max_queued:
            last = self._waiting[-1]
            self.refuse(last, NotAdmittedReason.QUEUE_FULL if last is entry else NotAdmittedReason.SHED)

    def refuse(self, entry: Entry, reason: NotAdmittedReason) -> None:
        """End a wait without a slot; a decision already taken stands."""
        if entry.is_waiting:
            self._unqueue(entry)
            self._forget_idle()
            entry.decide(reason)

    def drop(self, entry: Entry) -> None:
        """Take back the place, or the slot, of a run that nobody waits for; one that has neither is left."""
        if entry.is_waiting:
            self._unqueue(entry)
            self._forget_idle()
        elif entry.is_active:
            entry.is_active = False
            self.active -= 1
            _one_less(self._active_of, entry.tenant)
            self._dispatch()

    def set_tenant_limit(self, tenant: str, limit: int | None) -> None:
        """Change a tenant's own limit."""
        if limit is None:
            self.tenant_limits.pop(tenant, None)
        else:
            self.tenant_limits[tenant] = limit
        self._dispatch()

    def close(self) -> None:
        """Refuse all who wait, and all who come."""
        self.closed = True
        for entry in list(self._waiting):
            self.refuse(entry, NotAdmittedReason.CLOSED)

    def active_of(self, tenant: str) -> int:
        """A tenant's runs at work."""
        return self._active_of[tenant]

    def queued_of(self, tenant: str) -> int:
        """A tenant's runs that wait."""
        return self._queued_of[tenant]

    def tenants(self) -> list[str]:
        """Those with runs, or a limit of their own."""
        known = {*self._queued_of, *self._active_of, *self.tenant_limits}
        return sorted(tenant for tenant in known if tenant is not None)

    def _dispatch(self) -> None:
        while (entry := self._next()) is not None:
            self._unqueue(entry)
            entry.is_active = True
            self.active += 1
            self._active_of[entry.tenant] += 1
            if self.fair:
                self._admissions += 1
                self._last_admitted.pop(entry.tenant, None)
                self._last_admitted[entry.tenant] = self._admissions
            entry.decide(None)
        self._forget_idle()

    def _next(self) -> Entry | None:
        if self.active >= self.max_concurrent:
            return None
        for entry in self._order():
            if not self._has_slot(entry.priority):
                return None
            if not self._is_at_limit(entry.tenant):
                return entry
        return None

    def _order(self) -> Iterable[Entry]:
        return sorted(self._waiting, key=self._fair_rank) if self.fair else self._waiting

    def _fair_rank(self, entry: Entry) -> tuple[int, int, int, int]:
        tenant = entry.tenant
        return (-entry.priority, self._active_of[tenant], self._last_admitted.get(tenant, 0), entry.arrival)

    def _has_slot(self, priority: int) -> bool:
        reserved = sum(slots for above, slots in self.reservations.items() if above > priority)
        return self.active < self.max_concurrent - reserved

    def _is_at_limit(self, tenant: str | None) -> bool:
        if tenant is None:
            return False
        limit = self.tenant_limits.get(tenant, self.tenant_limit)
        return limit is not None and self._active_of[tenant] >= limit

    def _unqueue(self, entry: Entry) -> None:
        entry.is_waiting = False
        self._waiting.remove(entry)
        _one_less(self._queued_of, entry.tenant)

    def _forget_idle(self) -> None:
        """Forget who went longest ago, if idle: back again, it goes before all that are remembered.

        Behind one that is busy for long, idle ones are forgotten together, once they are many.
        """
        while self._last_admitted and not self._is_busy(next(iter(self._last_admitted))):
            del self._last_admitted[next(iter(self._last_admitted))]
        if len(self._last_admitted) > _REMEMBERED + 2 * (len(self._active_of) + len(self._queued_of)):
            busy = {tenant: at for tenant, at in self._last_admitted.items() if self._is_busy(tenant)}
            self._last_admitted = busy

    def _is_busy(self, tenant: str | None) -> bool:
        return tenant in self._active_of or tenant in self._queued_of


def _one_less(counts: Counter[str | None], tenant: str | None) -> None:
    counts[tenant] -= 1
    if not counts[tenant]:
        del counts[tenant]
