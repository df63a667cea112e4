"""SQLite rows: tables, columns and heads as every engine of the format shares them (E1-E5, E8, C13-C14)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import CorruptRow, Saved, SqliteStore, ThreadQuery
from outcrop.stores.codec import encode, same_as
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.port import Acquired, Held
from support.stores import SqliteBinding

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = [
    ("thread_id", "TEXT", 1, 1), ("sequence", "INTEGER", 1, 2), ("schema_version", "TEXT", 1, 0),
    ("status", "TEXT", 1, 0), ("suspended_node", "TEXT", 0, 0), ("next_node", "TEXT", 0, 0),
    ("frozen_state", "TEXT", 1, 0), ("metadata", "TEXT", 0, 0), ("created_at", "TEXT", 1, 0),
    ("resumed_at", "TEXT", 0, 0), ("nested", "TEXT", 0, 0), ("decision", "TEXT", 0, 0),
    ("wait", "TEXT", 0, 0), ("wake_at", "TEXT", 0, 0), ("graph_id", "TEXT", 0, 0),
    ("graph_version", "TEXT", 0, 0),
]  # fmt: skip
TABLES: dict[str, list[tuple[str, str, int, int]]] = {
    "checkpoints": COLUMNS,
    "checkpoint_threads": [
        ("thread_id", "TEXT", 1, 1), ("sequence", "INTEGER", 1, 0), ("state", "TEXT", 1, 0),
        ("updated_at", "TEXT", 1, 0), ("metadata", "TEXT", 0, 0), ("wake_at", "TEXT", 0, 0),
        ("graph_id", "TEXT", 0, 0), ("graph_version", "TEXT", 0, 0),
    ],
    "checkpoint_leases": [
        ("thread_id", "TEXT", 1, 1), ("owner", "TEXT", 0, 0), ("token", "INTEGER", 1, 0),
        ("expires_at", "INTEGER", 0, 0),
    ],
    "checkpoint_blobs": [("thread_id", "TEXT", 1, 1), ("hash", "TEXT", 1, 2), ("content", "BLOB", 1, 0)],
    "outcrop_notes": [
        ("thread_id", "TEXT", 1, 1), ("sequence", "INTEGER", 1, 2), ("kind", "TEXT", 1, 3),
        ("path", "TEXT", 1, 4), ("created_at", "TEXT", 1, 0), ("value", "TEXT", 1, 0),
    ],
    "strata_schema_version": [("component", "TEXT", 1, 1), ("version", "INTEGER", 1, 0)],
}  # fmt: skip
RAW = (
    "INSERT INTO checkpoints (thread_id, sequence, schema_version, status, frozen_state, metadata,"
    " created_at, resumed_at, wait, wake_at) VALUES (?, ?, '1.0.0', ?, '{\"raw\":true}', ?, ?, ?, ?, ?)"
)


@pytest.fixture
def binding(tmp_path: Path) -> SqliteBinding:
    return SqliteBinding(tmp_path / "store.db")


def rows(path: Path, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run raw SQL as another program would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


async def test_tables_indexes_and_versions(binding: SqliteBinding) -> None:
    """E1."""
    async with binding.open():
        pass
    for table, columns in TABLES.items():
        assert (
            rows(binding.path, 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', table) == columns
        )
    named = "SELECT name FROM sqlite_schema WHERE type = ? AND sql IS NOT NULL ORDER BY name"
    assert rows(binding.path, named, "table") == [(table,) for table in sorted(TABLES)]
    assert rows(binding.path, named, "trigger") == [("checkpoints_head",)]
    indexes = {
        name: [column for (column,) in rows(binding.path, "SELECT name FROM pragma_index_info(?)", name)]
        for (name,) in rows(binding.path, named, "index")
    }
    assert indexes == {
        "checkpoint_threads_by_graph": ["graph_id", "updated_at", "thread_id"],
        "checkpoint_threads_by_state": ["state", "updated_at", "thread_id"],
        "checkpoint_threads_by_updated": ["updated_at", "thread_id"],
        "checkpoint_threads_by_wake": ["wake_at"],
    }
    versions = rows(binding.path, "SELECT * FROM strata_schema_version ORDER BY component")
    assert versions == [("checkpoints", 2), ("outcrop", 1)]


async def test_no_pragma_is_set(binding: SqliteBinding) -> None:
    """Hazard 11: the file stays as its owner made it."""
    async with binding.open() as store:
        await store.save(sample())
    for pragma, value in (("journal_mode", "delete"), ("user_version", 0), ("application_id", 0)):
        assert rows(binding.path, f"PRAGMA {pragma}") == [(value,)]


@pytest.mark.parametrize("name", SHAPES)
async def test_columns_of_every_shape(name: str, binding: SqliteBinding) -> None:
    """E2."""
    row = SHAPES[name]
    async with binding.open() as store:
        await store.save(row)
    (stored,) = rows(binding.path, "SELECT * FROM checkpoints")
    whole = json.loads(encode(row))
    wait, graph = row.innermost.wait, row.graph
    expected = {
        **{column: whole[column] for column in ("thread_id", "schema_version", "status", "suspended_node",
                                                "next_node", "created_at", "resumed_at")},
        "sequence": 0,
        "frozen_state": row.frozen_state,
        "wake_at": None if wait is None else wait.wake_at,
        "graph_id": None if graph is None else graph.id,
        "graph_version": None if graph is None else graph.version,
    }  # fmt: skip
    values = dict(zip((column for column, *_ in COLUMNS), stored, strict=True))
    for column in ("metadata", "nested", "decision", "wait"):
        text = values.pop(column)
        assert (None if text is None else json.loads(text)) == whole.get(column)
    assert values == expected
    types = rows(binding.path, "SELECT typeof(frozen_state), typeof(sequence) FROM checkpoints")
    assert types == [("text", "integer")]


async def test_a_known_row_to_the_byte(binding: SqliteBinding) -> None:
    """E2: the nested wait, with the innermost wake time beside it."""
    async with binding.open() as store:
        await store.save(SHAPES["nested wait"])
        await store.save(SHAPES["timer"])
    nested, timer = rows(
        binding.path, "SELECT metadata, nested, wait, wake_at FROM checkpoints ORDER BY sequence"
    )
    assert nested[0] == '{"level":"0"}'
    assert nested[1].startswith('{"schema_version":"1.5.0","thread_id":"Work","status":"interrupted",')
    assert nested[2:] == (None, "2026-01-03T00:00:00Z")
    wait = '{"kind":"timer","event_type":null,"wake_at":"2026-01-02T04:00:00Z"}'
    assert timer == (None, None, wait, "2026-01-02T04:00:00Z")


async def test_a_raw_row_is_loaded_and_listed(binding: SqliteBinding) -> None:
    """E3, E5: whoever inserts it."""
    async with binding.open() as store:
        at, wait = "2026-01-02T03:04:05Z", '{"wake_at":null,"kind":"human"}'
        rows(binding.path, RAW, "raw", 0, "interrupted", ' {"a" : "b"} ', at, None, wait, None)
        row = await store.load("raw")
        assert row is not None
        assert (row.sequence, row.checkpoint.frozen_state) == (0, '{"raw":true}')
        assert row.checkpoint.metadata == {"a": "b"}
        page = await store.list_threads(ThreadQuery(metadata={"a": "b"}))
        assert [summary.thread_id for summary in page.threads] == ["raw"]
        assert await store.save(sample("raw")) == Saved(1)


async def test_the_head_only_moves_forward(binding: SqliteBinding) -> None:
    """E5."""
    head = "SELECT sequence, state, updated_at, metadata, wake_at FROM checkpoint_threads"
    async with binding.open():
        at, later = "2026-01-02T03:04:05Z", "2026-01-03T00:00:00Z"
        rows(binding.path, RAW, "t", 5, "failed", None, at, None, None, None)
        assert rows(binding.path, head) == [(5, "failed", at, None, None)]
        rows(binding.path, RAW, "t", 4, "completed", "{}", later, None, None, None)
        assert rows(binding.path, head) == [(5, "failed", at, None, None)]
        rows(binding.path, RAW, "t", 6, "interrupted", "{}", at, later, None, later)
        assert rows(binding.path, head) == [(6, "resumed", later, "{}", later)]


async def test_rows_survive_store_instances(binding: SqliteBinding) -> None:
    """E4, E8."""
    for sequence in range(3):
        async with binding.open() as store:
            assert await store.save(sample("a")) == Saved(sequence)
    async with binding.open() as store:
        assert await store.save(sample("b")) == Saved(0)
        row = await store.load("a")
        assert row is not None
        assert row.sequence == 2


async def test_lease_rows(binding: SqliteBinding) -> None:
    """C13: milliseconds as an integer; a released row keeps its token."""
    async with binding.open() as store:
        answer = await store.acquire_lease("t", "worker-1", timedelta(milliseconds=1, microseconds=1))
        assert isinstance(answer, Acquired)
        now = int(binding.clock.now.timestamp() * 1000)
        table = "SELECT *, typeof(expires_at) FROM checkpoint_leases"
        assert rows(binding.path, table) == [("t", "worker-1", 1, now + 2, "integer")]
        await store.release_lease(answer.lease)
        assert rows(binding.path, table) == [("t", None, 1, None, "null")]


async def test_leases_that_another_writer_left(binding: SqliteBinding) -> None:
    """C14."""
    now = int(binding.clock.now.timestamp() * 1000)
    async with binding.open() as store:
        for thread_id, owner, token, expires_at in (
            ("live", "other", 7, now + 1),
            ("expired", "other", 3, now),
            ("released", None, 9, None),
        ):
            rows(binding.path, "INSERT INTO checkpoint_leases VALUES (?, ?, ?, ?)",
                 thread_id, owner, token, expires_at)  # fmt: skip
        held = await store.acquire_lease("live", "me", timedelta(minutes=1))
        assert isinstance(held, Held)
        assert (held.lease.owner, held.lease.token) == ("other", 7)
        assert held.lease.expires_at == binding.clock.now + timedelta(milliseconds=1)
        for thread_id, token in (("expired", 4), ("released", 10)):
            answer = await store.acquire_lease(thread_id, "me", timedelta(minutes=1))
            assert isinstance(answer, Acquired)
            assert answer.lease.token == token


async def test_a_lease_expiry_outside_the_calendar_is_said(binding: SqliteBinding) -> None:
    async with binding.open() as store:
        rows(binding.path, "INSERT INTO checkpoint_leases VALUES ('t', 'w', 1, ?)", 2**62)
        with pytest.raises(CorruptRow, match=f"bad lease expiry '{2**62}' in the store"):
            await store.get_lease("t")


BROKEN = {
    "status = 'paused'": "unknown checkpoint status 'paused' in the checkpoint log",
    "metadata = '{\"n\":1}'": "metadata 'n' in the checkpoint log isn't a string",
    "nested = '{}'": "a checkpoint in the checkpoint log has no 'frozen_state'",
    "suspended_node = x'61'": "Invalid column type Blob at index: 4, name: suspended_node",
    "created_at = x'61'": "Invalid column type Blob at index: 8, name: created_at",
    "graph_version = x'61', graph_id = 'g'": "Invalid column type Blob at index: 14, name: graph_version",
}


@pytest.mark.parametrize("change", BROKEN)
async def test_a_broken_row_fails_to_load(change: str, binding: SqliteBinding) -> None:
    """Stores.md 16: in the format's words."""
    async with binding.open() as store:
        await store.save(sample())
        rows(binding.path, f"UPDATE checkpoints SET {change}")  # noqa: S608 - constants of this file
        for call in (store.load("t"), store.get_log("t")):
            with pytest.raises(CorruptRow) as refusal:
                await call
            assert str(refusal.value) == BROKEN[change]
            assert refusal.value.__notes__ == ["in checkpoint 't' #0"]


