"""Instants on the wire: RFC 3339 in UTC with a `Z`.

Owns the check that a time has an offset and the conversion to UTC. A time that pydantic would read as
seconds since 1970 (`"3600"`) is refused: it is a duration by mistake.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)


def format_instant(instant: datetime) -> str:
    """The instant as text; a naive one is the machine's local time, as everywhere in Python."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _text(value: object) -> object:
    if not isinstance(value, str):
        return value
    if _RFC_3339.match(value) is None:
        raise ValueError("not an RFC 3339 date and time")
    return datetime.fromisoformat(value)


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time without an offset; write UTC with a Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("outside the years 1 to 9999 in UTC") from None


Instant: TypeAlias = Annotated[datetime, BeforeValidator(_text), AfterValidator(_utc)]
"""A pydantic field type: an aware time, kept in UTC."""
