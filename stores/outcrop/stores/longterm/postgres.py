"""The long-term memory in a Postgres database with pgvector, which checkpoints may share.

The dimensions are pinned by the type of the table's vectors. Creating anything is done under
the format's DDL lock, in one transaction, so a refused open leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.instants import instant_text
from outcrop.stores.leases import system_now
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.options import DEFAULT_RETRIES
from outcrop.stores.postgres.arguments import has_escaped_nul
from outcrop.stores.postgres.database import Access, Database
from outcrop.stores.postgres.numbers import with_fixed_floats

from .answers import page_of_records, rank
from .checks import check_dimensions, check_key, check_listing, check_purge, check_record, check_search
from .columns import Columns, from_columns, to_parameters
from .postgres_schema import Schema
from .record import Match
from .vectors import to_float32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from outcrop.stores.options import RetryOptions
    from outcrop.stores.postgres.session import Session

    from .hnsw import Hnsw
    from .port import LongTermStore
    from .record import Listing, Purge, Record, RecordKey, RecordPage, Search

_JSON: Final = frozenset({"content", "metadata"})


class PostgresLongTermStore:
    """A long-term memory in one table; see `open`. Belongs to the event loop that opened it."""

    def __init__(self, database: Database, schema: Schema, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._schema = schema
        self._sql: Mapping[str, str] = schema.statements
        self._clock = clock

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        dimensions: int,
        table: str = "memory_records",
        hnsw: Hnsw | None = None,
        auto_migrate: bool = True,
        pool_size: int = 16,
        prepared: bool = True,
        retries: RetryOptions = DEFAULT_RETRIES,
        clock: Callable[[], datetime] = system_now,
    ) -> Self:
        """Connect, creating the extension, the table (`name` or `schema.name`) and the index when missing.

        With `auto_migrate` off a missing table is refused; `prepared` off is for PgBouncer in
        transaction mode; `clock` dates the records. Raises `InvalidRequest` for bad options,
        `NewerSchema` for a database of a newer build, and `StoreError` when there is no
        pgvector or the table has other dimensions.
        """
        check_dimensions(dimensions)
        schema = Schema(table, dimensions, hnsw)
        database = Database(Access(url=url, prepared=prepared, pool_size=pool_size, retries=retries))
        async with closed_on_failure(database):
            await database.run_patiently(lambda session: schema.prepare(session, allowed=auto_migrate))
        return cls(database, schema, clock)

    async def upsert(self, record: Record) -> None:
        await self.upsert_many([record])

    async def upsert_many(self, records: Sequence[Record]) -> None:
        for record in records:
            check_record(record, self._schema.dimensions)
        rows = dict(_row(record) for record in records)  # of two with one key the later
        columns = [list(column) for column in zip(*(rows[key] for key in sorted(rows)), strict=True)]
        now = instant_text(self._clock())
        if columns:
            await self._database.run(lambda session: session.fetch(self._sql["upsert"], *columns, now))

    async def get(self, key: RecordKey) -> Record | None:
        rows = await self._of_key("get", key)
        return _record(*rows[0]) if rows else None

    async def delete(self, key: RecordKey) -> bool:
        return bool(await self._of_key("delete", key))

    async def search(self, search: Search) -> tuple[Match, ...]:
        check_search(search, self._schema.dimensions)
        arguments = (
            search.namespace,
            search.tenant,
            search.embedding.model,
            _vector_text(search.embedding.vector),
            list(search.exclude),
            orjson.dumps(dict(search.metadata)).decode(),
        )
        exact = self._schema.hnsw is None

        async def find(session: Session) -> Sequence[Iterable[Any]]:
            if exact:
                return await session.fetch(self._sql["search"], *arguments, search.limit)
            async with session.transaction():
                await session.execute(self._sql["iterate"])
                return await session.fetch(self._sql["search_index"], *arguments, 2 * search.limit)

        rows = await self._database.run(find)
        return rank((Match(_record(*columns), 1.0 - distance) for distance, *columns in rows), search)

    async def list_records(self, listing: Listing) -> RecordPage:
        arguments = (
            listing.namespace,
            listing.tenant,
            check_listing(listing),
            orjson.dumps(dict(listing.metadata)).decode(),
            listing.limit + 1,
        )
        rows = await self._database.run(lambda session: session.fetch(self._sql["list"], *arguments))
        return page_of_records([_record(*row) for row in rows], listing.limit)

    async def purge(self, purge: Purge) -> int:
        check_purge(purge)
        arguments = (instant_text(purge.older_than), purge.namespace, purge.tenant, purge.limit)
        purged: int = await self._database.run(lambda session: session.value(self._sql["purge"], *arguments))
        return purged

    async def close(self) -> None:
        """Disconnect after the calls before; idempotent."""
        await self._database.close()

    async def _of_key(self, statement: str, key: RecordKey) -> Sequence[Iterable[Any]]:
        check_key(key)
        arguments = (key.namespace, key.tenant, key.id)
        return await self._database.run(lambda session: session.fetch(self._sql[statement], *arguments))


def _row(record: Record) -> tuple[tuple[str, str, str], Sequence[str | None]]:
    """The record's key, and the arguments of its place in an upsert."""
    columns = to_parameters(record)
    for name, value in columns.items():
        if value is not None and ("\0" in value or (name in _JSON and has_escaped_nul(value))):
            raise InvalidRequest(f"record {record.id!r} has a NUL in its {name}, and Postgres can't hold one")
    content = columns["content"]
    return (record.namespace, record.tenant, record.id), (
        record.namespace,
        record.tenant,
        record.id,
        record.embedding.model,
        _vector_text(record.embedding.vector),
        None if content is None else with_fixed_floats(content),
        record.text,
        columns["metadata"],
    )


def _record(*row: Any) -> Record:  # noqa: ANN401 - a row's columns
    *columns, vector = row
    return from_columns(Columns(*columns), tuple(to_float32(orjson.loads(vector))))


def _vector_text(vector: Sequence[float]) -> str:
    """`[1.0,0.5]`: pgvector reads the nearest float32 of each number."""
    return orjson.dumps(to_float32(vector).tolist()).decode()


if TYPE_CHECKING:
    _conforms: type[LongTermStore] = PostgresLongTermStore
