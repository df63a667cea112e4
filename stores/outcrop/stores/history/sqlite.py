"""The history in one SQLite file, which checkpoints may share.

The table has no schema version: other engines of the format write none for it. A file's own
lock orders the writers, and an append is one statement under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.sqlite.database import Database
from outcrop.stores.statements import named_statements

from .port import Message, check_history_limit, check_message, role_of
from .timestamps import parse_timestamp, timestamp_text

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from .port import HistoryStore

_SQL = named_statements(__package__, "sqlite.sql")


class SqliteHistoryStore:
    """A history in one SQLite file; see `open`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, path: str | Path) -> Self:
        """Open the file, creating it and its table when missing. Raises `StoreError`."""
        if str(path) in {"", ":memory:"}:
            raise InvalidRequest("a SQLite history needs a file: use InProcessHistoryStore for one without")
        database = await Database.open(path)
        async with closed_on_failure(database):
            await database.call(lambda connection: connection.execute(_SQL["table"]))
        return cls(database)

    async def append(self, session_id: str, message: Message) -> None:
        check_message(session_id, message)
        row = {
            "session_id": session_id,
            "role": str(message.role),
            "content": message.content,
            "timestamp": timestamp_text(message.timestamp, zone="+00:00"),
        }
        await self._database.call(lambda connection: connection.execute(_SQL["append"], row))

    async def get_history(self, session_id: str, limit: int) -> tuple[Message, ...]:
        check_history_limit(limit)
        wanted = {"session_id": session_id, "limit": min(limit, 2**63 - 1)}

        def latest(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
            return connection.execute(_SQL["latest"], wanted).fetchall()

        rows = await self._database.call(latest)
        return tuple(
            Message(role_of(role), content, parse_timestamp(timestamp))
            for role, content, timestamp in reversed(rows)
        )

    async def close(self) -> None:
        """Close the connection after the calls before; idempotent."""
        await self._database.close()


if TYPE_CHECKING:
    _conforms: type[HistoryStore] = SqliteHistoryStore
