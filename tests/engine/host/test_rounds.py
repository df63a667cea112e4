"""When rounds begin, how long failures put them off, and what ends them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from outcrop.engine import CancelToken, ManualClock
from outcrop.engine.host import Host, Task
from outcrop.engine.host.rounds import wait_after
from support.hosting import advance, hosting, settle


@pytest.mark.parametrize(
    ("failures", "interval", "wait"),
    [(0, 5, 5), (1, 5, 10), (2, 5, 20), (5, 5, 160), (6, 5, 300),
     (9_999, 5, 300), (0, 3600, 3600), (3, 3600, 3600)],
)  # fmt: skip
def test_the_wait_doubles_up_to_five_minutes_or_the_interval(
    failures: int, interval: float, wait: float
) -> None:
    """O11."""
    assert wait_after(failures, interval) == wait


class Work:
    """A task that notes when it was called, and fails while told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.error: BaseException | None = None
        self.at: list[float] = []

    async def __call__(self, _stop: CancelToken) -> None:
        self.at.append(self.clock.monotonic())
        if self.error is not None:
            raise self.error


async def test_a_task_that_errors_is_started_again_later_and_ends_with_the_host() -> None:
    """O8."""
    clock = ManualClock()
    work = Work(clock)
    async with hosting([Task("import", work)], clock) as host:
        work.error = RuntimeError("hunter2")
        await advance(clock, 1)
        (status,) = host.status
        assert (status.rounds, status.failed_rounds, status.failures_in_a_row) == (2, 1, 1)
        assert status.last_failure == "RuntimeError"
        work.error = None
        await advance(clock, 3)
        assert work.at == [0, 1, 3, 4]
        (status,) = host.status
        assert (status.rounds, status.failed_rounds, status.failures_in_a_row) == (4, 1, 0)
        assert (status.last_failure, status.last_round_at) == (None, clock.now())
    await advance(clock, 60)
    assert work.at == [0, 1, 3, 4]


async def test_a_cancelled_error_of_something_else_is_a_failure_like_others() -> None:
    clock = ManualClock()
    work = Work(clock)
    work.error = asyncio.CancelledError()
    async with hosting([Task("import", work)], clock) as host:
        await advance(clock, 2)
        assert work.at == [0, 2]
        assert host.status[0].last_failure == "CancelledError"


async def test_a_stopped_task_is_told_and_not_cancelled() -> None:
    """O5, O8."""
    clock, stop, ended = ManualClock(), CancelToken(), list[str]()

    async def consume(stop: CancelToken) -> None:
        await stop.wait()
        await asyncio.sleep(0)
        ended.append("in order")

    running = asyncio.create_task(Host([Task("consume", consume)], clock=clock).run(stop))
    await settle()
    assert not running.done()
    stop.fire()
    await running
    assert ended == ["in order"]


async def test_cancelling_the_host_itself_ends_everything() -> None:
    clock, stop, cancelled = ManualClock(), CancelToken(), list[str]()

    async def consume(stop: CancelToken) -> None:
        try:
            await stop.wait()
        except asyncio.CancelledError:
            cancelled.append("dropped")
            raise

    tasks = [Task("one", consume), Task("two", Work(clock), timedelta(hours=1))]
    running = asyncio.create_task(Host(tasks, clock=clock).run(stop))
    await settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cancelled == ["dropped"]
    assert clock.next_due is None


async def test_a_host_that_was_stopped_before_it_began_does_nothing() -> None:
    clock, stop = ManualClock(), CancelToken()
    work = Work(clock)
    stop.fire()
    await Host([Task("import", work)], clock=clock).run(stop)
    assert work.at == []


async def test_a_failing_driver_leaves_the_others_alone() -> None:
    clock = ManualClock()
    bad, good = Work(clock), Work(clock)
    bad.error = RuntimeError("down")
    async with hosting([Task("bad", bad), Task("good", good)], clock) as host:
        await advance(clock, 8)
        assert bad.at == [0, 2, 6]
        assert good.at == [0, 1, 2, 3, 4, 5, 6, 7, 8]
        assert [status.failures_in_a_row for status in host.status] == [3, 0]
