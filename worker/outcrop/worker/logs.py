"""Structured logs: an event name that never changes, and fields.

Lines about a thread carry `thread` and `command`, whose ID is its run's too. Nobody passes a state, a payload
or a credential: fields are IDs, counts, reasons and times only.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Field = str | int | float | bool | None
LogFormat = Literal["json", "text"]
_ROOT = "outcrop"


class EventLog:
    """Writes events of one part of the worker, each with the fields bound so far."""

    def __init__(self, name: str, fields: Mapping[str, Field] | None = None) -> None:
        self._name = name
        self._logger = logging.getLogger(f"{_ROOT}.{name}")
        self._fields = dict(fields or {})

    def bind(self, **fields: Field) -> EventLog:
        """The same log with more fields on every event."""
        return EventLog(self._name, self._fields | fields)

    def debug(self, event: str, **fields: Field) -> None:
        """Write an event that only a developer asks for."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Field) -> None:
        """Write an event of normal operation."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Field) -> None:
        """Write an event that somebody should look at some day."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Field) -> None:
        """Write an event that somebody should look at now."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: Mapping[str, Field]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": self._fields | dict(fields)})


class _Lines(logging.Formatter):
    def __init__(self, style: LogFormat) -> None:
        super().__init__()
        self._shape = style

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Field] | None = getattr(record, "fields", None)
        own: dict[str, Field] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": "message" if told is None else record.getMessage(),
            "part": record.name.removeprefix(f"{_ROOT}."),
        }
        if told is None:  # a library's own line, such as librdkafka's
            told = {"text": record.getMessage()}
        fields = own | told | own  # an event's field never takes the place of the line's own
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        shown = {name: value for name, value in fields.items() if value is not None}
        if self._shape == "json":
            return json.dumps(shown, default=str)
        return " ".join(f"{name}={_plain(value)}" for name, value in shown.items())


def configure_logs(level: str = "info", style: LogFormat = "text", stream: IO[str] | None = None) -> None:
    """Send the worker's events to `stream` (standard error by default), one line each."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_Lines(style))
    logger = logging.getLogger(_ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def client_logger() -> logging.Logger:
    """Where librdkafka's own lines go, so that they come in the worker's format."""
    return logging.getLogger(f"{_ROOT}.librdkafka")


def _plain(value: Field) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c in ' "=\\' or not c.isprintable() for c in text) else text
