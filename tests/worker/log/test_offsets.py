"""The offset tracker against a naive model."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.worker import offsets
from outcrop.worker.offsets import LONGEST_METADATA, MAX_SPAN, MAX_UNFINISHED, Admission, OffsetTracker
from outcrop.worker.ports import Position


def admit_all(tracker: OffsetTracker, *numbers: int) -> list[Admission]:
    return [tracker.admit(number) for number in numbers]


def test_nothing_known_is_nothing_to_commit() -> None:
    assert OffsetTracker(None).position() is None


def test_position_is_the_lowest_unfinished() -> None:
    tracker = OffsetTracker(None)
    admit_all(tracker, 5, 6, 7)
    tracker.finish(6)
    position = tracker.position()
    assert position is not None
    assert position.offset == 5
    assert position.metadata != ""


def test_all_finished_is_one_past_the_last_without_metadata() -> None:
    tracker = OffsetTracker(None)
    admit_all(tracker, 5, 6)
    tracker.finish(6)
    tracker.finish(5)
    assert tracker.position() == Position(7)


def test_a_gap_counts_as_finished() -> None:
    tracker = OffsetTracker(Position(3))
    admit_all(tracker, 5, 9)
    tracker.finish(5)
    assert tracker.position() == Position(9)
    tracker.finish(9)
    assert tracker.position() == Position(10)


def test_next_owner_skips_what_was_finished_ahead() -> None:
    first = OffsetTracker(Position(0))
    admit_all(first, 0, 1, 2, 3)
    first.finish(1)
    first.finish(2)
    second = OffsetTracker(first.position())
    assert admit_all(second, 0, 1, 2, 3) == [
        Admission.HANDLE,
        Admission.SKIP,
        Admission.SKIP,
        Admission.HANDLE,
    ]


def test_next_owner_keeps_the_finished_ahead_it_has_not_seen() -> None:
    """F8: what is dropped from the metadata would be handled again."""
    first = OffsetTracker(Position(0))
    admit_all(first, *range(20))
    for offset in range(5, 20):
        first.finish(offset)
    second = OffsetTracker(first.position())
    second.admit(0)
    second.finish(0)
    third = OffsetTracker(second.position())
    assert admit_all(third, *range(1, 20)) == [Admission.HANDLE] * 4 + [Admission.SKIP] * 15


def test_an_inherited_offset_that_left_the_log_does_not_hold_the_position() -> None:
    first = OffsetTracker(Position(0))
    admit_all(first, 0, 1, 2, 3)
    first.finish(1)
    first.finish(3)
    second = OffsetTracker(first.position())
    second.admit(4)
    second.finish(4)
    assert second.position() == Position(5)


def test_delivered_twice_is_handled_once() -> None:
    tracker = OffsetTracker(Position(0))
    assert admit_all(tracker, 0, 1, 1, 0) == [
        Admission.HANDLE,
        Admission.HANDLE,
        Admission.SKIP,
        Admission.SKIP,
    ]


def test_a_full_partition_holds_and_goes_on() -> None:
    tracker = OffsetTracker(Position(0))
    assert set(admit_all(tracker, *range(MAX_UNFINISHED))) == {Admission.HANDLE}
    assert tracker.full
    assert tracker.admit(MAX_UNFINISHED) is Admission.HOLD
    tracker.finish(100)
    assert tracker.admit(MAX_UNFINISHED) is Admission.HANDLE


def test_a_full_inheritance_is_still_delivered() -> None:
    """An earlier owner's unfinished offsets must not keep themselves from being fetched."""
    first = OffsetTracker(Position(0))
    numbers = range(0, MAX_UNFINISHED * 2, 2)
    for number in numbers:
        admit_all(first, number)
    admit_all(first, MAX_UNFINISHED * 2)
    second = OffsetTracker(first.position())
    assert second.unfinished == 0
    assert set(admit_all(second, *numbers)) == {Admission.HANDLE}
    assert second.admit(MAX_UNFINISHED * 2) is Admission.HOLD


