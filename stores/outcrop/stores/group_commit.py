"""Concurrent saves of a process in one flush: one round trip, one commit.

Owns which saves go together, in what order, and whose failure is whose. Knows no store: a
store brings `flush`, which appends several saves in one transaction. There is no timer: a
save that finds a free place goes at once, with whatever is queued by then; those that come
while all places are taken wait and go together. One event loop uses a `GroupCommit`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from .errors import StoreError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .port import SaveResult
    from .save import Save

Flushed: TypeAlias = "SaveResult | StoreError | None"
Flush: TypeAlias = "Callable[[Sequence[Save]], Awaitable[Sequence[Flushed]]]"
"""Appends saves in order, in one transaction, and answers each when that is committed.

Where it raises, nothing is written, or, after `Unavailable`, all of it or nothing (its own
retries are over). A save that failed by itself is answered with its error; of several that
weren't written and of which any may be at fault, each is answered with None, to be flushed alone.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Queued:
    save: Save
    answer: asyncio.Future[SaveResult]


class GroupCommit:
    """Queues saves and flushes them, up to `concurrent` flushes at once.

    A thread is in one flush at a time, and its saves keep their order. A caller that gives up
    takes its save back while that is queued; one in a flush is carried out.
    """

    def __init__(self, flush: Flush, *, max_batch: int, concurrent: int) -> None:
        self._flush = flush
        self._max_batch = max_batch
        self._free = concurrent
        self._queue: deque[_Queued] = deque()
        self._busy: set[str] = set()
        self._workers: set[asyncio.Task[None]] = set()

    async def save(self, save: Save) -> SaveResult:
        """Append with others; raises what the save itself, or its whole flush, failed with."""
        queued = _Queued(save, asyncio.get_running_loop().create_future())
        self._queue.append(queued)
        self._begin()
        return await queued.answer

    async def close(self) -> None:
        """Wait until everything queued is answered."""
        while self._workers:
            await asyncio.wait(self._workers)

    def _begin(self) -> None:
        if self._free:
            self._free -= 1
            # A task of its own, since a flush goes on when the caller who began it gives up.
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        try:
            while batch := self._next():
                threads = {queued.save.checkpoint.thread_id for queued in batch}
                self._busy |= threads
                if self._queue:
                    self._begin()
                try:
                    await self._settle(batch)
                finally:
                    self._busy -= threads
        finally:
            self._free += 1  # in the same step as the last look at the queue

    def _next(self) -> list[_Queued]:
        """Take what goes next: in the order of arrival, and no thread that is being flushed."""
        batch: list[_Queued] = []
        passed: list[_Queued] = []
        while self._queue and len(batch) < self._max_batch:
            queued = self._queue.popleft()
            if queued.answer.cancelled():
                continue
            (passed if queued.save.checkpoint.thread_id in self._busy else batch).append(queued)
        self._queue.extendleft(reversed(passed))
        return batch

    async def _settle(self, batch: Sequence[_Queued]) -> None:
        answers: Sequence[Flushed | Exception]
        try:
            answers = await self._flush([queued.save for queued in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, each save's caller gets it
            if len(batch) == 1:
                answers = [error]
            elif isinstance(error, Unavailable):
                answers = each_its_own(error, len(batch))
            else:
                answers = [None] * len(batch)
        except BaseException:  # the event loop ends
            for queued in batch:
                queued.answer.cancel()
            raise
        for queued, answer in zip(batch, answers, strict=True):
            if answer is not None:
                _answer(queued, answer)
        for queued, answer in zip(batch, answers, strict=True):
            if answer is None:  # alone, so that only the one at fault fails
                await self._settle([queued])


def each_its_own(error: Unavailable, count: int) -> list[Unavailable]:
    """As many errors of the same words: one that is raised in several callers gets all their tracebacks."""
    return [Unavailable(str(error)) for _ in range(count)]


def _answer(queued: _Queued, answer: SaveResult | Exception) -> None:
    if queued.answer.done():
        return  # its caller gave up meanwhile
    if isinstance(answer, Exception):
        queued.answer.set_exception(answer)
    else:
        queued.answer.set_result(answer)
