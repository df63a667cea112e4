"""The long-term memory in a SQLite file: its tables, its versions, and what it refuses to open."""

from __future__ import annotations

import builtins
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import InvalidRequest, NewerSchema, SqliteStore, StoreError
from outcrop.stores.longterm import Embedding, Search, SqliteLongTermStore
from support.longterm import HandClock, record, use_extensible_sqlite

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("extensible")


@pytest.fixture
def extensible(monkeypatch: pytest.MonkeyPatch) -> None:
    use_extensible_sqlite(monkeypatch)


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(statement).fetchall()


async def opened(path: Path, dimensions: int = 4, **options: Any) -> SqliteLongTermStore:
    return await SqliteLongTermStore.open(path, dimensions=dimensions, clock=HandClock(), **options)


async def test_the_tables_are_the_formats(tmp_path: Path) -> None:
    """N3, N4."""
    path = tmp_path / "m.db"
    await (await opened(path)).close()
    assert rows(
        path, "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('memory_records')"
    ) == [
        ("namespace", "TEXT", 1, None, 1),
        ("tenant", "TEXT", 1, None, 2),
        ("id", "TEXT", 1, None, 3),
        ("model", "TEXT", 1, None, 0),
        ("embedding", "BLOB", 1, None, 0),
        ("content", "TEXT", 0, None, 0),
        ("text", "TEXT", 0, None, 0),
        ("metadata", "TEXT", 1, "'{}'", 0),
        ("created_at", "TEXT", 1, None, 0),
        ("updated_at", "TEXT", 1, None, 0),
    ]
    assert rows(path, "SELECT name, type, \"notnull\", pk FROM pragma_table_info('memory_settings')") == [
        ("table_name", "TEXT", 1, 1),
        ("dimensions", "INTEGER", 1, 0),
    ]
    indexes = "SELECT name FROM sqlite_master WHERE type = 'index' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    assert rows(path, indexes) == [("memory_records_scope",), ("memory_records_updated",)]
    assert rows(path, "SELECT * FROM strata_schema_version") == [("memory", 1)]
    assert rows(path, "SELECT * FROM memory_settings") == [("memory_records", 4)]


async def test_a_row_is_the_formats(tmp_path: Path) -> None:
    """N3: float32 in little-endian bytes, compact JSON with keys in order, whole seconds."""
    path = tmp_path / "m.db"
    store = await opened(path)
    await store.upsert(
        replace(
            record("a", 0.125, -0.5, 0.25, 0.75),
            content={"z": [1.5, "é"], "a": {"y": 1, "b": None}},
            metadata={"é": "2", "z": "1", "a": "3"},
        )
    )
    await store.close()
    assert rows(path, "SELECT * FROM memory_records") == [
        (
            "notes",
            "",
            "a",
            "m",
            bytes.fromhex("0000003e000000bf0000803e0000403f"),
            '{"a":{"b":null,"y":1},"z":[1.5,"é"]}',
            None,
            '{"a":"3","z":"1","é":"2"}',
            "2026-11-30T12:00:00Z",
            "2026-11-30T12:00:00Z",
        )
    ]


async def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    """N4."""
    path = tmp_path / "m.db"
    first = await opened(path)
    await first.upsert(record("a", 1, 0, 0, 0))
    await first.close()
    before = rows(path, "SELECT sql FROM sqlite_master"), rows(path, "SELECT * FROM strata_schema_version")
    again = await opened(path)
    assert await again.get(record("a").key) is not None
    await again.close()
    assert before == (
        rows(path, "SELECT sql FROM sqlite_master"),
        rows(path, "SELECT * FROM strata_schema_version"),
    )


async def test_a_newer_file_is_refused_unchanged(tmp_path: Path) -> None:
    """N4."""
    path = tmp_path / "m.db"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(
            "CREATE TABLE strata_schema_version (component TEXT PRIMARY KEY, version INTEGER NOT NULL)"
        )
        file.execute("INSERT INTO strata_schema_version VALUES ('memory', 2)")
    with pytest.raises(
        NewerSchema, match="database is at memory schema version 2, and this build knows 1: upgrade"
    ):
        await opened(path)
    assert rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'") == [("strata_schema_version",)]


