"""Waking every due thread once: the sweep that a driver or a cron job repeats.

Owns the listing and the report; each thread is woken by `Threads.wake`, which decides by
itself whether the thread is still due. Has no schedule of its own.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.stores.query import ThreadQuery
from outcrop.stores.record import WaitKind

from .driven import (
    Skipped,
    admit_listed,
    driver_refusal,
    graph_filter,
    is_told_to_stop,
    not_admitted,
    skip_reason,
)
from .options import RunOptions
from .outcome import Refused, RunResult
from .scheduler import NotAdmitted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from outcrop.stores.query import ThreadSummary, UnreadableThread

    from .cancellation import CancelToken
    from .threads import Threads

S = TypeVar("S")


class WakeReason(StrEnum):
    """Why a thread was due."""

    TIMER = "timer"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeOptions:
    """What one sweep wakes, and how.

    Threads due by `now` (default: the clock's), with all of `metadata`, of this graph unless
    `match_graph` is off, at most `limit` (1 to 1,000) woken and skipped together. `options`
    are those of each run. `stop` keeps the sweep from starting another, and cancels none.
    """

    now: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    limit: int = 100
    match_graph: bool = True
    options: RunOptions = field(default_factory=RunOptions)
    stop: CancelToken | None = None


@dataclass(frozen=True, slots=True)
class Woken(Generic[S]):
    """A thread that was woken, and what its run came to."""

    thread_id: str
    reason: WakeReason
    result: RunResult[S]


@dataclass(slots=True)
class WakeReport(Generic[S]):
    """What a sweep did; `refusal` says why it ended before its time, if it did.

    `error` is the store's own, when that is why. `unreadable` threads may be due, and nobody
    can tell: they count for no limit, and want looking after.
    """

    woken: list[Woken[S]] = field(default_factory=list["Woken[S]"])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    unreadable: list[UnreadableThread] = field(default_factory=list["UnreadableThread"])
    refusal: str | None = None
    error: Exception | None = None

    @property
    def handled(self) -> int:
        """How many threads it came to."""
        return len(self.woken) + len(self.skipped)


async def wake_due(threads: Threads[S], options: WakeOptions) -> WakeReport[S]:
    """Wake what is due, page by page."""
    report = WakeReport[S]()
    report.refusal = driver_refusal(options.limit, options.now, options.options)
    if report.refusal is not None:
        return report
    now = options.now or threads.clock.now()
    graph_id, version = graph_filter(threads.graph, match_graph=options.match_graph)
    query = ThreadQuery(
        due_by=now,
        metadata=options.metadata,
        graph_id=graph_id,
        graph_version=version,
        limit=options.limit,
    )
    while True:
        try:
            page = await threads.store.list_threads(query)
        except Exception as error:  # noqa: BLE001 - a sweep tells what its store said, and raises nothing
            report.refusal, report.error = str(error), error
            return report
        for summary in page.threads:
            if report.handled >= options.limit or is_told_to_stop(options.stop, options.options.cancellation):
                return report
            await _take(threads, summary, options, now, report)
        report.unreadable.extend(page.unreadable)
        if page.next_cursor is None:
            return report
        query = replace(query, cursor=page.next_cursor)


async def _take(
    threads: Threads[S], summary: ThreadSummary, options: WakeOptions, now: datetime, report: WakeReport[S]
) -> None:
    """Wake one thread in its slot, or note why not."""
    admitted = await admit_listed(summary, options.options, options.stop)
    if isinstance(admitted, NotAdmitted):
        report.skipped.append(Skipped(summary.thread_id, not_admitted(admitted)))
        return
    with admitted or nullcontext():
        await _wake(threads, summary, replace(options.options, admission=admitted), now, report)


async def _wake(
    threads: Threads[S], summary: ThreadSummary, options: RunOptions, now: datetime, report: WakeReport[S]
) -> None:
    thread_id, is_timer = summary.thread_id, summary.wait is not None and summary.wait.kind is WaitKind.TIMER
    result = await threads.wake(thread_id, options, now=now)
    if isinstance(result, Refused):
        reason = skip_reason(
            result, gone="it is no longer due", raced="another driver woke or ended it first"
        )
        report.skipped.append(Skipped(thread_id, reason))
    else:
        report.woken.append(Woken(thread_id, WakeReason.TIMER if is_timer else WakeReason.TIMEOUT, result))