BROKEN_LISTED = {
    "checkpoints SET status = 'paused'": "unknown checkpoint status 'paused' in the checkpoint log",
    "checkpoints SET nested = '{}'": "a checkpoint in the checkpoint log has no 'frozen_state'",
    "checkpoints SET suspended_node = x'61'": "Invalid column type Blob at index: 4, name: suspended_node",
    "checkpoints SET wait = x'61'": "Invalid column type Blob at index: 11, name: wait",
    "checkpoint_threads SET state = 'paused'": "unknown thread state 'paused' in the checkpoint log",
    "checkpoint_threads SET metadata = '{\"n\":1}'": "metadata 'n' in the checkpoint log isn't a string",
    "checkpoint_threads SET updated_at = x'61'": "Invalid column type Blob at index: 8, name: updated_at",
    "checkpoint_threads SET graph_id = x'61'": "Invalid column type Blob at index: 12, name: graph_id",
}


@pytest.mark.parametrize("change", BROKEN_LISTED)
async def test_a_broken_row_or_head_keeps_nobody_from_its_page(change: str, binding: SqliteBinding) -> None:
    async with binding.open() as store:
        await store.save(sample("broken"))
        rows(binding.path, f"UPDATE {change}")
        for thread_id in ("a", "b", "c"):
            await store.save(sample(thread_id))
        found: list[str] = []
        told: list[tuple[str, int, str]] = []
        cursor: str | None = None
        while True:
            page = await store.list_threads(ThreadQuery(limit=2, cursor=cursor))
            found += [thread.thread_id for thread in page.threads]
            told += [(thread.thread_id, thread.sequence, thread.reason) for thread in page.unreadable]
            if (cursor := page.next_cursor) is None:
                break
        assert sorted(found) == ["a", "b", "c"]
        assert told == [("broken", 0, BROKEN_LISTED[change])]


