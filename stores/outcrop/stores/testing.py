"""Stores for tests: one that fails where it is told to.

Wraps any store, so that what an engine or a worker does after a failed call, or after a
call that happened and whose answer was lost, can be asked of every store.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime, timedelta

    from .port import AcquireResult, LeaseStore, SaveResult, Store
    from .query import LogPage, ThreadPage, ThreadQuery
    from .record import Checkpoint, Lease, Note, Row, ThreadState

T = TypeVar("T")


class Faults:
    """Which calls fail: by method name and how many times it was called since, from 1."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._planned: dict[tuple[str, int], tuple[Exception, bool]] = {}

    def plan(self, method: str, call: int, error: Exception, *, after: bool) -> None:
        """Let the `call`-th call from now raise `error`, before it happened or after."""
        self._planned[method, self.calls[method] + call] = (error, after)

    async def run(self, method: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do the call, or fail it as planned."""
        self.calls[method] += 1
        error, after = self._planned.pop((method, self.calls[method]), (None, False))
        if error is not None and not after:
            raise error
        answer = await work()
        if error is not None:
            raise error
        return answer


class FailingLeases:
    """Leases with faults."""

    def __init__(self, leases: LeaseStore, faults: Faults) -> None:
        self._leases = leases
        self.faults = faults

    def fail(self, method: str, error: Exception, *, call: int = 1, after: bool = False) -> None:
        """Let the `call`-th call of `method` from now raise `error`; with `after`, once it happened."""
        self.faults.plan(method, call, error, after=after)

    async def acquire_lease(
        self, thread_id: str, owner: str, ttl: timedelta, *, expected: int | None = None
    ) -> AcquireResult:
        return await self.faults.run(
            "acquire_lease", lambda: self._leases.acquire_lease(thread_id, owner, ttl, expected=expected)
        )

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
        return await self.faults.run("renew_lease", lambda: self._leases.renew_lease(lease, ttl))

    async def release_lease(self, lease: Lease) -> bool:
        return await self.faults.run("release_lease", lambda: self._leases.release_lease(lease))

    async def get_lease(self, thread_id: str) -> Lease | None:
        return await self.faults.run("get_lease", lambda: self._leases.get_lease(thread_id))

    @asynccontextmanager
    async def renewals(self) -> AsyncGenerator[LeaseStore]:
        async with self._leases.renewals() as leases:
            yield FailingLeases(leases, self.faults)


class FailingStore(FailingLeases):
    """A store whose calls fail where `fail` says; the leases of `renewals` share the plan."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, Faults())
        self._store = store

    async def save(
        self,
        checkpoint: Checkpoint,
        *,
        expected: int | None = None,
        lease: Lease | None = None,
        release: bool = False,
        notes: Sequence[Note] = (),
    ) -> SaveResult:
        return await self.faults.run(
            "save",
            lambda: self._store.save(
                checkpoint, expected=expected, lease=lease, release=release, notes=notes
            ),
        )

    async def add_notes(
        self, beside: Row, notes: Sequence[Note], *, lease: Lease | None = None
    ) -> SaveResult:
        return await self.faults.run("add_notes", lambda: self._store.add_notes(beside, notes, lease=lease))

    async def get_notes(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        return await self.faults.run("get_notes", lambda: self._store.get_notes(rows))

    async def load(self, thread_id: str) -> Row | None:
        return await self.faults.run("load", lambda: self._store.load(thread_id))

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        return await self.faults.run("list_threads", lambda: self._store.list_threads(query))

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        return await self.faults.run(
            "get_log", lambda: self._store.get_log(thread_id, after=after, limit=limit)
        )

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        return await self.faults.run(
            "purge", lambda: self._store.purge(older_than, states=states, limit=limit)
        )

    async def close(self) -> None:
        """Close the wrapped store."""
        await self._store.close()


if TYPE_CHECKING:
    _conforms: Callable[[Store], Store] = FailingStore
