"""Durations as people write them in a URL or a settings document.

Owns the units and the refusal, shared by the store URLs' options and the settings. Knows
no option's name and no bound but zero: whoever needs a duration above zero checks that.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from .errors import InvalidRequest

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?: *(ms|s|m|h|d))?")


def parse_duration(value: str | float) -> timedelta:
    """A number of seconds, or text of a number with `ms`, `s`, `m`, `h` or `d`, as a duration.

    Text without a unit is a number of seconds, as URLs and environment variables have no
    other way to say one. Raises `InvalidRequest` for anything else, negative numbers,
    infinity and what is longer than a `timedelta` can be included.
    """
    seconds = _seconds(value)
    if seconds is not None and seconds >= 0:
        try:
            return timedelta(seconds=seconds)
        except (OverflowError, ValueError):  # too long, infinite, or no number
            pass
    raise InvalidRequest(
        f"'{value}' is not a duration: use a number of seconds, or a number with ms, s, m, h or d"
    )


def _seconds(value: str | float) -> float | None:
    if isinstance(value, bool):
        return None
    if not isinstance(value, str):
        return value
    match = _TEXT.fullmatch(value.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2] or "s"]
