"""Opening SQLite files: old layouts, newer ones, many at once, and for reading only (E6-E10, C15)."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import NewerSchema, Saved, SqliteStore, StoreError, ThreadQuery, Unavailable
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.sqlite.migrate import STEPS, migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = "2026-01-02T03:04:05Z"
FIRST = """
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, sequence INTEGER NOT NULL, schema_version TEXT NOT NULL, status TEXT NOT NULL,
    suspended_node TEXT, next_node TEXT, frozen_state TEXT NOT NULL, metadata TEXT,
    created_at TEXT NOT NULL, resumed_at TEXT{later}, PRIMARY KEY (thread_id, sequence));
INSERT INTO checkpoints (thread_id, sequence, schema_version, status, frozen_state, metadata, created_at)
VALUES ('t', 0, '1.0.0', 'interrupted', '1', '{{"a":"0"}}', '2026-01-01T00:00:00Z'),
       ('t', 1, '1.0.0', 'failed', '2', '{{"a":"1"}}', '2026-01-02T00:00:00Z'),
       ('u', 0, '1.0.0', 'completed', '3', NULL, '2026-01-01T00:00:00Z');
"""
OLD_HEADS = """
CREATE TABLE checkpoint_threads (
    thread_id TEXT NOT NULL PRIMARY KEY, sequence INTEGER NOT NULL, state TEXT NOT NULL,
    updated_at TEXT NOT NULL, metadata TEXT{later});
CREATE INDEX checkpoint_threads_by_state ON checkpoint_threads (state, updated_at, thread_id);
CREATE INDEX checkpoint_threads_by_updated ON checkpoint_threads (updated_at, thread_id);
CREATE TRIGGER checkpoints_head AFTER INSERT ON checkpoints BEGIN
    INSERT INTO checkpoint_threads (thread_id, sequence, state, updated_at, metadata)
    VALUES (NEW.thread_id, NEW.sequence, NEW.status, NEW.created_at, NEW.metadata)
    ON CONFLICT (thread_id) DO UPDATE SET sequence = excluded.sequence, state = excluded.state;
END;
INSERT INTO checkpoint_threads (thread_id, sequence, state, updated_at, metadata)
VALUES ('t', 1, 'failed', '2026-01-02T00:00:00Z', '{{"a":"1"}}'),
       ('u', 0, 'completed', '2026-01-01T00:00:00Z', NULL);
