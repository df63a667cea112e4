"""Copying threads from one store to another, row by row, each thread's log as it is.

Owns what is copied, compared and reported; knows no engine and shows nothing. A row is only
ever appended where the log ends just before it (a conditional save), so a copy that was broken
off goes on where it stopped, and nothing that is there already is overwritten. What was
appended is read back and compared by value. Leases and their tokens stay where they are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from .codec import encode, same_as
from .errors import StoreError, Unavailable
from .instants import parse_instant
from .port import EMPTY_LOG, Saved
from .query import MAX_PAGE, UnreadableThread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from .port import Store
    from .query import ThreadQuery, ThreadSummary
    from .record import Row

_Listed: TypeAlias = "ThreadSummary | UnreadableThread"

_AT_ONCE: Final = 8
_FIRST_PAGE: Final = 16
_PAGE_BYTES: Final = 4_000_000
"""About what one page of a log may weigh, since a thousand large states don't fit in memory."""


class CopyResult(StrEnum):
    """What came of one thread; the first three leave all that the source has of it in the target.

    `PRESENT` is also a thread that vanished from the source after it was listed: there is nothing to copy.
    """

    COPIED = "copied"
    PRESENT = "present"
    AHEAD = "ahead"
    HELD = "held"
    CONFLICT = "conflict"
    MISMATCH = "mismatch"
    FAILED = "failed"


WHOLE: Final = frozenset({CopyResult.COPIED, CopyResult.PRESENT, CopyResult.AHEAD})
"""The results after which all that was seen of a thread is in the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCopy:
    """What came of one thread: the rows appended now, their bytes as JSON, and why no more."""

    thread_id: str
    result: CopyResult
    rows: int = 0
    size: int = 0
    reason: str | None = None


@dataclass(slots=True)
class CopyReport:
    """What came of all threads; `moved_on` when the source has rows newer than the copy's beginning."""

    results: Counter[CopyResult] = field(default_factory=Counter[CopyResult])
    rows: int = 0
    size: int = 0
    moved_on: bool = False

    @property
    def complete(self) -> bool:
        """Whether every thread that the query matches is whole in the target."""
        return not self.moved_on and all(result in WHOLE for result in +self.results)

    def add(self, thread: ThreadCopy) -> None:
        """Count one thread."""
        self.results[thread.result] += 1
        self.rows += thread.rows
        self.size += thread.size


class Watcher(Protocol):
    """Is told how a copy goes, as it goes."""

    def appended(self, rows: int, size: int) -> None:
        """So many more rows, and bytes, were appended and found right."""
        ...

    def finished(self, thread: ThreadCopy) -> None:
        """A thread is done with."""
        ...


async def count_threads(source: Store, query: ThreadQuery) -> int:
    """How many threads the query matches, by listing them all; no state is read."""
    total = 0
    async with aclosing(_listed(source, query)) as pages:
        async for page in pages:
            total += len(page)
    return total


async def copy_threads(
    source: Store, target: Store, query: ThreadQuery, watcher: Watcher, *, at_once: int = _AT_ONCE
) -> CopyReport:
    """Copy every thread that the query matches, `at_once` side by side; its limit and cursor are ignored.

    A thread under a live lease in either store is left out, as is one with other rows in the
    target; the next call goes on with it. Raises `Unavailable` when either store can't
    answer; any other failure ends its own thread only.
    """
    report = CopyReport()
    newest = await _newest(source, query)
    async with aclosing(_threads(source, query)) as threads:
        turn = asyncio.Lock()  # one generator can't be asked twice at once

        async def work() -> None:
            while True:
                async with turn:
                    thread = await anext(threads, None)
                if thread is None:
                    return
                if isinstance(thread, UnreadableThread):
                    done = ThreadCopy(
                        thread_id=thread.thread_id, result=CopyResult.FAILED, reason=thread.reason
                    )
                else:
                    done = await _copied(source, target, thread.thread_id, watcher)
                report.add(done)
                watcher.finished(done)

        await _side_by_side(work, at_once)
    report.moved_on = await _newest(source, query, after=newest) is not None
    return report


async def _side_by_side(work: Callable[[], Coroutine[None, None, None]], at_once: int) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the one that ended the others


async def _copied(source: Store, target: Store, thread_id: str, watcher: Watcher) -> ThreadCopy:
    log = _LogCopy(source, target, thread_id, watcher)
    try:
        result, reason = await log.run()
    except Unavailable:
        raise
    except StoreError as error:
        result, reason = CopyResult.FAILED, str(error)
    return ThreadCopy(thread_id=thread_id, result=result, rows=log.rows, size=log.size, reason=reason)


