"""The history of this process: lists in a dictionary, gone with it. The port in its plainest form."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

from .port import check_history_limit, check_message

if TYPE_CHECKING:
    from .port import HistoryStore, Message


class InProcessHistoryStore:
    """Everything in this process."""

    def __init__(self) -> None:
        self._sessions: defaultdict[str, list[Message]] = defaultdict(list)

    async def append(self, session_id: str, message: Message) -> None:
        check_message(session_id, message)
        utc = message.timestamp.astimezone(UTC)
        self._sessions[session_id].append(replace(message, timestamp=utc))

    async def get_history(self, session_id: str, limit: int) -> tuple[Message, ...]:
        check_history_limit(limit)
        messages = self._sessions.get(session_id, [])
        return tuple(messages[max(0, len(messages) - limit) :])

    async def close(self) -> None:
        """Keep everything: another part of the process may still read it."""


if TYPE_CHECKING:
    _conforms: type[HistoryStore] = InProcessHistoryStore
