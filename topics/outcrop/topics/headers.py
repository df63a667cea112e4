"""The Kafka headers of commands, outcomes and dead letters.

Owns their names and their text form. Headers never decide what a message means: its body does, and
a header that contradicts it makes the message invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from .instants import format_instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from .messages import AnyCommand

Headers: TypeAlias = "tuple[tuple[str, bytes], ...]"

CONTENT_TYPE: Final = "content-type"
JSON: Final = b"application/json"
TYPE: Final = "outcrop-type"
OUTCOME: Final = b"outcome"
EVENT: Final = b"event"
TRACEPARENT: Final = "traceparent"

SOURCE_TOPIC: Final = "outcrop-source-topic"
SOURCE_PARTITION: Final = "outcrop-source-partition"
SOURCE_OFFSET: Final = "outcrop-source-offset"
ERROR_KIND: Final = "outcrop-error-kind"
ERROR: Final = "outcrop-error"
ATTEMPTS: Final = "outcrop-attempts"
FAILED_AT: Final = "outcrop-failed-at"
DEAD_LETTER: Final = (
    SOURCE_TOPIC,
    SOURCE_PARTITION,
    SOURCE_OFFSET,
    ERROR_KIND,
    ERROR,
    ATTEMPTS,
    FAILED_AT,
)
"""What a dead letter adds to the original's headers."""


EVENT_HEADERS: Final[Headers] = ((CONTENT_TYPE, JSON), (TYPE, EVENT))
"""The headers of an event."""


def command_headers(command: AnyCommand, traceparent: str | None = None) -> Headers:
    """The headers of a command; its type is there so that a reader can tell without parsing."""
    return _message(command.type.value.encode(), traceparent)


def outcome_headers(traceparent: str | None = None) -> Headers:
    """The headers of an outcome."""
    return _message(OUTCOME, traceparent)


def dead_letter_headers(
    original: Iterable[tuple[str, bytes]],
    *,
    topic: str,
    partition: int,
    offset: int,
    kind: str,
    error: str,
    attempts: int,
    failed_at: datetime,
) -> Headers:
    """The original's headers, and why and from where it came; earlier answers to that are replaced."""
    kept = tuple((name, value) for name, value in original if name not in DEAD_LETTER)
    return (
        *kept,
        (SOURCE_TOPIC, topic.encode()),
        (SOURCE_PARTITION, str(partition).encode()),
        (SOURCE_OFFSET, str(offset).encode()),
        (ERROR_KIND, kind.encode()),
        (ERROR, error.encode(errors="replace")),
        (ATTEMPTS, str(attempts).encode()),
        (FAILED_AT, format_instant(failed_at).encode()),
    )


def header(headers: Sequence[tuple[str, bytes | None]], name: str) -> bytes | None:
    """The last header of that name, as Kafka's own clients read it, or None."""
    return next((value for found, value in reversed(headers) if found == name), None)


def _message(kind: bytes, traceparent: str | None) -> Headers:
    named: Headers = ((CONTENT_TYPE, JSON), (TYPE, kind))
    return named if traceparent is None else (*named, (TRACEPARENT, traceparent.encode()))
