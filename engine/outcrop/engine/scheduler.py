"""Which runs of this process may work, and in which order the others wait: admission.

Owns limits, priorities, reservations and tenants (engine.md 9.1), as a queue that decides and
a shell that waits. Asked before a run loads or writes anything; a run's groups, maps and
subgraphs share its slot.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, Self

from .admission_queue import AdmissionQueue, Entry, NotAdmittedReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from types import TracebackType

    from .cancellation import CancelToken
    from .clock import Clock
    from .options import RunOptions

_log = logging.getLogger(__name__)

_WHY = {
    NotAdmittedReason.QUEUE_FULL: "the scheduler's queue is full",
    NotAdmittedReason.SHED: "shed from the scheduler's queue for a higher-priority run",
    NotAdmittedReason.QUEUE_TIMEOUT: "no slot within the scheduler's longest wait",
    NotAdmittedReason.CANCELLED: "cancelled while waiting for a slot",
    NotAdmittedReason.DEADLINE: "its deadline passed while it waited for a slot",
    NotAdmittedReason.CLOSED: "the scheduler is closed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """How many runs work at once, and who goes first.

    `reservations` keep slots for a priority and above, as {priority: slots}. A tenant is the
    run metadata at `tenant_key`; at most `tenant_limit` of one work at once (0 pauses it),
    `tenant_limits` names exceptions, and at most `tenant_max_queued` of one wait. `fair` lets
    the tenant with the fewest runs at work go first among waiting runs of one priority; without
    it they go in the order they came.

    Raises ValueError for options that make no sense.
    """

    name: str = "default"
    max_concurrent: int = 16
    max_queued: int = 1024
    max_queue_time: timedelta | None = None
    reservations: Mapping[int, int] = field(default_factory=dict[int, int])
    tenant_key: str = "tenant"
    tenant_limit: int | None = None
    tenant_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    tenant_max_queued: int | None = None
    fair: bool = False

    def __post_init__(self) -> None:
        refusal = next(self._refusals(), None)
        if refusal is not None:
            raise ValueError(refusal)

    def _refusals(self) -> Iterator[str]:
        if not self.name:
            yield "the scheduler's name must not be empty"
        if self.max_concurrent < 1:
            yield "the scheduler's max_concurrent must be at least 1"
        if self.max_queue_time is not None and self.max_queue_time <= timedelta():
            yield "the scheduler's max_queue_time must be more than zero"
        for priority, slots in self.reservations.items():
            if slots < 1:
                yield f"the reservation for priority {priority} must keep at least one slot"
        reserved = sum(self.reservations.values())
        if reserved >= self.max_concurrent:
            yield (
                f"the reservations keep {reserved} of {self.max_concurrent} slots: "
                "they must leave at least one for every priority"
            )
        if not self.tenant_key:
            yield "the scheduler's tenant_key must not be empty"
        if "" in self.tenant_limits:
            yield "a tenant limit names no tenant"


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """The run may not work; `message` says why."""

    reason: NotAdmittedReason
    waited: timedelta

    @property
    def message(self) -> str:
        """The refusal as results tell it."""
        return f"run not admitted: {_WHY[self.reason]}"


@dataclass(frozen=True, slots=True)
class Admission:
    """A slot, after `waited`; given back by `release` (idempotent) or the end of a `with`."""

    waited: timedelta
    release: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class TenantSnapshot:
    """One tenant's runs; `limit` is its own, if it has one."""

    active: int
    queued: int
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSnapshot:
    """How a scheduler stands; `tenants` are those with runs or a limit of their own."""

    name: str
    active: int
    queued: int
    max_concurrent: int
    max_queued: int
    closed: bool
    tenants: Mapping[str, TenantSnapshot]


class SchedulerHook(Protocol):
    """Told of every admission decided, for metrics; what it raises is logged, and no more."""

    def observed(self, name: str, outcome: str, priority: int, waited: timedelta) -> None:
        """Take note; `name` is the scheduler's, `outcome` is `admitted` or why not."""
        ...

    def stands(self, name: str, *, queued: int, active: int) -> None:
        """So many runs wait now, and so many have a slot; told whenever that may have changed."""
        ...


