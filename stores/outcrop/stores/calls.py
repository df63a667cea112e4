"""A store's calls: each carried to its end though its caller gives up, and several at once.

Knows no store. A call that is half done when its caller is cancelled would leave a lease that
nobody knows of, or a purged thread's blobs. One event loop uses a `Calls`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from .outlasting import outlasting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterable

T = TypeVar("T")


class Calls:
    """The calls that are under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    async def whole(self, call: Coroutine[None, None, T]) -> T:
        """Run a call to its end, whether or not its caller waits for it."""
        task = asyncio.get_running_loop().create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await outlasting(task)

    async def close(self) -> None:
        """Wait until every call has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """What several calls come to, once all have ended; raises the first one's failure that failed."""
    found: list[T] = []
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found
