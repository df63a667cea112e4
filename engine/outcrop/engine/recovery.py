"""Recovering every dead thread once: the sweep that a driver or a cron job repeats.

Owns who counts as dead (running, old enough, under no live lease) and the limit on
recoveries; each thread is recovered by `Threads.recover`. Has no schedule of its own.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.stores.codec import READABLE_VERSIONS
from outcrop.stores.instants import instant_text
from outcrop.stores.query import ThreadQuery
from outcrop.stores.record import Status, ThreadState

from .driven import (
    Skipped,
    admit_listed,
    driver_refusal,
    graph_filter,
    is_told_to_stop,
    not_admitted,
    skip_reason,
)
from .metadata import recoveries_of
from .options import RunOptions
from .outcome import Refused, RunResult
from .preflight import Preflight
from .scheduler import NotAdmitted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from outcrop.stores.query import ThreadSummary, UnreadableThread
    from outcrop.stores.record import Checkpoint, Row

    from .cancellation import CancelToken
    from .scheduler import Admission
    from .threads import Threads

S = TypeVar("S")

PAGE = 100
_OLDEST = timedelta(days=36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """What one sweep recovers, and how.

    A thread is dead when its latest row is `running`, older than `stale_after`, and no live
    lease holds it; without a lease in `options`, `stale_after` is all that tells, and must be
    given. One that was recovered `max_recoveries` times with no node committing is left.
    `limit` (1 to 1,000) counts recovered threads only. `stop` keeps the sweep from starting
    another recovery, and cancels none.
    """

    now: datetime | None = None
    stale_after: timedelta | None = None
    max_recoveries: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    limit: int = 100
    match_graph: bool = True
    options: RunOptions = field(default_factory=RunOptions)
    stop: CancelToken | None = None


@dataclass(frozen=True, slots=True)
class Recovered(Generic[S]):
    """A thread that was recovered: at which node of each level, for which time, to what end."""

    thread_id: str
    at: tuple[str, ...]
    recoveries: int
    result: RunResult[S]


@dataclass(slots=True)
class RecoverReport(Generic[S]):
    """What a sweep did; `refusal` says why it ended before its time, if it did.

    `error` is the store's own, when that is why. `unreadable` threads may be dead, and nobody
    can tell: they want looking after.
    """

    recovered: list[Recovered[S]] = field(default_factory=list["Recovered[S]"])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    unreadable: list[UnreadableThread] = field(default_factory=list["UnreadableThread"])
    refusal: str | None = None
    error: Exception | None = None


async def recover_stale(threads: Threads[S], options: RecoverOptions) -> RecoverReport[S]:
    """Recover what is dead, page by page."""
    report = RecoverReport[S]()
    report.refusal = recover_refusal(threads, options)
    if report.refusal is not None:
        return report
    stale_after = options.stale_after or timedelta()
    before = (options.now or threads.clock.now()) - stale_after
    graph_id, version = graph_filter(threads.graph, match_graph=options.match_graph)
    query = ThreadQuery(
        states=frozenset({ThreadState.RUNNING}),
        metadata=options.metadata,
        updated_before=before if stale_after else None,
        graph_id=graph_id,
        graph_version=version,
        limit=PAGE,
    )
    sweep = _Sweep(threads, options, instant_text(before) if stale_after else None, report)
    while True:
        try:
            page = await threads.store.list_threads(query)
        except Exception as error:  # noqa: BLE001 - a sweep tells what its store said, and raises nothing
            report.refusal, report.error = str(error), error
            return report
        for summary in page.threads:
            if len(report.recovered) >= options.limit or is_told_to_stop(
                options.stop, options.options.cancellation
            ):
                return report
            await sweep.take(summary)
        report.unreadable.extend(page.unreadable)
        if page.next_cursor is None:
            return report
        query = replace(query, cursor=page.next_cursor)


def recover_refusal(threads: Threads[S], options: RecoverOptions) -> str | None:
    """Why a sweep with these options can't start, or None when it can."""
    refused = driver_refusal(options.limit, options.now, options.options)
    if refused is not None:
        return refused
    if options.max_recoveries is not None and options.max_recoveries < 1:
        return "max_recoveries must be at least 1"
    if options.stale_after is not None and not timedelta() <= options.stale_after <= _OLDEST:
        return f"stale_after must be between zero and {_OLDEST.days} days"
    not_durable = Preflight(threads.graph, "").durable()
    if not_durable is not None:
        return not_durable.message
    if options.stale_after is None and options.options.lease is None:
        return (
            "recover_stale needs RecoverOptions.stale_after when its runs have no lease: "
            "without leases only the age of a running checkpoint says its run died"
        )
    return None


@dataclass(frozen=True, slots=True)
class _Sweep(Generic[S]):
    threads: Threads[S]
    options: RecoverOptions
    before: str | None
    report: RecoverReport[S]

    async def take(self, summary: ThreadSummary) -> None:
        """Recover one thread in its slot, or note why not."""
        options = self.options
        admitted = await admit_listed(summary, options.options, options.stop)
        if isinstance(admitted, NotAdmitted):
            return self._skip(summary.thread_id, not_admitted(admitted))
        with admitted or nullcontext():
            return await self._look_at(summary.thread_id, admitted)

    async def _look_at(self, thread_id: str, admitted: Admission | None) -> None:
        try:
            row = await self.threads.store.load(thread_id)
        except Exception as error:  # noqa: BLE001 - the same
            return self._skip(thread_id, f"its checkpoint can't be loaded: {error}")
        if row is None:
            return self._skip(thread_id, "it has no checkpoint")
        alive = still_dead(row.checkpoint, before=self.before, max_recoveries=self.options.max_recoveries)
        if alive is not None:
            return self._skip(thread_id, alive)
        return await self._recover(thread_id, row, admitted)

    async def _recover(self, thread_id: str, row: Row, admitted: Admission | None) -> None:
        options = replace(self.options.options, expected_sequence=row.sequence, admission=admitted)
        result = await self.threads.recover(thread_id, options)
        if isinstance(result, Refused):
            raced = "another run or recovery got there first"
            return self._skip(thread_id, skip_reason(result, gone="it is no longer running", raced=raced))
        at = tuple(level.next_node or "" for level in row.checkpoint.levels())
        recoveries = recoveries_of(row.checkpoint) + 1
        self.report.recovered.append(Recovered(thread_id, at, recoveries, result))
        return None

    def _skip(self, thread_id: str, reason: str) -> None:
        self.report.skipped.append(Skipped(thread_id, reason))


def still_dead(row: Checkpoint, *, before: str | None, max_recoveries: int | None) -> str | None:
    """Why a listed thread isn't to be recovered after all, or None when it is. Pure."""
    if row.schema_version not in READABLE_VERSIONS:
        return f"its checkpoint has unsupported schema_version '{row.schema_version}'"
    if row.status is not Status.RUNNING:
        return "it is no longer running"
    if before is not None and row.updated_at >= before:
        return "it is not stale yet"
    recoveries = recoveries_of(row)
    if max_recoveries is not None and recoveries >= max_recoveries:
        return f"it was recovered {recoveries} time(s) without a node completing"
    return None
