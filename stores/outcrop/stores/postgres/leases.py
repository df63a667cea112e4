"""The leases in a database, on its server's clock.

Acquiring takes the thread's lock, as saving and purging do; renewing and releasing are
single statements on the lease's row.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from outcrop.stores.leases import check_owner, from_milliseconds, ttl_milliseconds
from outcrop.stores.port import Acquired, AcquireResult, Held, NotLatest
from outcrop.stores.record import Lease
from outcrop.stores.statements import named_statements

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import timedelta

    from outcrop.stores.port import LeaseStore

    from .database import Database

SQL = named_statements(__package__, "statements.sql")


class PostgresLeases:
    """The leases alone; a renewer has one to itself, on a connection and a loop of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire_lease(
        self, thread_id: str, owner: str, ttl: timedelta, *, expected: int | None = None
    ) -> AcquireResult:
        check_owner(owner)
        self._database.check_writable()
        arguments = (thread_id, owner, ttl_milliseconds(ttl), expected)
        # At most once: a lease that was taken holds off its own taker until it expires.
        rows = await self._database.run_at_most_once(
            lambda session: session.fetch(SQL["acquire"], *arguments)
        )
        return _answer(thread_id, *rows[0])

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
        self._database.check_writable()
        arguments = (lease.thread_id, lease.owner, lease.token, ttl_milliseconds(ttl))
        rows = await self._database.run(lambda session: session.fetch(SQL["renew"], *arguments))
        return replace(lease, expires_at=from_milliseconds(rows[0][0])) if rows else None

    async def release_lease(self, lease: Lease) -> bool:
        self._database.check_writable()
        arguments = (lease.thread_id, lease.token)
        return bool(await self._database.run(lambda session: session.fetch(SQL["release"], *arguments)))

    async def get_lease(self, thread_id: str) -> Lease | None:
        rows = await self._database.run(lambda session: session.fetch(SQL["holder"], thread_id))
        return _lease(thread_id, *rows[0]) if rows else None

    @asynccontextmanager
    async def renewals(self) -> AsyncGenerator[LeaseStore]:
        # A connection of its own: a long queue for the store's must not delay a renewal.
        database = self._database.alone()
        try:
            yield PostgresLeases(database)
        finally:
            await database.close()


def _answer(thread_id: str, verdict: str, owner: str, token: int, expires: int) -> AcquireResult:
    if verdict == "moved":
        return NotLatest()
    lease = _lease(thread_id, owner, token, expires)
    return Acquired(lease) if verdict == "acquired" else Held(lease)


def _lease(thread_id: str, owner: str, token: int, expires: int) -> Lease:
    return Lease(thread_id, owner, token, from_milliseconds(expires))


if TYPE_CHECKING:
    _conforms: type[LeaseStore] = PostgresLeases
