"""The long-term memory in Postgres: its table, its index, and what it refuses to open."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from outcrop.stores import InvalidRequest, NewerSchema, StoreError
from outcrop.stores.longterm import Embedding, Hnsw, Listing, Purge, Search
from outcrop.stores.longterm.postgres import PostgresLongTermStore
from outcrop.stores.longterm.postgres_schema import Schema
from support.longterm import START, HandClock, pgvector_server, record
from support.postgres import fresh_database

if TYPE_CHECKING:
    from collections.abc import Sequence


async def opened(url: str, dimensions: int = 2, **options: Any) -> PostgresLongTermStore:
    return await PostgresLongTermStore.open(url, dimensions=dimensions, clock=HandClock(), **options)


async def rows(url: str, statement: str, *arguments: object) -> Sequence[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *arguments)]
    finally:
        await connection.close()


async def tables(url: str) -> list[str]:
    return [
        name
        for (name,) in await rows(
            url,
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1",
        )
    ]


async def test_the_table_is_the_formats() -> None:
    """N3, N4."""
    async with fresh_database(pgvector_server()) as url:
        await (await opened(url, 3)).close()
        columns = await rows(
            url,
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull, collname FROM pg_attribute "
            "LEFT JOIN pg_collation AS c ON c.oid = attcollation "
            "WHERE attrelid = 'memory_records'::regclass AND attnum > 0 ORDER BY attnum",
        )
        assert columns == [
            ("namespace", "text", True, "C"),
            ("tenant", "text", True, "C"),
            ("id", "text", True, "C"),
            ("model", "text", True, "default"),
            ("embedding", "vector(3)", True, None),
            ("content", "jsonb", False, None),
            ("text", "text", False, "default"),
            ("metadata", "jsonb", True, None),
            ("created_at", "text", True, "default"),
            ("updated_at", "text", True, "default"),
        ]
        indexes = await rows(
            url, "SELECT indexname FROM pg_indexes WHERE tablename = 'memory_records' ORDER BY 1"
        )
        assert [name for (name,) in indexes] == [
            "memory_records_pkey",
            "memory_records_scope",
            "memory_records_updated",
        ]
        assert await rows(url, "SELECT * FROM strata_schema_version") == [("memory", 1)]


async def test_opening_again_changes_nothing_and_keeps_the_records() -> None:
    """N4."""
    async with fresh_database(pgvector_server()) as url:
        first = await opened(url)
        await first.upsert(record("a"))
        await first.close()
        again = await opened(url, auto_migrate=False)
        assert await again.get(record("a").key) is not None
        await again.close()


async def test_many_open_a_fresh_database_at_once() -> None:
    """N4; F8 for the memory."""
    async with fresh_database(pgvector_server()) as url:
        for store in await asyncio.gather(*(opened(url, hnsw=Hnsw()) for _ in range(6))):
            await store.close()


async def test_a_newer_database_is_refused_unchanged() -> None:
    """N4."""
    async with fresh_database(pgvector_server()) as url:
        await rows(
            url, "CREATE TABLE strata_schema_version (component TEXT PRIMARY KEY, version BIGINT NOT NULL)"
        )
        await rows(url, "INSERT INTO strata_schema_version VALUES ('memory', 2)")
        with pytest.raises(
            NewerSchema, match="database is at memory schema version 2, and this build knows 1"
        ):
            await opened(url)
        assert await tables(url) == ["strata_schema_version"]


async def test_other_dimensions_are_refused_but_in_another_table() -> None:
    """N5."""
    async with fresh_database(pgvector_server()) as url:
        await (await opened(url)).close()
        with pytest.raises(StoreError) as caught:
            await opened(url, 3)
        assert str(caught.value) == "memory was created with 2 dimensions, and this store was opened with 3"
        await rows(url, "CREATE SCHEMA apart")
        other = await opened(url, 3, table="apart.memory_records", hnsw=Hnsw(m=8, ef_construction=32))
        await other.upsert(record("a", 1, 2, 3))
        assert await other.get(record("a").key) is not None
        await other.close()
        made = await rows(
            url, "SELECT reloptions FROM pg_class WHERE relname = 'memory_records_embedding_hnsw'"
        )
        assert made == [(["m=8", "ef_construction=32"],)]


async def test_an_index_is_created_when_asked_for_and_searched() -> None:
    """N7: also on a table that was made without one."""
    async with fresh_database(pgvector_server()) as url:
        await (await opened(url)).close()
        store = await opened(url, hnsw=Hnsw())
        definition = await rows(
            url, "SELECT indexdef FROM pg_indexes WHERE indexname = 'memory_records_embedding_hnsw'"
        )
        assert (
            "USING hnsw (embedding vector_cosine_ops) WITH (m='16', ef_construction='64')" in definition[0][0]
        )
        await store.upsert_many(
            [replace(record(f"{n:03}", 1.0, n / 100), metadata={"odd": str(n % 2)}) for n in range(300)]
        )
        wanted = Search(
            namespace="notes", embedding=Embedding("m", (1.0, 0.0)), metadata={"odd": "1"}, limit=3
        )
        assert [match.record.id for match in await store.search(wanted)] == ["001", "003", "005"]
        await store.close()


def test_the_longest_table_has_indexes_of_other_names() -> None:
    """Postgres cuts a name at 63 characters."""
    statements = Schema("t" * 61, 2, Hnsw()).statements.values()
    names = [found[1][:63] for text in statements for found in re.finditer(r"EXISTS (t{61}\w*)", text)]
    assert len(names) == len(set(names)) == 4


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"dimensions": 2001, "hnsw": Hnsw()}, "an HNSW index takes at most 2000 dimensions, not 2001"),
        ({"table": "a.b.c"}, "the memory table 'a.b.c' isn't a lowercase SQL name"),
        ({"table": "t" * 62}, f"the memory table '{'t' * 62}' isn't a lowercase SQL name"),
        ({"table": "a."}, "the memory table 'a.' isn't a lowercase SQL name"),
        ({"table": 'a"b'}, "the memory table 'a\"b' isn't a lowercase SQL name"),
        ({"dimensions": 16001}, "a memory store has 1 to 16000 dimensions, not 16001"),
    ],
)
async def test_bad_options_are_refused_before_connecting(options: dict[str, Any], refusal: str) -> None:
    """N7."""
    with pytest.raises(InvalidRequest) as caught:
        await opened("postgres://nobody@127.0.0.1:1/nowhere", **options)
    assert str(caught.value) == refusal


async def test_without_migration_a_missing_table_is_refused() -> None:
    """N7, N4."""
    async with fresh_database(pgvector_server()) as url:
        with pytest.raises(StoreError) as caught:
            await opened(url, auto_migrate=False)
        assert str(caught.value) == "the memory table 'memory_records' doesn't exist: run its migration"
        assert await tables(url) == []


async def test_without_pgvector_nothing_is_created(postgres_server: str) -> None:
    """N4: the exact refusal of a server that has no pgvector."""
    async with fresh_database(postgres_server) as url:
        available = await rows(url, "SELECT FROM pg_available_extensions WHERE name = 'vector'")
        if available:
            pytest.skip("this server has pgvector")
        with pytest.raises(
            StoreError, match=r"^memory needs pgvector: CREATE EXTENSION vector failed \(.+\)$"
        ):
            await opened(url)
        assert await tables(url) == []


async def test_floats_and_nested_content_come_back_as_they_were() -> None:
    """JSONB keeps no exponents."""
    content: dict[str, Any] = {
        "big": 1e21,
        "small": 1e-7,
        "whole": 100.0,
        "int": 2**63,
        "deep": [{"x": 1e16}],
    }
    async with fresh_database(pgvector_server()) as url:
        store = await opened(url)
        await store.upsert(replace(record("a"), content=content))
        kept = await store.get(record("a").key)
        assert kept is not None
        assert repr(dict(sorted((kept.content or {}).items()))) == repr(dict(sorted(content.items())))
        await store.close()


async def test_nul_is_refused_naming_the_record() -> None:
    async with fresh_database(pgvector_server()) as url:
        store = await opened(url)
        for bad, field in [
            (replace(record("a"), text="x\0"), "text"),
            (replace(record("a"), content={"x": ["\0"]}), "content"),
            (replace(record("a"), metadata={"x": "\0"}), "metadata"),
        ]:
            with pytest.raises(InvalidRequest, match=f"record 'a' has a NUL in its {field}"):
                await store.upsert_many([record("good"), bad])
        await store.upsert(replace(record("a"), content={"x": "\\u0000"}))  # a text about one
        assert await store.get(record("good").key) is None
        await store.close()


async def test_batches_that_share_records_do_not_deadlock() -> None:
    async with fresh_database(pgvector_server()) as url:
        store = await opened(url)
        batch = [record(f"{n:03}") for n in range(100)]
        await asyncio.gather(*(store.upsert_many(batch[::step]) for step in (1, -1) * 8))
        assert len((await store.list_records(Listing(namespace="notes", limit=1000))).records) == 100
        await store.close()


async def test_it_works_behind_a_stateless_pool() -> None:
    """With `prepared` off, as behind PgBouncer in transaction mode."""
    async with fresh_database(pgvector_server()) as url:
        store = await opened(url, prepared=False, hnsw=Hnsw())
        await store.upsert_many([record("a"), record("b", 0.0, 1.0)])
        wanted = Search(namespace="notes", embedding=Embedding("m", (1.0, 0.0)))
        assert [match.record.id for match in await store.search(wanted)] == ["a", "b"]
        assert await store.purge(Purge(older_than=START + timedelta(days=1))) == 2
        await store.close()
