"""The table of a Postgres memory: its statements, and what it takes to have it there.

A database that is as it should be is only looked at, so an opener needs no right to create
anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from outcrop.stores.errors import InvalidRequest, StoreError
from outcrop.stores.postgres.migrate import Component, migrate
from outcrop.stores.statements import named_statements

from .schema import SCHEMA_VERSION, check_pinned, check_table_name

if TYPE_CHECKING:
    from outcrop.stores.postgres.session import Session

    from .hnsw import Hnsw

_STATEMENTS = named_statements(__package__, "postgres.sql")
_MAX_HNSW_DIMENSIONS: Final = 2000


class Schema:
    """One table of vectors of so many dimensions; raises `InvalidRequest` for one that can't be."""

    def __init__(self, table: str, dimensions: int, hnsw: Hnsw | None) -> None:
        check_table_name(table, in_postgres=True)
        if hnsw is not None and dimensions > _MAX_HNSW_DIMENSIONS:
            raise InvalidRequest(
                f"an HNSW index takes at most {_MAX_HNSW_DIMENSIONS} dimensions, not {dimensions}"
            )
        self.dimensions = dimensions
        self.hnsw = hnsw
        self._table = table
        names = {
            "table": table,
            "name": table.rpartition(".")[2],
            "dimensions": dimensions,
            "m": None if hnsw is None else hnsw.m,
            "ef_construction": None if hnsw is None else hnsw.ef_construction,
        }
        self.statements = {name: text.format(**names) for name, text in _STATEMENTS.items()}

    async def prepare(self, session: Session, *, allowed: bool) -> None:
        """Have the table there, creating it only if that is `allowed`; raises `StoreError`."""
        found = await self._pinned(session)
        if found is None and not allowed:
            raise StoreError(f"the memory table '{self._table}' doesn't exist: run its migration")
        component = Component("memory", SCHEMA_VERSION, lambda session, _: self._create(session))
        await migrate(session, (component,), allowed=allowed)
        if allowed and not await self._is_whole(
            session
        ):  # another table than the one that came with the version
            async with session.transaction():
                await session.execute(self.statements["lock"])
                await self._create(session)

    async def _create(self, session: Session) -> None:
        try:
            await session.execute(self.statements["extension"])
        except asyncpg.PostgresError as error:
            raise StoreError(
                f"memory needs pgvector: CREATE EXTENSION vector failed ({error.args[0]})"
            ) from error
        index = () if self.hnsw is None else ("hnsw",)
        for name in ("table", "by_scope", "by_updated", *index):
            await session.execute(self.statements[name])
        await self._pinned(session)

    async def _is_whole(self, session: Session) -> bool:
        if await self._pinned(session) is None:
            return False
        schema, dot, name = self._table.rpartition(".")
        index = f"{schema}{dot}{name}_embedding_hnsw"
        return self.hnsw is None or bool(await session.value("SELECT to_regclass($1) IS NOT NULL", index))

    async def _pinned(self, session: Session) -> int | None:
        """The dimensions of the table, None when there is none; raises `StoreError` for other ones."""
        rows = await session.fetch(self.statements["dimensions"], self._table)
        if not rows:
            return None
        found: int = rows[0][0]
        check_pinned(found, self.dimensions)
        return found
