"""Durations as numbers and text."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outcrop.stores.durations import parse_duration
from outcrop.stores.errors import InvalidRequest


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0), (30, 30), (0.25, 0.25), ("50ms", 0.05), ("5 s", 5), ("1.5m", 90), ("2  h", 7200), ("1d", 86400),
     ("30", 30), (" 7s ", 7)],
)  # fmt: skip
def test_numbers_are_seconds_and_text_has_a_unit(value: str | float, seconds: float) -> None:
    """P1, P2."""
    assert parse_duration(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-1", "-1s", "1w", "1 s s", "1e3", "s", "1.s", ".5s", "٣s", "1s\n2", "inf", -1, -0.1, True,
     float("inf"), float("nan"), 10**400, "9" * 400 + "d", "9" * 20 + "d"],
)  # fmt: skip
def test_anything_else_is_refused(value: str | float) -> None:
    """P2."""
    with pytest.raises(InvalidRequest) as caught:
        parse_duration(value)
    assert str(caught.value) == (
        f"'{value}' is not a duration: use a number of seconds, or a number with ms, s, m, h or d"
    )
