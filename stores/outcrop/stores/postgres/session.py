"""One connection to a server, and what it takes to use it behind PgBouncer.

Knows no table. PgBouncer in transaction mode may give every statement another server
connection. Named prepared statements, which asyncpg caches on the connection, are lost then.
With `prepared` off each call is an unnamed statement that is parsed, bound and executed in
one message, so it needs nothing of an earlier one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from datetime import timedelta

    from asyncpg.prepared_stmt import PreparedStatement

CONNECT_TIMEOUT = 5.0
"""Seconds for a connection to come about, unless the URL's `connect_timeout` says otherwise."""


_CACHED_STATEMENTS = 100
_PATIENCE = 86_400.0  # a day, for an index on a very large table


class Session:
    """A connection; `connect` makes one. Raises what asyncpg raises."""

    def __init__(self, connection: asyncpg.Connection, *, prepared: bool) -> None:
        self._connection = connection
        self._prepared = prepared
        self._unnamed: dict[str, PreparedStatement[asyncpg.Record]] = {}
        self.backend: int = connection.get_server_pid()
        self.patient = False
        """Whether statements may take their time, instead of the connection's answer timeout."""

    @classmethod
    async def connect(cls, url: str, *, prepared: bool, answer_timeout: timedelta) -> Self:
        """Connect as asyncpg reads the URL."""
        target, timeout = _without_timeout(url)
        connection = await asyncpg.connect(
            target,
            timeout=timeout,
            command_timeout=answer_timeout.total_seconds(),
            statement_cache_size=_CACHED_STATEMENTS if prepared else 0,
        )
        return cls(connection, prepared=prepared)

    async def fetch(self, statement: str, *arguments: object) -> Sequence[asyncpg.Record]:
        """The rows of a statement, in one round trip once the connection knows it."""
        timeout = _PATIENCE if self.patient else None  # None is the connection's own
        if self._prepared:
            return await self._connection.fetch(statement, *arguments, timeout=timeout)
        if (known := self._unnamed.get(statement)) is None:
            # Only asks for its types. Without a statement cache asyncpg sends the text again
            # with each execution, which is what makes the next call fit for any server.
            known = self._unnamed[statement] = await self._connection.prepare(statement)
        return await known.fetch(*arguments, timeout=timeout)

    async def value(self, statement: str, *arguments: object) -> Any:  # noqa: ANN401 - the statement's type
        """The one value of a statement that returns a single row."""
        rows = await self.fetch(statement, *arguments)
        return rows[0][0]

    async def execute(self, statement: str) -> None:
        """Do a statement without parameters."""
        await self._connection.execute(statement, timeout=_PATIENCE if self.patient else None)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """BEGIN and COMMIT around statements, at READ COMMITTED."""
        async with self._connection.transaction(isolation="read_committed"):
            yield

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[None]:
        """Let statements read the rows of one moment, and write none."""
        if self._connection.is_in_transaction():  # a read-only store's calls are snapshots already
            yield
            return
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            yield

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone, as far as this side knows."""
        return self._connection.is_closed()

    @property
    def is_idle(self) -> bool:
        """Whether the connection can take another call."""
        return not (self._connection.is_closed() or self._connection.is_in_transaction())

    def terminate(self) -> None:
        """Disconnect at once."""
        self._connection.terminate()

    async def close(self) -> None:
        """Disconnect with a word to the server."""
        await self._connection.close(timeout=1)


def _without_timeout(url: str) -> tuple[str, float]:
    """The URL without libpq's `connect_timeout`, which asyncpg would send to the server, and its value.

    To libpq zero, or less, is no limit.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "connect_timeout" not in options:
        return url, CONNECT_TIMEOUT
    timeout = float(options.pop("connect_timeout"))
    return urlunsplit(parts._replace(query=urlencode(options))), timeout if timeout > 0 else _PATIENCE
