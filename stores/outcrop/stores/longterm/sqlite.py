"""The long-term memory in one SQLite file, which checkpoints may share; distances by sqlite-vec.

Every process that opens the file must load the extension, so it is tried before the file is
touched. The dimensions of each table are pinned beside it, and a refused open changes nothing.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Self

import orjson

from outcrop.stores.errors import CorruptRow, InvalidRequest, StoreError
from outcrop.stores.instants import instant_text
from outcrop.stores.leases import system_now
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.sqlite.database import Database, transaction
from outcrop.stores.statements import named_statements

from .answers import page_of_records, rank
from .checks import check_dimensions, check_key, check_listing, check_purge, check_record, check_search
from .columns import Columns, from_columns, to_parameters
from .record import Match
from .schema import SCHEMA_VERSION, check_pinned, check_table_name, refuse_newer
from .vectors import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from .port import LongTermStore
    from .record import Listing, Purge, Record, RecordKey, RecordPage, Search

_STATEMENTS = named_statements(__package__, "sqlite.sql")


class SqliteLongTermStore:
    """A long-term memory in one SQLite file; see `open`."""

    def __init__(
        self, database: Database, sql: Mapping[str, str], dimensions: int, clock: Callable[[], datetime]
    ) -> None:
        self._database = database
        self._sql = sql
        self._dimensions = dimensions
        self._clock = clock

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        dimensions: int,
        table: str = "memory_records",
        clock: Callable[[], datetime] = system_now,
    ) -> Self:
        """Open the file, creating it and the table when missing; `clock` dates the records.

        Raises `InvalidRequest` for bad options, `NewerSchema` for a file of a newer build, and
        `StoreError` when sqlite-vec can't be loaded or the table has other dimensions.
        """
        check_dimensions(dimensions)
        check_table_name(table)
        if str(path) in {"", ":memory:"}:
            raise InvalidRequest(
                "a SQLite memory store needs a file: use InProcessLongTermStore for one without"
            )
        sql = {name: statement.format(table=table) for name, statement in _STATEMENTS.items()}
        _try_extension()
        database = await Database.open(path)
        async with closed_on_failure(database):
            await database.call(_load_extension)
            await database.call(lambda connection: _migrate(connection, sql, table, dimensions))
        return cls(database, sql, dimensions, clock)

    async def upsert(self, record: Record) -> None:
        await self.upsert_many([record])

    async def upsert_many(self, records: Sequence[Record]) -> None:
        now = instant_text(self._clock())
        for record in records:
            check_record(record, self._dimensions)
        rows = [
            {**to_parameters(record), "embedding": to_bytes(record.embedding.vector), "now": now}
            for record in records
        ]

        def upsert(connection: sqlite3.Connection) -> None:
            with transaction(connection, "IMMEDIATE"):
                connection.executemany(self._sql["upsert"], rows)

        if rows:
            await self._database.call(upsert)

    async def get(self, key: RecordKey) -> Record | None:
        check_key(key)
        rows = await self._database.call(
            lambda connection: connection.execute(self._sql["get"], _named(key)).fetchall()
        )
        return _record(rows[0]) if rows else None

    async def delete(self, key: RecordKey) -> bool:
        check_key(key)
        return await self._database.call(
            lambda connection: bool(connection.execute(self._sql["delete"], _named(key)).fetchall())
        )

    async def search(self, search: Search) -> tuple[Match, ...]:
        check_search(search, self._dimensions)
        parameters = {
            "namespace": search.namespace,
            "tenant": search.tenant,
            "model": search.embedding.model,
            "vector": to_bytes(search.embedding.vector),
            "exclude": orjson.dumps(list(search.exclude)).decode(),
            "pairs": orjson.dumps(dict(search.metadata)).decode(),
            "limit": search.limit,
        }
        rows = await self._database.call(
            lambda connection: connection.execute(self._sql["search"], parameters).fetchall()
        )
        return rank((Match(_record(row[1:]), 1.0 - row[0]) for row in rows), search)

    async def list_records(self, listing: Listing) -> RecordPage:
        parameters = {
            "after": check_listing(listing),
            "namespace": listing.namespace,
            "tenant": listing.tenant,
            "pairs": orjson.dumps(dict(listing.metadata)).decode(),
            "limit": listing.limit + 1,
        }
        rows = await self._database.call(
            lambda connection: connection.execute(self._sql["list"], parameters).fetchall()
        )
        return page_of_records([_record(row) for row in rows], listing.limit)

    async def purge(self, purge: Purge) -> int:
        check_purge(purge)
        parameters = {
            "older_than": instant_text(purge.older_than),
            "namespace": purge.namespace,
            "tenant": purge.tenant,
            "limit": purge.limit,
        }
        return await self._database.call(
            lambda connection: connection.execute(self._sql["purge"], parameters).rowcount
        )

    async def close(self) -> None:
        """Close the connection after the calls before; idempotent."""
        await self._database.close()


def _try_extension() -> None:
    """Load the extension into a connection to nothing, so that no file is made where it can't be."""
    connection = sqlite3.connect(":memory:")
    try:
        _load_extension(connection)
    finally:
        connection.close()


def _load_extension(connection: sqlite3.Connection) -> None:
    try:
        import sqlite_vec  # type: ignore[import-untyped]  # noqa: PLC0415 - has no types; an extra

        connection.enable_load_extension(True)
        try:
            sqlite_vec.load(connection)
        finally:
            connection.enable_load_extension(False)
    except ImportError:
        raise _no_extension("pip install 'outcrop[sqlite-vec]'") from None
    except AttributeError:
        raise _no_extension("this Python's sqlite3 was built without loading extensions") from None
    except sqlite3.Error as error:
        raise _no_extension(str(error)) from error


def _no_extension(why: str) -> StoreError:
    return StoreError(f"memory on SQLite needs the sqlite-vec extension: {why}")


def _migrate(connection: sqlite3.Connection, sql: Mapping[str, str], table: str, dimensions: int) -> None:
    with transaction(connection, "IMMEDIATE"):
        connection.execute(sql["versions"])
        version: tuple[int] | None = connection.execute(sql["version"]).fetchone()
        found = 0 if version is None else version[0]
        refuse_newer(found)
        for name in ("settings", "table", "by_scope", "by_updated"):
            connection.execute(sql[name])
        pinned: tuple[int] | None = connection.execute(sql["dimensions"], {"table": table}).fetchone()
        if pinned is None:
            connection.execute(sql["set_dimensions"], {"table": table, "dimensions": dimensions})
        else:
            check_pinned(pinned[0], dimensions)
        if found < SCHEMA_VERSION:
            connection.execute(sql["set_version"], {"version": SCHEMA_VERSION})


def _record(row: tuple[Any, ...]) -> Record:
    *columns, vector = row
    try:
        return from_columns(Columns(*columns), from_bytes(vector))
    except ValueError as error:
        raise CorruptRow(f"record '{row[2]}' has a broken vector: {error}") from error


def _named(key: RecordKey) -> dict[str, str]:
    return {"namespace": key.namespace, "tenant": key.tenant, "id": key.id}


if TYPE_CHECKING:
    _conforms: type[LongTermStore] = SqliteLongTermStore
