"""Messages' instants as text: RFC 3339 in UTC with 0, 3 or 6 digits of a second's fraction.

Each engine ends the text its own way (`Z`, or `+00:00` in SQLite), and reads whatever RFC 3339
another writer left, down to the microsecond. Nothing is ordered by this text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from outcrop.stores.errors import CorruptRow

_RFC_3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}):(\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})",
    re.ASCII,
)
_LEAP_SECOND = "60"


def timestamp_text(moment: datetime, *, zone: str) -> str:
    """The instant in UTC, ending in `zone`."""
    utc = moment.astimezone(UTC).replace(tzinfo=None)
    if utc.microsecond % 1000:
        return utc.isoformat(timespec="microseconds") + zone
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds") + zone


def parse_timestamp(text: str) -> datetime:
    """The instant of any RFC 3339 text, in UTC, cut to the microsecond; raises `CorruptRow`."""
    parts = _RFC_3339.fullmatch(text)
    if parts is None:
        raise CorruptRow(f"bad timestamp '{text}' in the history: it isn't of RFC 3339's form")
    day, minute, second, fraction, zone = parts.groups()
    leap = second == _LEAP_SECOND
    plain = f"{day}T{minute}:{'59' if leap else second}{(fraction or '')[:7]}{zone.upper()}"
    try:
        return datetime.fromisoformat(plain).astimezone(UTC) + timedelta(seconds=leap)
    except (ValueError, OverflowError) as error:
        raise CorruptRow(f"bad timestamp '{text}' in the history: {error}") from error
