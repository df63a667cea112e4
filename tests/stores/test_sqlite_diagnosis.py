"""What `outcrop store check` is told of a SQLite file."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import SqliteStore, StoreError
from outcrop.stores.sqlite.diagnosis import diagnose
from support.sqlite import selected

if TYPE_CHECKING:
    from pathlib import Path

BEHIND = "database is at checkpoints schema version"


async def test_a_file_in_order(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    before = path.read_bytes()
    found = await diagnose(path)
    assert found.fit
    assert (found.engine, found.server_version) == ("sqlite", sqlite3.sqlite_version)
    assert found.schema == found.expected == {"checkpoints": 2, "outcrop": 1}
    assert found.latency > 0
    assert found.clock_offset == 0
    assert path.read_bytes() == before


async def test_no_file_is_told_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    found = await diagnose(path)
    assert found.missing == (f"there is no file at '{path}': open it once for writing",)
    assert (found.schema, found.expected) == ({}, {"checkpoints": 2, "outcrop": 1})
    assert not path.exists()


async def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    found = await diagnose(path)
    assert found.missing[0] == "the file has no checkpoints"
    assert "table checkpoint_threads is missing" in found.missing
    assert path.stat().st_size == 0


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("DROP INDEX checkpoint_threads_by_wake", ("index checkpoint_threads_by_wake is missing",)),
        ("DROP TRIGGER checkpoints_head", ("trigger checkpoints_head is missing",)),
        ("DROP TABLE checkpoint_blobs", ("table checkpoint_blobs is missing",)),
        (
            "UPDATE strata_schema_version SET version = 1",
            (f"{BEHIND} 1, and this build needs 2: open it once for writing",),
        ),
        (
            "UPDATE strata_schema_version SET version = 3",
            (f"{BEHIND} 3, and this build knows 2: upgrade the runtime",),
        ),
    ],
)
async def test_what_is_missing(statement: str, missing: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    selected(path, statement)
    found = await diagnose(path)
    assert found.missing == missing
    assert not found.fit
    assert found.schema == dict(selected(path, "SELECT component, version FROM strata_schema_version"))


async def test_other_components_are_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    selected(path, "INSERT INTO strata_schema_version VALUES ('memory', 1)")
    assert (await diagnose(path)).schema == {"checkpoints": 2, "memory": 1, "outcrop": 1}


async def test_what_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("not a database at all, but long enough to be read as one " * 20)
    with pytest.raises(StoreError, match=r"^file is not a database$"):
        await diagnose(path)