"""
LAYOUTS = {
    "no heads, no nested": FIRST.format(later=""),
    "before waits": FIRST.format(later=", nested TEXT, decision TEXT") + OLD_HEADS.format(later=""),
    "before identities": FIRST.format(later=", nested TEXT, decision TEXT, wait TEXT, wake_at TEXT")
    + OLD_HEADS.format(later=", wake_at TEXT"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def script(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)


def half_written(path: Path) -> Path:
    """A copy of the file as a writer leaves it that dies while it spills a large transaction."""
    copy = path.with_name("crashed.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE large AS SELECT zeroblob(1000000) AS content")
        connection.execute("UPDATE strata_schema_version SET version = 2")
        shutil.copyfile(path, copy)
        shutil.copyfile(f"{path}-journal", f"{copy}-journal")
        connection.execute("ROLLBACK")
    return copy


def contents(path: Path) -> bytes:
    return path.read_bytes()


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_old_layouts_are_upgraded_with_their_rows(layout: str, path: Path) -> None:
    """E6, E7, C15: columns, heads, indexes, trigger and leases; opening again changes nothing."""
    script(path, LAYOUTS[layout])
    store = await SqliteStore.open(path)
    found = {summary.thread_id: summary for summary in (await store.list_threads(ThreadQuery())).threads}
    assert {name: (summary.sequence, summary.state.value) for name, summary in found.items()} == {
        "t": (1, "failed"), "u": (0, "completed"),
    }  # fmt: skip
    row = await store.load("t")
    assert row is not None
    assert (row.sequence, row.checkpoint.frozen_state, row.checkpoint.metadata) == (1, "2", {"a": "1"})
    assert await store.save(SHAPES["timer"]) == Saved(2)
    assert await store.save(SHAPES["identified"]) == Saved(3)  # the new trigger fills the new columns
    page = await store.list_threads(ThreadQuery(graph_id="orders", graph_version="2"))
    assert [summary.sequence for summary in page.threads] == [3]
    assert await store.get_lease("t") is None
    await store.close()
    before = dump(path)
    await (await SqliteStore.open(path)).close()
    assert dump(path) == before


async def test_a_version_1_file_gains_the_blobs(path: Path) -> None:
    """E10."""
    store = await SqliteStore.open(path)
    await store.save(sample())
    await store.close()
    whole = dump(path)
    script(path, "DROP TABLE checkpoint_blobs; UPDATE strata_schema_version SET version = 1;")
    store = await SqliteStore.open(path)
    assert await store.load("t") is not None
    await store.close()
    assert sorted(dump(path)) == sorted(whole)


def traced(connection: sqlite3.Connection) -> Iterator[str]:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    migrate(connection, (*STEPS, (3, ("drop_trigger",)), (4, ("trigger",))))
    connection.set_trace_callback(None)
    return (text.split("\n")[0] for text in statements)


async def test_later_steps_run_once_in_order_and_close_the_file_to_this_build(path: Path) -> None:
    """E9."""
    await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        ran = [text for text in traced(connection) if "TRIGGER" in text]
        assert ran == [
            "DROP TRIGGER IF EXISTS checkpoints_head",
            "CREATE TRIGGER checkpoints_head AFTER INSERT ON checkpoints",
        ]
        assert not [text for text in traced(connection) if "TRIGGER" in text]
    before = dump(path)
    message = "database is at checkpoints schema version 4, and this build knows 2: upgrade the runtime"
    for opening in (SqliteStore.open(path), SqliteStore.open_read_only(path)):
        with pytest.raises(NewerSchema) as refusal:
            await opening
        assert str(refusal.value) == message
    assert dump(path) == before


async def test_many_open_a_new_file_at_once(path: Path) -> None:
    stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(8)))
    await asyncio.gather(*(store.save(sample(str(at))) for at, store in enumerate(stores)))
    assert len((await stores[0].list_threads(ThreadQuery())).threads) == 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_many_upgrade_an_old_file_at_once(path: Path) -> None:
    script(path, LAYOUTS["no heads, no nested"])
    stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(8)))
    assert len((await stores[0].list_threads(ThreadQuery())).threads) == 2
    await asyncio.gather(*(store.close() for store in stores))


async def test_reading_only_writes_nothing(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.save(sample())
    reader = await SqliteStore.open_read_only(path)
    before = contents(path)
    assert await reader.load("t") is not None
    assert len((await reader.list_threads(ThreadQuery())).threads) == 1
    assert len((await reader.get_log("t")).entries) == 1
    with pytest.raises(StoreError, match="attempt to write a readonly database"):
        await reader.save(sample())
    assert contents(path) == before
    await reader.close()
    await store.close()


async def test_reading_only_needs_a_checkpoint_database(path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no checkpoint database at '.*store.db'"):
        await SqliteStore.open_read_only(path)
    script(path, "CREATE TABLE something (else_ TEXT);")
    with pytest.raises(StoreError, match="the file has no checkpoints"):
        await SqliteStore.open_read_only(path)
    script(path, LAYOUTS["before waits"])
    before = dump(path)
    with pytest.raises(
        StoreError, match="schema version 0, and this build needs 2: open it once for writing"
    ):
        await SqliteStore.open_read_only(path)
    assert dump(path) == before


async def test_reading_only_says_that_a_crashed_writer_left_a_journal(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    crashed = half_written(path)
    with pytest.raises(
        Unavailable, match="a writer crashed, and the next one to open the file puts it right"
    ):
        await SqliteStore.open_read_only(crashed)
    await (await SqliteStore.open(crashed)).close()
    await (await SqliteStore.open_read_only(crashed)).close()


@pytest.fixture
def text_file(path: Path) -> Path:
    path.write_text("a text file that is long enough to not be taken for an empty database")
    return path


async def test_what_is_no_database_is_refused(text_file: Path) -> None:
    for opening in (SqliteStore.open(text_file), SqliteStore.open_read_only(text_file)):
        with pytest.raises(StoreError, match="file is not a database"):
            await opening
