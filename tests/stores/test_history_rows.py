"""What histories leave behind for other engines, and read of what those left."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import pytest
import redis.asyncio

from outcrop.stores import CorruptRow, InvalidRequest, NewerSchema, SqliteStore, StoreError
from outcrop.stores.history import Message, Role, SqliteHistoryStore
from outcrop.stores.history.postgres import PostgresHistoryStore
from outcrop.stores.history.redis import RedisHistoryStore
from outcrop.stores.history.timestamps import parse_timestamp, timestamp_text
from support.postgres import fresh_database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

MOMENT = datetime(2026, 11, 30, 10, 0, 0, 123_456, tzinfo=UTC)


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def raw_redis(url: str) -> AsyncGenerator[redis.asyncio.Redis]:
    client = redis.asyncio.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    ("microsecond", "text"),
    [
        (0, "2026-11-30T10:00:00Z"),
        (120_000, "2026-11-30T10:00:00.120Z"),
        (123_456, "2026-11-30T10:00:00.123456Z"),
        (1, "2026-11-30T10:00:00.000001Z"),
    ],
)
def test_a_timestamp_has_no_digits_or_three_or_six(microsecond: int, text: str) -> None:
    assert timestamp_text(MOMENT.replace(microsecond=microsecond), zone="Z") == text


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30T10:00:00.123+00:00", MOMENT.replace(microsecond=123_000)),
        ("2026-11-30T10:00:00.123456789Z", MOMENT),
        ("2026-11-30t10:00:00.1z", MOMENT.replace(microsecond=100_000)),
        ("2026-11-30 07:30:00-02:30", MOMENT.replace(microsecond=0)),
        ("2026-12-31T23:59:60Z", datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_any_rfc_3339_is_read(text: str, moment: datetime) -> None:
    assert parse_timestamp(text) == moment


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-11-30T10:00:00", "2026-13-30T10:00:00Z", "20261130T100000Z"]
)
def test_any_other_text_is_a_corrupt_row(text: str) -> None:
    with pytest.raises(CorruptRow, match=f"bad timestamp '{text}'"):
        parse_timestamp(text)


async def test_the_table_in_a_file(tmp_path: Path) -> None:
    """M2; E, §3.1: rows by sequence from 0, no schema version."""
    store = await SqliteHistoryStore.open(tmp_path / "h.db")
    for content in ("one", "two"):
        await store.append("s", Message(Role.USER, content, MOMENT))
    await store.close()
    with closing(sqlite3.connect(tmp_path / "h.db")) as file:
        assert file.execute("SELECT * FROM history_records ORDER BY sequence").fetchall() == [
            ("s", 0, "user", "one", "2026-11-30T10:00:00.123456+00:00"),
            ("s", 1, "user", "two", "2026-11-30T10:00:00.123456+00:00"),
        ]
        columns = file.execute("SELECT name, type, \"notnull\", pk FROM pragma_table_info('history_records')")
        assert columns.fetchall() == [
            ("session_id", "TEXT", 1, 1),
            ("sequence", "INTEGER", 1, 2),
            ("role", "TEXT", 1, 0),
            ("content", "TEXT", 1, 0),
            ("timestamp", "TEXT", 1, 0),
        ]
        tables = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        assert tables == [("history_records",)]


async def test_a_file_is_shared_with_checkpoints(tmp_path: Path) -> None:
    checkpoints = await SqliteStore.open(tmp_path / "all.db")
    history = await SqliteHistoryStore.open(tmp_path / "all.db")
    await history.append("s", Message(Role.TOOL, "x", MOMENT))
    assert await checkpoints.load("s") is None
    assert len(await history.get_history("s", 1)) == 1
    await history.close()
    await checkpoints.close()


async def test_a_foreign_row_of_a_file(tmp_path: Path) -> None:
    store = await SqliteHistoryStore.open(tmp_path / "h.db")
    with closing(sqlite3.connect(tmp_path / "h.db")) as file, file:
        file.execute("INSERT INTO history_records VALUES ('s', 0, 'boss', 'x', '2026-11-30T10:00:00Z')")
        file.execute("INSERT INTO history_records VALUES ('t', 0, 'user', 'x', 'now')")
    with pytest.raises(CorruptRow, match="unknown role 'boss' in history store"):
        await store.get_history("s", 1)
    with pytest.raises(CorruptRow, match="bad timestamp 'now' in the history"):
        await store.get_history("t", 1)
    await store.close()


async def test_a_history_needs_a_file() -> None:
    with pytest.raises(InvalidRequest, match="use InProcessHistoryStore"):
        await SqliteHistoryStore.open(":memory:")


async def test_the_table_in_postgres(postgres_server: str) -> None:
    """F2, F11: the format's columns, and the version of the component."""
    async with fresh_database(postgres_server) as url, connected(url) as database:
        store = await PostgresHistoryStore.open(url)
        await store.append("s", Message(Role.ASSISTANT, "x", MOMENT))
        await store.close()
        assert [tuple(row) for row in await database.fetch("SELECT * FROM history_records")] == [
            ("s", 0, "assistant", "x", "2026-11-30T10:00:00.123456Z")
        ]
        columns = await database.fetch(
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
            "WHERE table_name = 'history_records' ORDER BY ordinal_position"
        )
        assert [tuple(column) for column in columns] == [
            ("session_id", "text", "NO"),
            ("sequence", "bigint", "NO"),
            ("role", "text", "NO"),
            ("content", "text", "NO"),
            ("timestamp", "text", "NO"),
        ]
        versions = await database.fetch("SELECT component, version FROM strata_schema_version ORDER BY 1")
        assert [tuple(version) for version in versions] == [("history", 1), ("outcrop_history", 1)]


