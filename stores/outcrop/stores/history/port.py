"""The port of a history store: the messages of a conversation, in the order they were appended.

The docstrings here are the contract; adapters don't repeat them. A session is only its ID:
there is no search, no expiry and no delete. Every method may raise `StoreError`; an append
that ends in `Unavailable` may or may not have happened, and no store repeats it by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from outcrop.stores.errors import CorruptRow, InvalidRequest

if TYPE_CHECKING:
    from datetime import datetime


class Role(StrEnum):
    """Who said a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


_ROLES = frozenset(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `timestamp` is the caller's, aware, and kept to the microsecond."""

    role: Role
    content: str
    timestamp: datetime


class HistoryStore(Protocol):
    """Messages by session."""

    async def append(self, session_id: str, message: Message) -> None:
        """Add `message` after the session's others, in one atomic step.

        Raises `InvalidRequest` for an unknown role, a naive timestamp, or a text that the
        store can't keep.
        """
        ...

    async def get_history(self, session_id: str, limit: int) -> tuple[Message, ...]:
        """The session's most recent `limit` messages, oldest first; empty for an unknown session.

        Timestamps come back in UTC. Raises `InvalidRequest` for a negative limit.
        """
        ...

    async def close(self) -> None:
        """Release connections and threads; idempotent."""
        ...


def check_message(session_id: str, message: Message) -> None:
    """Raise `InvalidRequest` for a message that not every store could give back."""
    if message.role not in _ROLES:
        raise InvalidRequest(f"a message of session '{session_id}' has the unknown role '{message.role}'")
    if message.timestamp.tzinfo is None:
        raise InvalidRequest(f"a message of session '{session_id}' needs a timestamp with a time zone")
    for what, text in (("the session's ID", session_id), ("the message's content", message.content)):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{what} isn't valid Unicode: {error.reason}") from None


def check_history_limit(limit: int) -> None:
    """Raise `InvalidRequest` for a negative limit."""
    if limit < 0:
        raise InvalidRequest(f"a history limit must be at least 0, not {limit}")


def role_of(text: str) -> Role:
    """The role that a stored message names; raises `CorruptRow`."""
    try:
        return Role(text)
    except ValueError:
        raise CorruptRow(f"unknown role '{text}' in history store") from None
