"""The SQLite store: the port over one file, with the rows that every engine of the format shares.

Several processes use the file at once; SQLite's own lock orders them, and every condition of
a save is inside its one statement. Rows are decoded out of deltas and blobs whatever wrote
them; this build writes whole rows.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Self

import orjson

from outcrop.stores.deltas import blob_hashes, depth_of, fill, unfold
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.instants import instant_text
from outcrop.stores.leases import check_lease_of, system_now
from outcrop.stores.port import EMPTY_LOG, LeaseLost, NotLatest, Saved, SaveResult
from outcrop.stores.query import check_limit, check_query, page_of_log, page_of_threads, summary_of

from .database import Database, transaction
from .leases import SQL, SqliteLeases
from .listing import listing
from .migrate import check_readable, migrate
from .rows import from_columns, from_listing, to_parameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from datetime import datetime
    from pathlib import Path

    from outcrop.stores.deltas import Unfolded
    from outcrop.stores.port import Store
    from outcrop.stores.query import LogPage, ThreadPage, ThreadQuery
    from outcrop.stores.record import Checkpoint, Lease, Row, ThreadState


class SqliteStore(SqliteLeases):
    """A checkpoint store in one SQLite file; see `open` and `open_read_only`."""

    @classmethod
    async def open(cls, path: str | Path, *, clock: Callable[[], datetime] = system_now) -> Self:
        """Open the file for reading and writing, creating or upgrading its tables.

        `clock` is the leases' time. Takes the file's write lock for a moment. Raises
        `NewerSchema` for a file of a newer build, `Unavailable` when the lock stays taken.
        """
        return await cls._opened(path, clock, read_only=False)

    @classmethod
    async def open_read_only(cls, path: str | Path, *, clock: Callable[[], datetime] = system_now) -> Self:
        """Open an existing file without writing to it, not even to upgrade it.

        Raises `StoreError` when there is no checkpoint database of this build's version.
        """
        return await cls._opened(path, clock, read_only=True)

    @classmethod
    async def _opened(cls, path: str | Path, clock: Callable[[], datetime], *, read_only: bool) -> Self:
        if str(path) in {"", ":memory:"}:
            raise InvalidRequest("a SQLite store needs a file: use MemoryStore for one without")
        database = await Database.open(path, read_only=read_only)
        try:
            await database.call(check_readable if read_only else migrate)
        except BaseException:
            await database.close()
            raise
        return cls(path, database, clock)

    async def save(
        self, checkpoint: Checkpoint, *, expected: int | None = None, lease: Lease | None = None
    ) -> SaveResult:
        check_lease_of(checkpoint, lease)
        token = None if lease is None else lease.token
        parameters = {**to_parameters(checkpoint), "expected": expected, "token": token}
        return await self._database.call(lambda connection: _save(connection, parameters))

    async def load(self, thread_id: str) -> Row | None:
        def load(connection: sqlite3.Connection) -> Row | None:
            with transaction(connection, "DEFERRED"):  # the row and its blobs of one moment
                rows = connection.execute(SQL["load"], {"thread_id": thread_id}).fetchall()
                unfolded = unfold(from_columns(columns) for columns in rows)
                return _filled(connection, unfolded[-1:])[0] if unfolded else None

        return await self._database.call(load)

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        check_query(query)
        statement, parameters = listing(SQL["list"], query)
        rows = await self._database.call(
            lambda connection: [
                from_listing(columns) for columns in connection.execute(statement, parameters).fetchall()
            ]
        )
        return page_of_threads([summary_of(row) for row in rows], query.limit)

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        check_limit(limit)
        start = EMPTY_LOG if after is None else after
        entries = await self._database.call(lambda connection: _log(connection, thread_id, start, limit))
        return page_of_log(tuple(entries), limit)

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        check_limit(limit)
        names = orjson.dumps(sorted(state.value for state in states)).decode()
        cutoff = instant_text(older_than)

        def purge(connection: sqlite3.Connection) -> int:
            with transaction(connection, "IMMEDIATE"):
                parameters = {"states": names, "older_than": cutoff, "now": self._now(), "limit": limit}
                threads = connection.execute(SQL["purgeable"], parameters).fetchall()
                for table in ("checkpoints", "heads", "leases", "blobs"):
                    connection.executemany(SQL[f"purge_{table}"], threads)
                return len(threads)

        return await self._database.call(purge)

    async def close(self) -> None:
        """Close the connection after the calls before; idempotent."""
        await self._database.close()


def _save(connection: sqlite3.Connection, parameters: dict[str, str | int | None]) -> SaveResult:
    try:
        saved: list[tuple[int]] = connection.execute(SQL["save"], parameters).fetchall()
    except sqlite3.IntegrityError:
        if parameters["expected"] is None:
            raise
        return NotLatest()  # another row took the place
    if saved:
        return Saved(saved[0][0])
    if parameters["token"] is None:
        return NotLatest()
    latest: tuple[int] | None = connection.execute(
        SQL["token"], {"thread_id": parameters["thread_id"]}
    ).fetchone()
    mine = latest is not None and latest[0] == parameters["token"]
    return NotLatest() if mine and parameters["expected"] is not None else LeaseLost()


def _log(connection: sqlite3.Connection, thread_id: str, after: int, limit: int) -> list[Row]:
    with transaction(connection, "DEFERRED"):  # the page, what it builds on, and its blobs of one moment
        page = _rows(connection, thread_id, after, limit)
        depth = depth_of(page[0]) if page else 0
        before = _rows(connection, thread_id, page[0].sequence - depth - 1, depth) if depth else []
        return _filled(connection, unfold([*before, *page])[len(before) :])


def _rows(connection: sqlite3.Connection, thread_id: str, after: int, limit: int) -> list[Row]:
    parameters = {"thread_id": thread_id, "after": after, "limit": limit}
    return [from_columns(columns) for columns in connection.execute(SQL["log"], parameters)]


def _filled(connection: sqlite3.Connection, unfolded: list[Unfolded]) -> list[Row]:
    hashes = blob_hashes(unfolded)
    contents: dict[str, bytes] = {}
    if hashes:
        parameters = {
            "thread_id": unfolded[0].row.checkpoint.thread_id,
            "hashes": orjson.dumps(sorted(hashes)).decode(),
        }
        contents = dict(connection.execute(SQL["blobs"], parameters).fetchall())
    return [fill(entry, contents) for entry in unfolded]


if TYPE_CHECKING:
    _conforms: type[Store] = SqliteStore