async def test_a_database_of_another_engine_keeps_its_messages(postgres_server: str) -> None:
    """F11: a table without a version row is brought up to date."""
    async with fresh_database(postgres_server) as url, connected(url) as database:
        await database.execute(
            "CREATE TABLE history_records (session_id TEXT NOT NULL, sequence BIGINT NOT NULL,"
            " role TEXT NOT NULL, content TEXT NOT NULL, timestamp TEXT NOT NULL,"
            " PRIMARY KEY (session_id, sequence))"
        )
        await database.execute(
            "INSERT INTO history_records VALUES ('s', 0, 'user', 'old', '2026-11-30T10:00:00.5+00:00')"
        )
        store = await PostgresHistoryStore.open(url)
        await store.append("s", Message(Role.USER, "new", MOMENT))
        assert [message.content for message in await store.get_history("s", 9)] == ["old", "new"]
        await store.close()


async def test_a_newer_or_missing_history_is_refused(postgres_server: str) -> None:
    """F12, F13."""
    async with fresh_database(postgres_server) as url, connected(url) as database:
        with pytest.raises(StoreError, match="history schema version 0, and this build needs 1"):
            await PostgresHistoryStore.open(url, auto_migrate=False)
        assert await database.fetchval("SELECT to_regclass('strata_schema_version')") is None
        await (await PostgresHistoryStore.open(url)).close()
        await (await PostgresHistoryStore.open(url, auto_migrate=False)).close()
        await database.execute("UPDATE strata_schema_version SET version = 2 WHERE component = 'history'")
        with pytest.raises(NewerSchema, match="history schema version 2, and this build knows 1"):
            await PostgresHistoryStore.open(url)


async def test_many_open_and_append_at_once(postgres_server: str) -> None:
    """F7, F8: one contiguous sequence, whoever appends, also without a lock's luck."""
    async with fresh_database(postgres_server) as url, connected(url) as database:
        stores = await asyncio.gather(*(PostgresHistoryStore.open(url, pool_size=3) for _ in range(6)))
        await asyncio.gather(
            *(store.append("s", Message(Role.USER, str(n), MOMENT)) for n in range(20) for store in stores)
        )
        assert len(await stores[0].get_history("s", 1000)) == 120
        ends = await database.fetchval("SELECT ARRAY[min(sequence), max(sequence)] FROM history_records")
        assert ends == [0, 119]
        for store in stores:
            await store.close()


async def test_postgres_refuses_nul_before_it_asks(postgres_server: str) -> None:
    async with fresh_database(postgres_server) as url:
        store = await PostgresHistoryStore.open(url)
        with pytest.raises(InvalidRequest, match="session 's' has a NUL in its message's content"):
            await store.append("s", Message(Role.USER, "a\0b", MOMENT))
        with pytest.raises(InvalidRequest, match="has a NUL in its ID"):
            await store.append("s\0", Message(Role.USER, "x", MOMENT))
        with pytest.raises(InvalidRequest):
            await store.get_history("s\0", 1)
        assert await store.get_history("s", 1) == ()
        await store.close()


async def test_an_append_works_behind_a_stateless_pool(postgres_server: str) -> None:
    """With `prepared` off, as behind PgBouncer in transaction mode."""
    async with fresh_database(postgres_server) as url:
        store = await PostgresHistoryStore.open(url, prepared=False)
        await store.append("s", Message(Role.USER, "x", MOMENT))
        assert len(await store.get_history("s", 1)) == 1
        await store.close()


async def test_the_element_in_redis(redis_server: str) -> None:
    """M3, G7: exactly role, content and timestamp; prefixes don't see each other."""
    prefix = f"t{uuid4().hex}"
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    store = await RedisHistoryStore.open(redis_server, prefix=prefix)
    other = await RedisHistoryStore.open(redis_server, prefix=f"{prefix}x")
    await store.append("s:1", Message(Role.USER, 'é "x"', moment))
    async with raw_redis(redis_server) as client:
        elements = await client.lrange(f"{prefix}:history:s:1", 0, -1)
        assert elements == [
            '{"content":"é \\"x\\"","role":"user","timestamp":"2023-11-14T22:13:20Z"}'.encode()
        ]
    assert await other.get_history("s:1", 9) == ()
    await store.close()
    await other.close()


@pytest.mark.parametrize(
    ("element", "told"),
    [
        ({"role": "user", "content": 1, "timestamp": "x"}, "history element is missing string 'content'"),
        ({"content": "x", "timestamp": "x"}, "history element is missing string 'role'"),
        (["x"], "history element is missing string 'role'"),
        ({"role": "boss", "content": "x", "timestamp": "x"}, "unknown role 'boss' in history store"),
        ({"role": "user", "content": "x", "timestamp": "x"}, "bad timestamp 'x'"),
    ],
)
async def test_a_broken_element_in_redis(redis_server: str, element: object, told: str) -> None:
    prefix = f"t{uuid4().hex}"
    store = await RedisHistoryStore.open(redis_server, prefix=prefix)
    async with raw_redis(redis_server) as client:
        await client.rpush(f"{prefix}:history:s", json.dumps(element))
    with pytest.raises(CorruptRow, match=told):
        await store.get_history("s", 1)
    await store.close()


async def test_redis_loses_no_message_of_concurrent_writers(redis_server: str) -> None:
    """G8."""
    prefix = f"t{uuid4().hex}"
    stores = [await RedisHistoryStore.open(redis_server, prefix=prefix) for _ in range(4)]
    await asyncio.gather(
        *(store.append("s", Message(Role.USER, str(n), MOMENT)) for n in range(25) for store in stores)
    )
    assert len(await stores[0].get_history("s", 1000)) == 100
    for store in stores:
        await store.close()
