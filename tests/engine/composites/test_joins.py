"""Joins, purely: every order of ends of up to four members, against engine.md 4.1 read naively."""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING

import pytest

from outcrop.engine.composites import Join, JoinPolicy, Partial, first_matching, first_success, quorum
from outcrop.engine.errors import Fatal, Transient
from outcrop.engine.joins import Course, Failure, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

MATCH, OTHER, FAIL, FATAL = "match", "other", "fail", "fatal"

JOINS = [Join(), first_success(), first_matching(lambda _: True), *(quorum(n) for n in range(1, 5))]


def needed(join: Join, total: int) -> int:
    return {JoinPolicy.ALL: total, JoinPolicy.QUORUM: join.count or 0}.get(join.policy, 1)


def naive(ended: list[tuple[str, str]], total: int, tally: Tally) -> Course:
    """The text of 4.1, asked anew after each end."""
    counted = sum(end == MATCH for _, end in ended)
    open_ = total - len(ended)
    if counted >= needed(tally.join, total):
        return Course.MET
    if counted + open_ >= needed(tally.join, total) or tally.partial is Partial.KEEP_SUCCEEDED:
        return Course.GO_ON
    return Course.FAIL_NOW if tally.cancel_siblings else Course.WIND_UP


def histories(total: int, ends: tuple[str, ...]) -> Iterator[list[tuple[str, str]]]:
    for order in permutations("abcd"[:total]):
        for results in product(ends, repeat=total):
            yield list(zip(order, results, strict=True))


def take(tally: Tally, name: str, end: str) -> Course:
    if end in (MATCH, OTHER):
        return tally.succeeded(name, matches=end == MATCH)
    return tally.failed()


def failure(name: str, end: str) -> Failure:
    return Failure(f"{name} broke", end == FATAL, {"a": 1.0, "b": 4.0}.get(name))


@pytest.mark.parametrize("join", JOINS, ids=lambda join: f"{join.policy}-{join.count}")
@pytest.mark.parametrize("total", range(5))
@pytest.mark.parametrize("partial", list(Partial))
@pytest.mark.parametrize("cancel_siblings", [True, False])
def test_every_order_of_ends_decides_as_the_text_says(
    join: Join, total: int, partial: Partial, cancel_siblings: bool
) -> None:
    """N003, N009-N017: what is decided, after which end, by whom, and what the failure says."""
    ends = (MATCH, OTHER, FAIL, FATAL) if join.matches else (MATCH, FAIL, FATAL)
    for history in histories(total, ends):
        tally = Tally(join, total, partial, cancel_siblings)
        ended = list[tuple[str, str]]()
        course = tally.course
        assert course is naive(ended, total, tally)
        for name, end in history:
            if course in (Course.MET, Course.FAIL_NOW):
                break
            ended.append((name, end))
            course = take(tally, name, end)
            assert course is naive(ended, total, tally), history
        assert tally.deciding == [name for name, end in ended if end == MATCH]
        succeeded = sum(end in (MATCH, OTHER) for _, end in ended)
        keeps = partial is Partial.KEEP_SUCCEEDED and succeeded > 0
        assert tally.reduces == (course is Course.MET or keeps)
        if not tally.reduces:
            check_error(tally, ended, total, succeeded)


def check_error(tally: Tally, ended: list[tuple[str, str]], total: int, succeeded: int) -> None:
    failures = sorted((name, failure(name, end)) for name, end in ended if end in (FAIL, FATAL))
    error = tally.error(failures, "branch", "branches")
    parts = [f"branch '{name}': {name} broke" for name, _ in failures]
    if tally.join.policy is JoinPolicy.FIRST_MATCHING:
        parts.insert(0, f"no branch matched the join ({succeeded} succeeded)")
    if tally.join.policy is JoinPolicy.QUORUM:
        of = f"{succeeded} of {total} branches succeeded"
        parts.insert(0, f"quorum of {tally.join.count} not reached: {of}")
    assert str(error) == ("; ".join(parts) or "no branches to run")
    fatal = sum(told.is_fatal for _, told in failures)
    if total - fatal < needed(tally.join, total):
        assert isinstance(error, Fatal)
    else:
        assert isinstance(error, Transient)
        assert error.retry_after == max(
            (told.hint for _, told in failures if told.hint is not None), default=None
        )


def test_nothing_to_run_is_met_under_all_and_lost_in_a_race() -> None:
    """O001, O008."""
    assert Tally(Join(), 0).course is Course.MET
    race = Tally(first_success(), 0)
    assert race.course is Course.FAIL_NOW
    error = race.error([], "item", "items")
    assert isinstance(error, Fatal)
    assert str(error) == "no items to run"
