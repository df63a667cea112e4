"""The history in a Postgres database, which checkpoints may share.

Appends to one session take its lock, the same one in every engine of the format. An append
whose answer was lost is not repeated: the message would be there twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.options import DEFAULT_RETRIES
from outcrop.stores.postgres.database import Access, Database
from outcrop.stores.postgres.migrate import Component, migrate
from outcrop.stores.statements import named_statements

from .port import Message, check_history_limit, check_message, role_of
from .timestamps import parse_timestamp, timestamp_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.stores.options import RetryOptions
    from outcrop.stores.postgres.session import Session

    from .port import HistoryStore

_SQL = named_statements(__package__, "postgres.sql")


class PostgresHistoryStore:
    """A history in one database; see `open`. Belongs to the event loop that opened it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        auto_migrate: bool = True,
        pool_size: int = 16,
        prepared: bool = True,
        retries: RetryOptions = DEFAULT_RETRIES,
    ) -> Self:
        """Connect, creating the table and the function when missing.

        With `auto_migrate` off what is missing is refused; `prepared` off is for PgBouncer in
        transaction mode. Raises `NewerSchema` for a database of a newer build.
        """
        database = Database(Access(url=url, prepared=prepared, pool_size=pool_size, retries=retries))
        async with closed_on_failure(database):
            await database.run_patiently(lambda session: migrate(session, COMPONENTS, allowed=auto_migrate))
        return cls(database)

    async def append(self, session_id: str, message: Message) -> None:
        check_message(session_id, message)
        for what, text in (("ID", session_id), ("message's content", message.content)):
            if "\0" in text:
                raise InvalidRequest(
                    f"session {session_id!r} has a NUL in its {what}, and Postgres can't hold one"
                )
        timestamp = timestamp_text(message.timestamp, zone="Z")
        arguments = (session_id, str(message.role), message.content, timestamp)
        await self._database.run_at_most_once(lambda session: session.fetch(_SQL["append"], *arguments))

    async def get_history(self, session_id: str, limit: int) -> tuple[Message, ...]:
        check_history_limit(limit)
        rows = await self._database.run(
            lambda session: session.fetch(_SQL["latest"], session_id, min(limit, 2**63 - 1))
        )
        return tuple(
            Message(role_of(role), content, parse_timestamp(timestamp))
            for role, content, timestamp in reversed(rows)
        )

    async def close(self) -> None:
        """Disconnect after the calls before; idempotent."""
        await self._database.close()


def _creating(name: str) -> Callable[[Session, int], Awaitable[None]]:
    async def create(session: Session, found: int) -> None:  # noqa: ARG001 - there is one version
        await session.execute(_SQL[name])

    return create


COMPONENTS: Final = (
    Component("history", 1, _creating("table")),
    Component("outcrop_history", 1, _creating("function")),
)
"""The format's table, and this build's own function; each has a version of its own."""


if TYPE_CHECKING:
    _conforms: type[HistoryStore] = PostgresHistoryStore
