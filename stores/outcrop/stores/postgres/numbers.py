"""Floats in a form that JSONB gives back as floats.

JSONB keeps a number's value and scale but not its exponent: `1e16` comes back as the integer
10000000000000000. Written out with a fraction it stays a float. Texts inside the JSON are
left alone.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_EXPONENT: Final = re.compile(r"\d[eE][+-]?\d")
_TEXT_OR_NUMBER: Final = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|-?\d+(?:\.\d+)?[eE][+-]?\d+"
)
_WIDEST: Final = 400
"""Floats' exponents are within it; a wilder number would fill the memory, and is left to the server."""


def with_fixed_floats(text: str) -> str:
    """The same JSON without exponents, floats with a fraction."""
    return _TEXT_OR_NUMBER.sub(_fixed, text) if _EXPONENT.search(text) else text


def _fixed(found: re.Match[str]) -> str:
    text = found[0]
    if text[0] == '"':
        return text
    exponent = re.split("[eE]", text)[1]
    if len(exponent) > 5 or abs(int(exponent)) > _WIDEST:  # noqa: PLR2004 - a sign and what int() likes
        return text
    fixed = format(Decimal(text), "f")
    return fixed if "." in fixed else f"{fixed}.0"
