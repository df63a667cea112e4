"""Times as text: cut, rounded up, and read strictly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from outcrop.stores import CorruptRow, InvalidRequest
from outcrop.stores.instants import instant_text, instant_text_rounded_up, parse_instant


def test_now_is_cut_to_the_second() -> None:
    assert instant_text(datetime(2026, 1, 2, 3, 4, 5, 999999, tzinfo=UTC)) == "2026-01-02T03:04:05Z"


def test_another_zone_becomes_utc() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    assert instant_text(datetime(2026, 1, 2, 3, 4, 5, tzinfo=east)) == "2026-01-01T21:34:05Z"


def test_due_times_are_rounded_up() -> None:
    at = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert instant_text_rounded_up(at) == "2026-12-31T23:59:59Z"
    assert instant_text_rounded_up(at + timedelta(microseconds=1)) == "2027-01-01T00:00:00Z"


def test_early_years_keep_their_width() -> None:
    assert instant_text(datetime(1, 1, 1, tzinfo=UTC)) == "0001-01-01T00:00:00Z"


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a time needs a time zone"):
        instant_text(datetime(2026, 1, 2))  # noqa: DTZ001 - what is refused


def test_reading_gives_the_instant() -> None:
    assert parse_instant("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05+00:00",
     "2026-01-02 03:04:05Z", "2026-13-02T03:04:05Z", "2026-02-30T03:04:05Z", "2026-01-02T03:04:05Z\n",
     "\uff12026-01-02T03:04:05Z"],
)  # fmt: skip
def test_any_other_shape_is_refused(text: str) -> None:
    with pytest.raises(CorruptRow, match=r"(?s)bad timestamp '.*' in the log: "):
        parse_instant(text)
