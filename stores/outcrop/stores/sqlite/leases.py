"""The leases in a SQLite file, on the clock of the process that asks.

Hosts that share a file therefore need clocks that agree. Each call is one statement, so
the check and the change are one step under the file's lock.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from outcrop.stores.errors import Unavailable
from outcrop.stores.leases import (
    check_owner,
    from_milliseconds,
    to_milliseconds,
    ttl_milliseconds,
)
from outcrop.stores.port import Acquired, AcquireResult, Held, NotLatest
from outcrop.stores.record import Lease
from outcrop.stores.statements import named_statements

from .database import Database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable, Mapping
    from datetime import datetime, timedelta
    from pathlib import Path

    from outcrop.stores.port import LeaseStore

SQL = named_statements(__package__, "statements.sql")
_ACQUIRE_LOOKS = 3


class SqliteLeases:
    """The leases alone; a renewer has one to itself, on a connection of its own."""

    def __init__(self, path: str | Path, database: Database, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._database = database
        self._clock = clock

    async def acquire_lease(
        self, thread_id: str, owner: str, ttl: timedelta, *, expected: int | None = None
    ) -> AcquireResult:
        check_owner(owner)
        milliseconds = ttl_milliseconds(ttl)
        return await self._database.call(
            lambda connection: self._acquire(connection, thread_id, owner, milliseconds, expected)
        )

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
        milliseconds = ttl_milliseconds(ttl)

        def renew(connection: sqlite3.Connection) -> Lease | None:
            expires_at = self._now() + milliseconds
            parameters = {
                "thread_id": lease.thread_id,
                "owner": lease.owner,
                "token": lease.token,
                "expires_at": expires_at,
            }
            if not connection.execute(SQL["renew"], parameters).fetchall():
                return None
            return replace(lease, expires_at=from_milliseconds(expires_at))

        return await self._database.call(renew)

    async def release_lease(self, lease: Lease) -> bool:
        parameters = {"thread_id": lease.thread_id, "token": lease.token}
        return await self._database.call(
            lambda connection: bool(connection.execute(SQL["release"], parameters).fetchall())
        )

    async def get_lease(self, thread_id: str) -> Lease | None:
        return await self._database.call(lambda connection: self._holder(connection, thread_id, self._now()))

    @asynccontextmanager
    async def renewals(self) -> AsyncGenerator[LeaseStore]:
        # A connection of its own: a long queue on the store's must not delay a renewal.
        database = await Database.open(self._path, read_only=self._database.read_only)
        try:
            yield SqliteLeases(self._path, database, self._clock)
        finally:
            await database.close()

    def _acquire(
        self,
        connection: sqlite3.Connection,
        thread_id: str,
        owner: str,
        milliseconds: int,
        expected: int | None,
    ) -> AcquireResult:
        for _ in range(_ACQUIRE_LOOKS):
            now = self._now()
            parameters = {
                "thread_id": thread_id,
                "owner": owner,
                "now": now,
                "expires_at": now + milliseconds,
                "expected": expected,
            }
            taken: list[tuple[int]] = connection.execute(SQL["acquire"], parameters).fetchall()
            if taken:
                expires_at = from_milliseconds(now + milliseconds)
                return Acquired(Lease(thread_id, owner, taken[0][0], expires_at))
            held = self._holder(connection, thread_id, now)
            if held is not None:
                return Held(held)
            if expected is not None and end_of(connection, parameters) != expected:
                return NotLatest()
        raise Unavailable(f"the lease of thread '{thread_id}' kept changing while it was being acquired")

    @staticmethod
    def _holder(connection: sqlite3.Connection, thread_id: str, now: int) -> Lease | None:
        row: tuple[str, int, int] | None = connection.execute(
            SQL["holder"], {"thread_id": thread_id, "now": now}
        ).fetchone()
        if row is None:
            return None
        owner, token, expires_at = row
        return Lease(thread_id, owner, token, from_milliseconds(expires_at))

    def _now(self) -> int:
        return to_milliseconds(self._clock())


def end_of(connection: sqlite3.Connection, parameters: Mapping[str, object]) -> int:
    """The last sequence of the log of `thread_id`, `EMPTY_LOG` for none."""
    row: tuple[int] = connection.execute(SQL["end"], parameters).fetchone()
    return row[0]


if TYPE_CHECKING:
    _conforms: type[LeaseStore] = SqliteLeases