class _LogCopy:
    """One thread's log on its way, a page at a time."""

    def __init__(self, source: Store, target: Store, thread_id: str, watcher: Watcher) -> None:
        self._source = source
        self._target = target
        self._thread_id = thread_id
        self._watcher = watcher
        self._limit = _FIRST_PAGE
        self.rows = 0
        self.size = 0

    async def run(self) -> tuple[CopyResult, str | None]:
        held, held_there, latest = await asyncio.gather(
            self._source.get_lease(self._thread_id),
            self._target.get_lease(self._thread_id),
            self._target.load(self._thread_id),
        )
        if (lease := held or held_there) is not None:
            where = "source" if held is not None else "target"
            return CopyResult.HELD, f"'{lease.owner}' holds it in the {where}"
        present = EMPTY_LOG if latest is None else latest.sequence
        end = EMPTY_LOG
        after: int | None = EMPTY_LOG
        while after is not None:
            page = await self._source.get_log(self._thread_id, after=after, limit=self._limit)
            if page.entries:
                if (trouble := await self._page(page.entries, present)) is not None:
                    return trouble
                end = page.entries[-1].sequence
            after = page.next_after
        if end == EMPTY_LOG:
            return CopyResult.PRESENT, "the source has it no more"
        if present > end:
            return CopyResult.AHEAD, f"it went on in the target, to sequence {present}"
        return (CopyResult.COPIED if self.rows else CopyResult.PRESENT), None

    async def _page(self, page: tuple[Row, ...], present: int) -> tuple[CopyResult, str] | None:
        """Compare the rows of a page that are in the target, append the others; None when all is well."""
        sizes = [len(encode(row.checkpoint).encode()) for row in page]
        self._limit = max(1, min(MAX_PAGE, _PAGE_BYTES * len(page) // sum(sizes)))
        there = sum(row.sequence <= present for row in page)
        if (other := await self._difference(page[:there])) is not None:
            return CopyResult.CONFLICT, f"the target has another row at sequence {other}"
        appended = page[there:]
        notes = await self._source.get_notes(appended)
        for row in appended:
            answer = await self._target.save(
                row.checkpoint, expected=row.sequence - 1, notes=notes.get(row.sequence, ())
            )
            if not isinstance(answer, Saved) and await self._difference((row,)) is not None:
                return CopyResult.CONFLICT, f"the target's log moved on before sequence {row.sequence}"
        if (other := await self._difference(appended)) is not None:
            return CopyResult.MISMATCH, f"the target gives the row at sequence {other} back with other values"
        self._tell(len(appended), sum(sizes[there:]))
        return None

    async def _difference(self, rows: tuple[Row, ...]) -> int | None:
        """The sequence of the first of these rows that the target hasn't, by value; None when it has all."""
        if not rows:
            return None
        page = await self._target.get_log(self._thread_id, after=rows[0].sequence - 1, limit=len(rows))
        there = {row.sequence: row.checkpoint for row in page.entries}
        for row in rows:
            other = there.get(row.sequence)
            if other is None or not (other == row.checkpoint or same_as(other, row.checkpoint)):
                return row.sequence
        return None

    def _tell(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size
        if rows:
            self._watcher.appended(rows, size)


async def _threads(source: Store, query: ThreadQuery) -> AsyncGenerator[_Listed]:
    async with aclosing(_listed(source, query)) as pages:
        async for page in pages:
            for thread in page:
                yield thread


async def _listed(source: Store, query: ThreadQuery) -> AsyncGenerator[tuple[_Listed, ...]]:
    """All pages of a listing; one may be empty and still have others after it."""
    cursor: str | None = None
    while True:
        page = await source.list_threads(replace(query, limit=MAX_PAGE, cursor=cursor))
        yield (*page.threads, *page.unreadable)
        cursor = page.next_cursor
        if cursor is None:
            return


async def _newest(source: Store, query: ThreadQuery, *, after: str | None = None) -> str | None:
    """When the newest thread that the query matches was updated, if any was after `after`."""
    if after is not None:
        since = parse_instant(after)
        query = replace(query, updated_after=max(since, query.updated_after or since))
    async with aclosing(_threads(source, query)) as threads:
        newest = await anext(threads, None)
    return None if newest is None else newest.updated_at
