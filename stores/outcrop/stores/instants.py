"""Instants as the text that rows keep: `YYYY-MM-DDTHH:MM:SSZ`, UTC, whole seconds.

Owns the only ways into and out of that shape. Rows are ordered by this text, so any other
shape would sort wrongly: nothing else may write a time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from .errors import CorruptRow, InvalidRequest

_SHAPE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)


def instant_text(moment: datetime) -> str:
    """The instant, cut to the whole second; raises `InvalidRequest` for a naive time."""
    if moment.tzinfo is None:
        raise InvalidRequest("a time needs a time zone")
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat()[:19] + "Z"


def instant_text_rounded_up(moment: datetime) -> str:
    """The instant, or the next whole second when it has a fraction (for due times)."""
    return instant_text(moment + timedelta(seconds=1) if moment.microsecond else moment)


def parse_instant(text: str) -> datetime:
    """The aware instant of a row's time text; raises `CorruptRow` for any other shape."""
    if _SHAPE.fullmatch(text) is None:
        raise CorruptRow(f"bad timestamp '{text}' in the log: it isn't of the form YYYY-MM-DDTHH:MM:SSZ")
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise CorruptRow(f"bad timestamp '{text}' in the log: {error}") from error
