"""Bringing a database to the schema versions that this build knows, or refusing newer ones.

Several processes may open a database at once, other engines' too: whoever changes it holds
the format's DDL lock in one transaction. A database that is as it should be is only looked
at, so an opener needs no right to create anything. What a step does has to find things as any
engine's earlier versions left them, so it looks at what is there and not only at the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outcrop.stores.errors import NewerSchema, StoreError
from outcrop.stores.statements import named_statements

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from .session import Session

_DDL_LOCK: Final = 91621622371393  # the bytes "STRATA", the same number in every engine
_SQL = named_statements(__package__, "schema.sql")
_FUNCTIONS = named_statements(__package__, "functions.sql")
_INDEXES = ("by_state", "by_updated", "by_wake", "by_graph", "by_metadata")


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the schema with a version of its own; `upgrade` brings it from an older one (0: none)."""

    name: str
    version: int
    upgrade: Callable[[Session, int], Awaitable[None]]

    def is_ahead(self, found: int) -> str:
        """The sentence about a newer version that was found."""
        return (
            f"database is at {self.name} schema version {found}, "
            f"and this build knows {self.version}: upgrade the runtime"
        )

    def is_behind(self, found: int) -> str:
        """The sentence about an older version that was found."""
        return (
            f"database is at {self.name} schema version {found}, "
            f"and this build needs {self.version}: run its migration (outcrop store migrate URL)"
        )


async def migrate(session: Session, components: Sequence[Component], *, allowed: bool = True) -> None:
    """Create or upgrade what is behind.

    Raises `NewerSchema` for what is ahead, and `StoreError` for what is behind where changes
    aren't `allowed`; the database is then left as it was.
    """
    if not _behind(await versions(session), components, allowed=allowed):
        return
    async with session.transaction():
        await session.fetch("SELECT pg_advisory_xact_lock($1)", _DDL_LOCK)
        await session.execute(_SQL["versions"])
        found = await versions(session)
        for component in _behind(found, components, allowed=True):
            await component.upgrade(session, found.get(component.name, 0))
            await session.fetch(
                "INSERT INTO strata_schema_version (component, version) VALUES ($1, $2) "
                "ON CONFLICT (component) DO UPDATE SET version = excluded.version",
                component.name,
                component.version,
            )


async def check_readable(session: Session) -> None:
    """Raise `StoreError` unless the checkpoints are at this build's version; changes nothing."""
    found = await versions(session)
    if CHECKPOINTS.name not in found and not await _exists(session, "checkpoints"):
        raise StoreError("the database has no checkpoints")
    _behind(found, (CHECKPOINTS,), allowed=False)


async def versions(session: Session) -> Mapping[str, int]:
    """The version of each component that the database has."""
    if not await _exists(session, "strata_schema_version"):
        return {}
    rows = await session.fetch("SELECT component, version FROM strata_schema_version")
    return {row[0]: row[1] for row in rows}


def _behind(
    found: Mapping[str, int], components: Sequence[Component], *, allowed: bool
) -> Sequence[Component]:
    for component in components:
        version = found.get(component.name, 0)
        if version > component.version:
            raise NewerSchema(component.is_ahead(version))
    behind = [component for component in components if found.get(component.name, 0) < component.version]
    if behind and not allowed:
        first = behind[0]
        raise StoreError(first.is_behind(found.get(first.name, 0)))
    return behind


async def _upgrade_checkpoints(session: Session, found: int) -> None:
    if found == 0:
        await _baseline(session)
    await session.execute(_SQL["blobs"])


async def _baseline(session: Session) -> None:
    await _run(session, "checkpoints", "later_columns")
    if not await _exists(session, "checkpoint_threads"):
        await _run(session, "heads", "backfill", *_INDEXES, "trigger_function", "trigger")
    elif not await _has_column(session, "checkpoint_threads", "graph_version"):
        await _run(session, "later_head_columns", *_INDEXES, "trigger_function", "trigger")
    await _run(session, "leases")


async def _upgrade_ours(session: Session, found: int) -> None:  # noqa: ARG001 - every version brings them all
    await _run(session, "notes")
    for statement in _FUNCTIONS.values():
        await session.execute(statement)


async def _run(session: Session, *names: str) -> None:
    for name in names:
        await session.execute(_SQL[name])


async def _exists(session: Session, table: str) -> bool:
    return bool(await session.value("SELECT to_regclass($1) IS NOT NULL", table))


async def _has_column(session: Session, table: str, column: str) -> bool:
    rows = await session.fetch(
        "SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped",
        table,
        column,
    )
    return bool(rows)


CHECKPOINTS: Final = Component("checkpoints", 2, _upgrade_checkpoints)
OURS: Final = Component("outcrop", 2, _upgrade_ours)
"""What no other engine has: the notes, and the functions."""
