"""Repeating calls that met a passing failure, and finding out what a doubtful save came to.

Owns when a call is repeated and how long it waits first. Which failures pass is each
backend's `classify`: it raises `InDoubt` where the call may have happened, and a plain
`Unavailable` where surely nothing was done. Knows no backend.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from .codec import same_as
from .errors import Unavailable
from .options import RetryOptions
from .port import NotLatest, Saved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .port import SaveResult
    from .query import LogPage
    from .record import Checkpoint, Row

T = TypeVar("T")


class InDoubt(Unavailable):
    """The call was sent and its answer is missing: it may or may not have happened, or still be at it."""


class Rows(Protocol):
    """What settling a doubtful save reads."""

    async def load(self, thread_id: str) -> Row | None:
        """The thread's latest row."""
        ...

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        """The thread's rows after a sequence."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Repeats calls by its options; the waits are the process's, not a store's clock."""

    options: RetryOptions = field(default_factory=RetryOptions)
    uniform: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work`, again after each `Unavailable`; raises the last one when the attempts run out."""
        return await self._run(work, at_most_once=False)

    async def run_at_most_once(self, work: Callable[[], Awaitable[T]]) -> T:
        """The same for what mustn't happen twice: not again after `InDoubt`, which is raised."""
        return await self._run(work, at_most_once=True)

    async def save(
        self,
        attempt: Callable[[], Awaitable[SaveResult]],
        settle: Callable[[], Awaitable[SaveResult | None]],
    ) -> SaveResult:
        """Do a save so that it happens once, whatever answers are lost.

        Before an attempt is repeated, and when a repeated one was refused, `settle` looks
        whether an earlier one was committed after all; None means that nothing shows it.
        """
        in_doubt = False

        async def once() -> SaveResult:
            nonlocal in_doubt
            if in_doubt and (settled := await settle()) is not None:
                return settled
            try:
                result = await attempt()
            except InDoubt:
                in_doubt = True
                raise
            if in_doubt and not isinstance(result, Saved):
                return await settle() or result
            return result

        return await self.run(once)

    async def _run(self, work: Callable[[], Awaitable[T]], *, at_most_once: bool) -> T:
        failures = 0
        while True:
            try:
                return await work()
            except Unavailable as error:
                failures += 1
                if failures >= self.options.max_attempts or (at_most_once and isinstance(error, InDoubt)):
                    raise
            await self.sleep(self.uniform() * self.options.bound(failures))


async def settled(rows: Rows, checkpoint: Checkpoint, expected: int | None) -> SaveResult | None:
    """What became of a save whose answer was lost, by the rows that are there now.

    A conditional one is looked for right after `expected`, a plain one at the log's end.
    None: not there, so it may be written again.
    """
    if expected is None:
        row = await rows.load(checkpoint.thread_id)
    else:
        page = await rows.get_log(checkpoint.thread_id, after=expected, limit=1)
        row = page.entries[0] if page.entries else None
    if row is not None and same_as(row.checkpoint, checkpoint):
        return Saved(row.sequence)
    return None if expected is None or row is None else NotLatest()
