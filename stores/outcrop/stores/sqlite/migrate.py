"""Bringing a file to the schema version that this build knows, or refusing a newer one.

Runs in one IMMEDIATE transaction, so several processes may open a file at once. Steps are
numbered and only ever appended. No pragma is set: the file stays as its owner made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.stores.errors import NewerSchema, StoreError
from outcrop.stores.statements import named_statements

from .database import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

STEPS: Final[Sequence[tuple[int, tuple[str, ...]]]] = ((2, ("blobs",)),)
"""Each later version with the statements of `schema.sql` that lead to it."""

KNOWN_VERSION: Final = STEPS[-1][0]
COMPONENT: Final = "checkpoints"
OURS: Final = "outcrop"
OURS_VERSION: Final = 1
"""Of what no other engine has: the notes."""

INDEXES: Final = ("by_state", "by_updated", "by_wake", "by_graph")

_SQL = named_statements(__package__, "schema.sql")
_LATER_COLUMNS = ("nested", "decision", "wait", "wake_at", "graph_id", "graph_version")
_LATER_HEAD_COLUMNS = ("wake_at", "graph_id", "graph_version")


def migrate(connection: sqlite3.Connection, steps: Sequence[tuple[int, tuple[str, ...]]] = STEPS) -> None:
    """Create or upgrade the tables; raises `NewerSchema`, leaving the file as it was."""
    known = steps[-1][0]
    with transaction(connection, "IMMEDIATE"):
        connection.execute(_SQL["versions"])
        found, ours = _version(connection, COMPONENT), _version(connection, OURS)
        _refuse_newer(COMPONENT, found, known)
        _refuse_newer(OURS, ours, OURS_VERSION)
        if found < known:
            _upgrade(connection, found, steps)
            _set_version(connection, COMPONENT, known)
        if ours < OURS_VERSION:
            _run(connection, "notes")
            _set_version(connection, OURS, OURS_VERSION)


def check_readable(connection: sqlite3.Connection) -> None:
    """Raise `StoreError` unless the file is at this build's version; changes nothing."""
    found = _version(connection, COMPONENT) if has_versions(connection) else 0
    if found == 0 and not _columns(connection, "checkpoints"):
        raise StoreError("the file has no checkpoints")
    _refuse_newer(COMPONENT, found, KNOWN_VERSION)
    if found < KNOWN_VERSION:
        raise StoreError(
            f"database is at checkpoints schema version {found}, and this build needs {KNOWN_VERSION}: "
            "open it once for writing"
        )


def has_versions(connection: sqlite3.Connection) -> bool:
    """Whether the file has a table of schema versions; another engine's early files don't."""
    return bool(_columns(connection, "strata_schema_version"))


def _refuse_newer(component: str, found: int, known: int) -> None:
    if found > known:
        raise NewerSchema(
            f"database is at {component} schema version {found}, and this build knows {known}: "
            "upgrade the runtime"
        )


def _version(connection: sqlite3.Connection, component: str) -> int:
    row: tuple[int] | None = connection.execute(
        "SELECT version FROM strata_schema_version WHERE component = ?", (component,)
    ).fetchone()
    return 0 if row is None else row[0]


def _set_version(connection: sqlite3.Connection, component: str, version: int) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO strata_schema_version (component, version) VALUES (?, ?)",
        (component, version),
    )


def _upgrade(
    connection: sqlite3.Connection, found: int, steps: Sequence[tuple[int, tuple[str, ...]]]
) -> None:
    if found == 0:
        _baseline(connection)
    for version, names in steps:
        if version > found:
            _run(connection, *names)


def _baseline(connection: sqlite3.Connection) -> None:
    connection.execute(_SQL["checkpoints"])
    _add_columns(connection, "checkpoints", _LATER_COLUMNS)
    if not _columns(connection, "checkpoint_threads"):
        _run(connection, "heads", "backfill", *INDEXES, "drop_trigger", "trigger")
    elif _add_columns(connection, "checkpoint_threads", _LATER_HEAD_COLUMNS):
        _run(connection, *INDEXES, "drop_trigger", "trigger")
    _run(connection, "leases")


def _run(connection: sqlite3.Connection, *names: str) -> None:
    for name in names:
        connection.execute(_SQL[name])


def _add_columns(connection: sqlite3.Connection, table: str, names: Sequence[str]) -> bool:
    present = _columns(connection, table)
    missing = [name for name in names if name not in present]
    for name in missing:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} TEXT")
    return bool(missing)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