class Scheduler:
    """Give one to all runs that are to share its slots, as `RunOptions.scheduler`.

    Belongs to one event loop.
    """

    def __init__(self, options: SchedulerOptions, clock: Clock, *, hook: SchedulerHook | None = None) -> None:
        self.options = options
        self._clock = clock
        self._hook = hook
        self._queue = AdmissionQueue(
            max_concurrent=options.max_concurrent,
            max_queued=options.max_queued,
            reservations=dict(options.reservations),
            tenant_limit=options.tenant_limit,
            tenant_limits=dict(options.tenant_limits),
            tenant_max_queued=options.tenant_max_queued,
            fair=options.fair,
        )

    async def admit(
        self,
        *,
        priority: int = 0,
        tenant: str | None = None,
        deadline: datetime | None = None,
        cancellation: CancelToken | None = None,
        stop: CancelToken | None = None,
    ) -> Admission | NotAdmitted:
        """Wait for a slot; a free one is taken whatever the deadline or the tokens say.

        A wait ends with a slot, or as `NotAdmitted` when the queue is full or sheds it, the
        scheduler closes, `cancellation` or `stop` fires, `deadline` passes or the longest wait
        is over. A decision already taken stands. A caller whose task is cancelled gives its
        place, or the slot it was given, back.
        """
        started = self._clock.monotonic()
        decided: asyncio.Future[NotAdmittedReason | None] = asyncio.get_running_loop().create_future()
        entry = Entry(priority, tenant, lambda decision: _settle(decided, decision))
        ends: list[Callable[[], None]] = []
        try:
            self._queue.enter(entry)
            self._tell_standing()
            if entry.is_waiting:
                self._limit(entry, (cancellation, stop), deadline, ends)
            decision = await decided
        except BaseException:
            self._drop(entry)
            raise
        finally:
            for withdraw in ends:
                withdraw()
        waited = timedelta(seconds=self._clock.monotonic() - started)
        self._tell(decision, priority, waited)
        if decision is not None:
            return NotAdmitted(decision, waited)
        return Admission(waited, lambda: self._drop(entry))

    def set_tenant_limit(self, tenant: str, limit: int | None) -> None:
        """Give a tenant a limit of its own, or none again; in effect at once."""
        self._queue.set_tenant_limit(tenant, limit)
        self._tell_standing()

    def close(self) -> None:
        """Refuse everybody who waits or comes; slots that are taken are kept until given back."""
        self._queue.close()
        self._tell_standing()

    def snapshot(self) -> SchedulerSnapshot:
        """How it stands now."""
        queue, options = self._queue, self.options
        return SchedulerSnapshot(
            name=options.name,
            active=queue.active,
            queued=queue.queued,
            max_concurrent=options.max_concurrent,
            max_queued=options.max_queued,
            closed=queue.closed,
            tenants={
                tenant: TenantSnapshot(
                    queue.active_of(tenant), queue.queued_of(tenant), queue.tenant_limits.get(tenant)
                )
                for tenant in queue.tenants()
            },
        )

    def _limit(
        self,
        entry: Entry,
        tokens: tuple[CancelToken | None, ...],
        deadline: datetime | None,
        ends: list[Callable[[], None]],
    ) -> None:
        """Have the wait ended by what comes first; the deadline wins a tie with the longest wait."""

        def refuse(reason: NotAdmittedReason) -> None:
            self._queue.refuse(entry, reason)
            self._tell_standing()

        given = [token for token in tokens if token is not None]
        ends.extend(token.on_fire(lambda: refuse(NotAdmittedReason.CANCELLED)) for token in given)
        limits: list[tuple[float, NotAdmittedReason]] = []
        if deadline is not None:
            limits.append(((deadline - self._clock.now()).total_seconds(), NotAdmittedReason.DEADLINE))
        if self.options.max_queue_time is not None:
            limits.append((self.options.max_queue_time.total_seconds(), NotAdmittedReason.QUEUE_TIMEOUT))
        if not limits:
            return
        left, reason = min(limits, key=lambda limit: limit[0])
        if left <= 0:
            refuse(reason)
        else:
            ends.append(self._clock.call_later(left, lambda: refuse(reason)).cancel)

    def _drop(self, entry: Entry) -> None:
        self._queue.drop(entry)
        self._tell_standing()

    def _tell(self, decision: NotAdmittedReason | None, priority: int, waited: timedelta) -> None:
        outcome = "admitted" if decision is None else decision.value
        self._ask(lambda hook: hook.observed(self.options.name, outcome, priority, waited))

    def _tell_standing(self) -> None:
        queue = self._queue
        self._ask(lambda hook: hook.stands(self.options.name, queued=queue.queued, active=queue.active))

    def _ask(self, told: Callable[[SchedulerHook], None]) -> None:
        if self._hook is None:
            return
        try:
            told(self._hook)
        except Exception:  # noqa: BLE001 - a metric that fails must not cost the run its slot
            _log.exception("the hook of scheduler '%s' failed; admissions go on", self.options.name)


async def admit(
    options: RunOptions, metadata: Mapping[str, str], stop: CancelToken | None
) -> Admission | NotAdmitted | None:
    """Ask the scheduler of a run with these options, for the tenant in `metadata`; None without one."""
    if options.scheduler is None:
        return None
    return await options.scheduler.admit(
        priority=options.priority,
        tenant=metadata.get(options.scheduler.options.tenant_key),
        deadline=options.deadline,
        cancellation=options.cancellation,
        stop=stop,
    )


def _settle(decided: asyncio.Future[NotAdmittedReason | None], decision: NotAdmittedReason | None) -> None:
    if not decided.done():
        decided.set_result(decision)
