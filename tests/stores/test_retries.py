"""Repeating calls: how often, after which waits, and what a doubtful save comes to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import MemoryStore, NotLatest, Saved, StoreError, Unavailable
from outcrop.stores.contract import sample
from outcrop.stores.options import RetryOptions
from outcrop.stores.retries import InDoubt, Retries, settled

if TYPE_CHECKING:
    from outcrop.stores.port import SaveResult

ONE_TRY = RetryOptions(max_attempts=1)


class Failing:
    """Work that fails a number of times first, and the waits in between."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.waits: list[float] = []

    async def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def retries(self, options: RetryOptions, jitter: float = 1.0) -> Retries:
        return Retries(options=options, uniform=lambda: jitter, sleep=self.sleep)


def test_defaults() -> None:
    """H2."""
    options = RetryOptions()
    assert (options.max_attempts, options.initial_delay, options.max_delay) == (
        4, timedelta(milliseconds=50), timedelta(seconds=2),
    )  # fmt: skip
    bounds = [options.bound(failures) for failures in range(1, 9)]
    assert bounds == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2]


@pytest.mark.parametrize(
    ("jitter", "waits"), [(1.0, [0.05, 0.1, 0.2]), (0.5, [0.025, 0.05, 0.1]), (0.0, [0, 0, 0])]
)
async def test_waits_are_random_up_to_a_doubling_bound(jitter: float, waits: list[float]) -> None:
    """H2, H3: repeated until it works."""
    work = Failing(*[Unavailable("gone")] * 3)
    assert await work.retries(RetryOptions(), jitter).run(work) == "done"
    assert work.waits == waits


@pytest.mark.parametrize(
    ("options", "calls"),
    [(RetryOptions(), 4), (RetryOptions(max_attempts=0), 1), (ONE_TRY, 1)],
)
async def test_the_last_failure_is_told(options: RetryOptions, calls: int) -> None:
    """H2, H3."""
    failures = [Unavailable(str(at)) for at in range(9)]
    work = Failing(*failures)
    with pytest.raises(Unavailable) as failed:
        await work.retries(options).run(work)
    assert (failed.value, work.calls) == (failures[calls - 1], calls)


async def test_what_does_not_pass_is_not_repeated() -> None:
    """H3."""
    work = Failing(StoreError("no"))
    with pytest.raises(StoreError, match="no"):
        await work.retries(RetryOptions()).run(work)
    assert (work.calls, work.waits) == (1, [])


async def test_what_may_have_happened_is_not_done_twice() -> None:
    """H9: what surely hasn't is done again."""
    work = Failing(Unavailable("refused"), InDoubt("lost"), Unavailable("never raised"))
    with pytest.raises(InDoubt, match="lost"):
        await work.retries(RetryOptions()).run_at_most_once(work)
    assert work.calls == 2
    work = Failing(*[Unavailable(str(at)) for at in range(9)])
    with pytest.raises(Unavailable, match="3"):
        await work.retries(RetryOptions()).run_at_most_once(work)


async def test_a_save_that_surely_did_not_happen_is_not_looked_for() -> None:
    """H7: an equal row is another one's."""
    store = MemoryStore()
    await store.save(sample())
    work = Failing(Unavailable("refused"))

    async def attempt() -> SaveResult:
        await work()
        return await store.save(sample())

    answer = await work.retries(RetryOptions()).save(attempt, lambda: settled(store, sample(), None))
    assert answer == Saved(1)


@pytest.mark.parametrize("expected", [None, 0])
@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_save_in_doubt_happens_once(expected: int | None, lost: str) -> None:
    """H7, H8."""
    store = MemoryStore()
    await store.save(sample(metadata={"by": "before"}))
    row = sample(metadata={"by": "us"})
    work = Failing(InDoubt("lost"))

    async def attempt() -> SaveResult:
        if lost == "request":
            await work()
        answer = await store.save(row, expected=expected)
        await work()
        return answer

    answer = await work.retries(RetryOptions()).save(attempt, lambda: settled(store, row, expected))
    assert answer == Saved(1)
    assert len((await store.get_log("t")).entries) == 2


async def test_another_row_in_its_place_is_a_moved_log() -> None:
    """H8."""
    store = MemoryStore()
    await store.save(sample(metadata={"by": "another"}))
    assert await settled(store, sample(), -1) == NotLatest()
    assert await settled(store, sample(), None) is None