def test_the_longest_metadata_fits() -> None:
    """The proof in the module's docstring, at its corners."""
    for gap in (1, 127, 128, 2**21 - 1, 2**21, 2**26 - 1):
        tracker = OffsetTracker(Position(0))
        for index in range(MAX_UNFINISHED):
            assert tracker.admit(index * (gap + 1)) is Admission.HANDLE
        tracker._end = MAX_UNFINISHED * (gap + 1)
        position = tracker.position()
        assert position is not None
        assert len(position.metadata) <= LONGEST_METADATA
        assert OffsetTracker(position).position() == position


def test_worst_case_of_the_encoding_fits() -> None:
    """128 runs of five bytes, the rest of four: what MAX_SPAN allows at most."""
    unfinished, offset = [], 0
    for index in range(MAX_UNFINISHED):
        unfinished.append(offset)
        offset += 1 + (2**28 if index < 120 else 2**21)
    assert offset <= MAX_SPAN
    assert len(offsets._encode(unfinished, offset)) <= LONGEST_METADATA


def test_a_span_too_long_is_held() -> None:
    tracker = OffsetTracker(Position(0))
    tracker.admit(0)
    assert tracker.admit(MAX_SPAN) is Admission.HOLD
    tracker.finish(0)
    assert tracker.admit(MAX_SPAN) is Admission.HANDLE


def varints(*numbers: int) -> str:
    raw = b"".join(offsets._varint(number) for number in numbers)
    return "1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")


@pytest.mark.parametrize(
    "metadata",
    [
        "", "1.", "2.AQE", "1.!!", "1.AQ", "1.gA", "1.AAE", "another tool's", "1." + "A" * 5000,
        varints(MAX_UNFINISHED + 1, 1), varints(1, MAX_SPAN), varints(2**62, 2**62), varints(1, 1, 1),
        "1.////////////////", "1.é",
    ],
)  # fmt: skip
def test_metadata_that_is_not_ours_tells_nothing(metadata: str) -> None:
    tracker = OffsetTracker(Position(7, metadata))
    assert admit_all(tracker, 7, 8, 9) == [Admission.HANDLE] * 3


@given(st.text(max_size=200).map(lambda text: "1." + text) | st.binary(max_size=100).map(
    lambda raw: "1." + base64.urlsafe_b64encode(raw).decode()))  # fmt: skip
def test_any_metadata_is_survived(metadata: str) -> None:
    tracker = OffsetTracker(Position(7, metadata))
    assert tracker.admit(7) is Admission.HANDLE or metadata
    position = tracker.position()
    assert position is not None
    assert len(position.metadata) <= LONGEST_METADATA


@settings(max_examples=300, deadline=None)
@given(
    gaps=st.lists(st.integers(1, 5) | st.integers(100, 20000), min_size=1, max_size=60),
    steps=st.lists(st.tuples(st.sampled_from(["deliver", "finish", "finish", "move"]), st.integers(0, 1000))),
)
def test_like_the_naive_model(gaps: list[int], steps: list[tuple[str, int]]) -> None:
    log, offset = [], 0
    for gap in gaps:
        offset += gap
        log.append(offset)
    done: set[int] = set()  # finished and committed or not, by any owner
    tracker = OffsetTracker(Position(0))
    fetch, mine = 0, list[int]()
    for step, number in steps:
        if step == "deliver" and fetch < len(log):
            expected = Admission.SKIP if log[fetch] in done else Admission.HANDLE
            assert tracker.admit(log[fetch]) is expected
            if expected is Admission.HANDLE:
                mine.append(log[fetch])
            fetch += 1
        elif step == "finish" and mine:
            chosen = mine.pop(number % len(mine))
            tracker.finish(chosen)
            done.add(chosen)
        elif step == "move":
            position = tracker.position()
            assert position is not None
            pending = [one for one in log if one not in done]
            assert position.offset <= (pending[0] if pending else log[-1] + 1)
            assert all(one in done for one in log if one < position.offset)
            tracker, mine = OffsetTracker(position), []
            fetch = next((i for i, one in enumerate(log) if one >= position.offset), len(log))
