"""Messages that can never be handled, as records for the dead-letter topic.

Pure. Keeps the original key, value (cut at a limit) and headers, and adds why, from where and
after how many attempts. Invariant: a dead letter always fits the limit it is given, so it can
always be published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.topics.headers import dead_letter_headers

from .ports import Record

if TYPE_CHECKING:
    from datetime import datetime

    from .ports import Message

ERROR_LIMIT: Final = 1000
"""The longest error text of a dead letter, in characters."""


def dead_letter(
    message: Message,
    *,
    topic: str,
    kind: str,
    error: str,
    attempts: int,
    failed_at: datetime,
    limit: int,
) -> Record:
    """The dead letter of a message; `limit` is in bytes of key, value and original headers together."""
    headers = message.headers if _size(message.headers) <= limit // 2 else ()
    room = limit - _size(headers)
    key = message.key if message.key is None else message.key[:room]
    value = message.value if message.value is None else message.value[: room - len(key or b"")]
    return Record(
        topic,
        key,
        value,
        dead_letter_headers(
            headers,
            topic=message.partition.topic,
            partition=message.partition.number,
            offset=message.offset,
            kind=kind,
            error=error[:ERROR_LIMIT],
            attempts=attempts,
            failed_at=failed_at,
        ),
    )


def _size(headers: tuple[tuple[str, bytes], ...]) -> int:
    return sum(len(name.encode()) + len(value) for name, value in headers)
