from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from outcrop.topics.ids import RANDOM_BYTES, made_at, new_command_id, uuid7

WHEN = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)


def test_example_of_rfc_9562() -> None:
    """Appendix A.6 of the RFC."""
    random = bytes.fromhex("0CC318C4DC0C0C07398F")
    assert uuid7(WHEN, random) == UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds are naive
    st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES),
)
def test_id_is_of_version_7_and_tells_its_time(when: datetime, random: bytes) -> None:
    command_id = uuid7(when, random)
    assert (command_id.version, command_id.variant) == (7, "specified in RFC 4122")
    assert made_at(command_id) == when.replace(microsecond=when.microsecond // 1000 * 1000)


def test_ids_sort_by_time() -> None:
    earlier = uuid7(WHEN, b"\xff" * RANDOM_BYTES)
    assert earlier < uuid7(WHEN + timedelta(milliseconds=1), bytes(RANDOM_BYTES))


def test_other_ids_tell_no_time() -> None:
    assert made_at(uuid4()) is None


def test_new_ids_differ() -> None:
    assert len({new_command_id() for _ in range(100)}) == 100
