"""SQLite stores that were told something at their opening, and a look at what they wrote."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions
from outcrop.stores.sqlite import SqliteStore

from .stores import SqliteBinding

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

VARIANTS = ("group commit", "deltas", "offload", "offload to a folder", "all")
"""The ways a store may be opened, by what it was told."""


class TunedBinding(SqliteBinding):
    """A SQLite store opened with options."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path)
        self.options = options

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[SqliteStore]:
        store = await SqliteStore.open(self.path, clock=self.clock, **self.options)
        try:
            yield store
        finally:
            await store.close()


def variant(name: str, directory: Path) -> TunedBinding:
    """The binding of one of `VARIANTS`; every value is large enough to be a blob."""
    every, folder = OffloadOptions(threshold=1), OffloadOptions(threshold=1, folder=directory / "blobs")
    options: Mapping[str, Mapping[str, Any]] = {
        "group commit": {"group_commit": GroupCommitOptions()},
        "deltas": {"deltas": DeltaOptions(full_every=3)},
        "offload": {"offload": every},
        "offload to a folder": {"offload": folder},
        "all": {"deltas": DeltaOptions(), "offload": every, "group_commit": GroupCommitOptions()},
    }
    return TunedBinding(directory / "store.db", **options[name])


def selected(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """What the file says."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def versions(path: Path, thread_id: str = "t") -> list[str]:
    """The stored schema versions of a thread's rows."""
    statement = "SELECT schema_version FROM checkpoints WHERE thread_id = ? ORDER BY sequence"
    return [version for (version,) in selected(path, statement, thread_id)]