async def test_other_dimensions_are_refused_but_in_another_table(tmp_path: Path) -> None:
    """N5."""
    path = tmp_path / "m.db"
    await (await opened(path)).close()
    with pytest.raises(StoreError) as caught:
        await opened(path, dimensions=3)
    assert str(caught.value) == "memory was created with 4 dimensions, and this store was opened with 3"
    other = await opened(path, dimensions=3, table="other_memories")
    await other.upsert(record("a", 1, 2, 3))
    assert [
        match.record.id
        for match in await other.search(Search(namespace="notes", embedding=Embedding("m", (1, 2, 3))))
    ] == ["a"]
    await other.close()
    assert rows(path, "SELECT * FROM memory_settings ORDER BY 1") == [
        ("memory_records", 4),
        ("other_memories", 3),
    ]


@pytest.mark.parametrize("memory_first", [True, False])
async def test_a_file_is_shared_with_checkpoints(tmp_path: Path, memory_first: bool) -> None:
    """N6."""
    path = tmp_path / "all.db"
    if memory_first:
        await (await opened(path)).close()
    checkpoints = await SqliteStore.open(path)
    memory = await opened(path)
    await memory.upsert(record("a", 1, 0, 0, 0))
    assert await checkpoints.load("a") is None
    await memory.close()
    await checkpoints.close()
    versions = [("checkpoints", 2), ("memory", 1), ("outcrop", 1)]
    assert rows(path, "SELECT * FROM strata_schema_version ORDER BY 1") == versions


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"dimensions": 0}, "a memory store has 1 to 16000 dimensions, not 0"),
        ({"dimensions": 16001}, "a memory store has 1 to 16000 dimensions, not 16001"),
        ({"table": "Memory"}, "the memory table 'Memory' isn't a lowercase SQL name"),
        ({"table": "1st"}, "the memory table '1st' isn't a lowercase SQL name"),
        ({"table": "a.b"}, "the memory table 'a.b' isn't a lowercase SQL name"),
        ({"table": "m" * 64}, f"the memory table '{'m' * 64}' isn't a lowercase SQL name"),
        ({"table": "x; DROP TABLE y"}, "the memory table 'x; DROP TABLE y' isn't a lowercase SQL name"),
    ],
)
async def test_bad_options_are_refused_before_the_file_exists(
    tmp_path: Path, options: dict[str, Any], refusal: str
) -> None:
    """N6."""
    with pytest.raises(InvalidRequest) as caught:
        await opened(tmp_path / "m.db", **options)
    assert str(caught.value) == refusal
    assert not (tmp_path / "m.db").exists()


async def test_the_widest_table_name_works(tmp_path: Path) -> None:
    store = await opened(tmp_path / "m.db", table="_" * 63)
    await store.close()


async def test_a_sqlite_memory_needs_a_file() -> None:
    with pytest.raises(InvalidRequest, match="use InProcessLongTermStore"):
        await SqliteLongTermStore.open(":memory:", dimensions=4)


async def test_without_the_extension_nothing_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N4: each reason is told."""
    real = builtins.__import__

    def without_package(name: str, *rest: Any) -> Any:
        if name == "sqlite_vec":
            raise ImportError(name)
        return real(name, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", without_package)
        with pytest.raises(StoreError) as caught:
            await opened(tmp_path / "m.db")
    assert str(caught.value) == (
        "memory on SQLite needs the sqlite-vec extension: pip install 'outcrop[sqlite-vec]'"
    )
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        monkeypatch.setattr("outcrop.stores.longterm.sqlite.sqlite3", sqlite3)
        with pytest.raises(StoreError) as caught:
            await opened(tmp_path / "m.db")
        assert str(caught.value) == (
            "memory on SQLite needs the sqlite-vec extension: "
            "this Python's sqlite3 was built without loading extensions"
        )
    assert not (tmp_path / "m.db").exists()
