"""A look at a SQLite file for `outcrop store check`: what is there, and what this build lacks.

Changes nothing and creates no file.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Final

from outcrop.stores.diagnosis import Diagnosis, look_at_clock
from outcrop.stores.errors import StoreError

from .database import Database
from .migrate import COMPONENT, INDEXES, KNOWN_VERSION, OURS, OURS_VERSION, check_readable, has_versions

_NOW: Final = "SELECT (julianday('now') - 2440587.5) * 86400.0, (SELECT count(*) FROM sqlite_master)"
_PARTS: Final = (
    *(("table", f"checkpoint{name}") for name in ("s", "_threads", "_leases", "_blobs")),
    *(("index", f"checkpoint_threads_{name}") for name in INDEXES),
    ("trigger", "checkpoints_head"),
    ("table", "outcrop_notes"),
)


async def diagnose(path: str | Path) -> Diagnosis:
    """What a look at the file finds; raises `StoreError` when it can't be read as a database."""
    if not await asyncio.to_thread(Path(path).is_file):
        return _diagnosis({}, 0.0, [f"there is no file at '{path}': open it once for writing"])
    database = await Database.open(path, read_only=True)
    try:
        versions, missing = await database.call(_look)
        latency, _ = await look_at_clock(lambda: database.call(_now))
        return _diagnosis(versions, latency, missing)
    finally:
        await database.close()


def _diagnosis(versions: dict[str, int], latency: float, missing: list[str]) -> Diagnosis:
    return Diagnosis(
        engine="sqlite",
        server_version=sqlite3.sqlite_version,
        schema=versions,
        expected={COMPONENT: KNOWN_VERSION, OURS: OURS_VERSION},
        latency=latency,
        clock_offset=0.0,  # the file's clock is this host's
        missing=tuple(missing),
    )


def _look(connection: sqlite3.Connection) -> tuple[dict[str, int], list[str]]:
    missing: list[str] = []
    try:
        check_readable(connection)
    except StoreError as error:
        missing.append(str(error))
    there = set(connection.execute("SELECT type, name FROM sqlite_master").fetchall())
    missing.extend(f"{kind} {name} is missing" for kind, name in _PARTS if (kind, name) not in there)
    if not has_versions(connection):
        return {}, missing
    return dict(connection.execute("SELECT component, version FROM strata_schema_version")), missing


def _now(connection: sqlite3.Connection) -> float:
    seconds: float = connection.execute(_NOW).fetchone()[0]
    return seconds