@pytest.mark.parametrize("state", ["'{\"n\":NaN}'", "'{'", "x'7b7d'"])
async def test_a_broken_state_is_listed_and_fails_to_load(state: str, binding: SqliteBinding) -> None:
    """Hazards 2 and 3."""
    async with binding.open() as store:
        await store.save(sample())
        rows(binding.path, f"UPDATE checkpoints SET frozen_state = {state}")  # noqa: S608 - constants of this file
        with pytest.raises(CorruptRow):
            await store.load("t")
        assert len((await store.list_threads(ThreadQuery())).threads) == 1


async def test_purge_leaves_nothing(binding: SqliteBinding) -> None:
    """I6, K4: no row of the thread in any table, and none of another's gone."""
    async with binding.open() as store:
        for thread_id in ("old", "new"):
            await store.save(sample(thread_id, created_at="2026-01-01T00:00:00Z"))
            answer = await store.acquire_lease(thread_id, "w", timedelta(minutes=1))
            assert isinstance(answer, Acquired)
            if thread_id == "old":
                await store.release_lease(answer.lease)
            rows(binding.path, "INSERT INTO checkpoint_blobs VALUES (?, 'sha256:00', x'00')", thread_id)
        states = {sample().state}
        assert await store.purge(datetime(2026, 1, 2, tzinfo=UTC), states=states) == 1
        for table in ("checkpoints", "checkpoint_threads", "checkpoint_leases", "checkpoint_blobs"):
            assert rows(binding.path, f"SELECT thread_id FROM {table}") == [("new",)]  # noqa: S608 - constants of this file


async def test_sql_in_names_is_only_text(binding: SqliteBinding) -> None:
    name = "'; DROP TABLE checkpoints; --"
    async with binding.open() as store:
        row = sample(name, metadata={name: name})
        await store.save(row)
        loaded = await store.load(name)
        assert loaded is not None
        assert same_as(loaded.checkpoint, row)
        page = await store.list_threads(ThreadQuery(metadata={name: name}))
        assert [summary.thread_id for summary in page.threads] == [name]


async def test_another_store_sees_rows_at_once(binding: SqliteBinding) -> None:
    async with binding.open() as store:
        other = await SqliteStore.open_read_only(binding.path)
        await store.save(sample())
        assert await other.load("t") is not None
        await other.close()
