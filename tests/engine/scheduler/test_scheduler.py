"""Waiting for a slot: what ends it, what comes back, and what is told of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine.cancellation import CancelToken
from outcrop.engine.clock import ManualClock
from outcrop.engine.scheduler import (
    Admission,
    NotAdmitted,
    Scheduler,
    SchedulerOptions,
    SchedulerSnapshot,
    TenantSnapshot,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

SECOND = timedelta(seconds=1)


class Desk:
    """A scheduler on a clock moved by hand, and those who ask it."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[str, str, int, timedelta]] = []
        self.stood: list[tuple[int, int]] = []
        self.scheduler = Scheduler(SchedulerOptions(**options), self.clock, hook=self)

    def observed(self, name: str, outcome: str, priority: int, waited: timedelta) -> None:
        self.told.append((name, outcome, priority, waited))

    def stands(self, name: str, *, queued: int, active: int) -> None:
        assert name == self.scheduler.options.name
        if self.stood[-1:] != [(queued, active)]:
            self.stood.append((queued, active))

    async def slot(self, **asked: Any) -> Admission:
        admitted = await self.scheduler.admit(**asked)
        assert isinstance(admitted, Admission)
        return admitted

    async def wait(self, **asked: Any) -> asyncio.Task[Admission | NotAdmitted]:
        """Ask, and come to the point where the answer is waited for."""
        task = asyncio.create_task(self.scheduler.admit(**asked))
        await asyncio.sleep(0)
        return task

    @property
    def numbers(self) -> tuple[int, int]:
        shown = self.scheduler.snapshot()
        return (shown.active, shown.queued)


async def refused(asking: Coroutine[Any, Any, Admission | NotAdmitted] | asyncio.Task[Any]) -> NotAdmitted:
    answer = await asking
    assert isinstance(answer, NotAdmitted)
    return answer


async def test_higher_priorities_go_first_then_those_who_came_first() -> None:
    """S001."""
    desk, order = Desk(max_concurrent=1), list[str]()
    held = await desk.slot()

    async def run(name: str, priority: int) -> None:
        with await desk.slot(priority=priority):
            order.append(name)

    asked = [("low", -1), ("first", 0), ("second", 0), ("high", 5)]
    tasks = [asyncio.create_task(run(name, priority)) for name, priority in asked]
    await asyncio.sleep(0)
    held.release()
    await asyncio.gather(*tasks)
    assert order == ["high", "first", "second", "low"]
    assert desk.numbers == (0, 0)


async def test_a_reserved_slot_is_kept_for_its_priority() -> None:
    """S001."""
    desk = Desk(max_concurrent=2, reservations={5: 1})
    await desk.slot()
    waiting = await desk.wait()
    await desk.slot(priority=5)
    assert not waiting.done()
    assert desk.numbers == (2, 1)


async def test_a_tenant_at_its_limit_holds_up_nobody_else() -> None:
    """S001: set_tenant_limit takes effect at once."""
    desk = Desk(max_concurrent=3, tenant_limit=1, tenant_limits={"paused": 0})
    await desk.slot(tenant="a")
    second, paused = await desk.wait(tenant="a"), await desk.wait(tenant="paused")
    other = await desk.slot(tenant="b")
    assert desk.numbers == (2, 2)
    desk.scheduler.set_tenant_limit("paused", None)
    assert isinstance(await paused, Admission)
    other.release()
    assert not second.done()
    desk.scheduler.set_tenant_limit("a", 2)
    assert isinstance(await second, Admission)


async def test_a_fair_scheduler_serves_a_quiet_tenant_before_a_busy_one() -> None:
    desk, order = Desk(max_concurrent=2, fair=True), list[str]()
    first, second = await desk.slot(tenant="busy"), await desk.slot(tenant="busy")

    async def run(name: str) -> None:
        await desk.slot(tenant=name)
        order.append(name)

    tasks = [asyncio.create_task(run(name)) for name in ("busy", "quiet")]
    await asyncio.sleep(0)
    first.release()
    await asyncio.sleep(0)
    second.release()
    await asyncio.gather(*tasks)
    assert order == ["quiet", "busy"]


async def test_a_fair_scheduler_counts_those_at_work_before_who_came_last() -> None:
    desk = Desk(max_concurrent=3, fair=True)
    first = await desk.slot(tenant="busy")
    await desk.slot(tenant="busy")
    third = await desk.slot(tenant="quiet")
    busy, quiet = await desk.wait(tenant="busy"), await desk.wait(tenant="quiet")
    held = await desk.wait()
    third.release()
    await asyncio.sleep(0)
    assert (quiet.done(), held.done(), busy.done()) == (False, True, False)  # nobody's runs are a tenant too
    first.release()
    await asyncio.sleep(0)
    assert (quiet.done(), busy.done()) == (True, False)


async def test_a_fair_scheduler_remembers_whose_turn_it_was_while_they_wait() -> None:
    desk, order = Desk(max_concurrent=1, fair=True), list[str]()

    async def run(name: str) -> None:
        with await desk.slot(tenant=name):
            order.append(name)
            if order == ["a", "b"]:
                tasks.append(asyncio.create_task(run("c")))
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(run(name)) for name in ("a", "b", "b", "a")]
    for task in tasks:
        await task
    assert order == ["a", "b", "c", "a", "b"]


async def test_a_full_queue_sheds_its_last_for_a_higher_priority() -> None:
    """S001, S004: both refusals and their texts."""
    desk = Desk(max_concurrent=1, max_queued=1)
    await desk.slot()
    waiting = await desk.wait()
    full = await refused(desk.scheduler.admit())
    better = await desk.wait(priority=1)
    shed = await refused(waiting)
    assert (full.reason, full.message) == (
        "queue_full",
        "run not admitted: the scheduler's queue is full",
    )
    assert (shed.reason, shed.message) == (
        "shed",
        "run not admitted: shed from the scheduler's queue for a higher-priority run",
    )
    assert not better.done()


async def test_a_tenant_may_queue_only_so_much() -> None:
    """S001."""
    desk = Desk(max_concurrent=1, tenant_max_queued=1)
    await desk.slot()
    await desk.wait(tenant="a")
    assert (await refused(desk.scheduler.admit(tenant="a"))).reason == "queue_full"
    assert not (await desk.wait(tenant="b")).done()


async def test_closing_refuses_all_but_those_at_work() -> None:
    """S001, S004."""
    desk = Desk(max_concurrent=1)
    held, waiting = await desk.slot(), await desk.wait()
    desk.scheduler.close()
    early, late = await refused(waiting), await refused(desk.scheduler.admit())
    assert early.message == late.message == "run not admitted: the scheduler is closed"
    assert desk.scheduler.snapshot().closed
    assert desk.numbers == (1, 0)
    held.release()
    assert desk.numbers == (0, 0)
    assert (await refused(desk.scheduler.admit())).reason == "closed"


@pytest.mark.parametrize(
    ("deadline", "waited", "message"),
    [
        (2, 2, "run not admitted: its deadline passed while it waited for a slot"),
        (3, 3, "run not admitted: its deadline passed while it waited for a slot"),
        (4, 3, "run not admitted: no slot within the scheduler's longest wait"),
        (None, 3, "run not admitted: no slot within the scheduler's longest wait"),
    ],
)
async def test_the_earlier_limit_ends_the_wait_and_names_the_reason(
    deadline: int | None, waited: int, message: str
) -> None:
    """S002, S004: the deadline wins a tie."""
    desk = Desk(max_concurrent=1, max_queue_time=3 * SECOND)
    await desk.slot()
    instant = None if deadline is None else desk.clock.now() + deadline * SECOND
    waiting = await desk.wait(deadline=instant)
    desk.clock.advance(waited - 0.001)
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.clock.advance(0.001)
    answer = await refused(waiting)
    assert (answer.message, answer.waited) == (message, waited * SECOND)
    assert desk.numbers == (1, 0)


async def test_an_expired_deadline_refuses_a_wait_but_not_a_free_slot() -> None:
    """S002; nor does a fired token."""
    desk, fired = Desk(max_concurrent=2), CancelToken()
    fired.fire()
    past = desk.clock.now() - SECOND
    await desk.slot(deadline=past)
    await desk.slot(cancellation=fired, stop=fired)
    assert (await refused(desk.scheduler.admit(deadline=past))).reason == "deadline"
    assert (await refused(desk.scheduler.admit(deadline=past, cancellation=fired))).reason == "cancelled"


@pytest.mark.parametrize("token", ["cancellation", "stop"])
async def test_a_token_ends_the_wait(token: str) -> None:
    """S004, S007."""
    desk, fired = Desk(max_concurrent=1), CancelToken()
    await desk.slot()
    waiting = await desk.wait(**{token: fired})
    fired.fire()
    assert (await refused(waiting)).message == "run not admitted: cancelled while waiting for a slot"
    assert desk.numbers == (1, 0)


@pytest.mark.parametrize("slot_first", [True, False])
async def test_an_admission_racing_its_timeout_keeps_what_was_decided_first(slot_first: bool) -> None:
    """S003."""
    desk = Desk(max_concurrent=1, max_queue_time=SECOND)
    held, waiting = await desk.slot(), await desk.wait()
    if slot_first:
        held.release()
        desk.clock.advance(1)
    else:
        desk.clock.advance(1)
        held.release()
    assert isinstance(await waiting, Admission) == slot_first
    assert desk.numbers == (int(slot_first), 0)


async def test_dropping_one_who_waits_withdraws_it() -> None:
    """S003."""
    desk, token = Desk(max_concurrent=1, max_queue_time=SECOND), CancelToken()
    held, waiting = await desk.slot(), await desk.wait(cancellation=token)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert desk.numbers == (1, 0)
    assert desk.clock.next_due is None
    token.fire()
    held.release()
    assert desk.numbers == (0, 0)
    assert [outcome for _, outcome, _, _ in desk.told] == ["admitted"]


@pytest.mark.parametrize("slot_first", [True, False])
async def test_dropping_one_who_has_its_slot_already_hands_the_slot_on(slot_first: bool) -> None:
    """S003: the task is cancelled between the decision and its return, whichever came first."""
    desk = Desk(max_concurrent=1)
    held, dropped, behind = await desk.slot(), await desk.wait(), await desk.wait()
    if slot_first:
        held.release()
        dropped.cancel()
    else:
        dropped.cancel()
        held.release()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    assert isinstance(await behind, Admission)
    assert desk.numbers == (1, 0)


async def test_a_wait_whose_coroutine_is_closed_is_withdrawn() -> None:
    """S003."""
    desk = Desk(max_concurrent=1)
    await desk.slot()
    asking = desk.scheduler.admit()
    asking.send(None)
    assert desk.numbers == (1, 1)
    asking.close()
    assert desk.numbers == (1, 0)


async def test_a_wait_that_cannot_be_limited_is_withdrawn() -> None:
    desk = Desk(max_concurrent=1)
    await desk.slot()
    naive = desk.clock.now().replace(tzinfo=None)
    with pytest.raises(TypeError):
        await desk.scheduler.admit(deadline=naive)
    assert desk.numbers == (1, 0)


async def test_a_slot_is_given_back_once() -> None:
    desk = Desk(max_concurrent=2)
    first = await desk.slot()
    await desk.slot()
    first.release()
    first.release()
    assert desk.numbers == (1, 0)


async def test_the_snapshot_shows_tenants_with_runs_or_a_limit() -> None:
    """S004."""
    desk = Desk(name="main", max_concurrent=2, max_queued=7, tenant_limit=1, tenant_limits={"paused": 0})
    await desk.slot(tenant="a")
    await desk.wait(tenant="a")
    gone = await desk.slot(tenant="gone")
    gone.release()
    await desk.slot()
    assert desk.scheduler.snapshot() == SchedulerSnapshot(
        name="main",
        active=2,
        queued=1,
        max_concurrent=2,
        max_queued=7,
        closed=False,
        tenants={"a": TenantSnapshot(1, 1, None), "paused": TenantSnapshot(0, 0, 0)},
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "the scheduler's name must not be empty"),
        ({"max_concurrent": 0}, "the scheduler's max_concurrent must be at least 1"),
        ({"max_queue_time": timedelta()}, "the scheduler's max_queue_time must be more than zero"),
        ({"reservations": {3: 0}}, "the reservation for priority 3 must keep at least one slot"),
        (
            {"max_concurrent": 4, "reservations": {1: 3, 2: 1}},
            "the reservations keep 4 of 4 slots: they must leave at least one for every priority",
        ),
        ({"tenant_key": ""}, "the scheduler's tenant_key must not be empty"),
        ({"tenant_limits": {"": 1}}, "a tenant limit names no tenant"),
        ({"name": "", "tenant_key": ""}, "the scheduler's name must not be empty"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    """S004; two reservations for one priority can't be written: they are a mapping."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        SchedulerOptions(**options)
    assert str(caught.value) == message


def test_the_defaults_are_the_specification_s() -> None:
    """S004."""
    options = SchedulerOptions()
    assert (options.name, options.max_concurrent, options.max_queued) == ("default", 16, 1024)
    assert (options.max_queue_time, options.tenant_key, options.fair) == (None, "tenant", False)
    assert (options.tenant_limit, options.tenant_max_queued) == (None, None)
    assert not options.reservations
    assert not options.tenant_limits


async def test_the_hook_is_told_of_every_decision_and_how_long_it_took() -> None:
    desk = Desk(name="main", max_concurrent=1, max_queue_time=2 * SECOND)
    held = await desk.slot(priority=3)
    slow, late = await desk.wait(), await desk.wait(priority=-1)
    desk.clock.advance(1)
    held.release()
    await slow
    desk.clock.advance(1)
    await late
    assert desk.told == [
        ("main", "admitted", 3, 0 * SECOND),
        ("main", "admitted", 0, SECOND),
        ("main", "queue_timeout", -1, 2 * SECOND),
    ]


async def test_the_hook_is_told_how_many_wait_and_work() -> None:
    """S004, R010: at every change, whoever brings it about."""
    desk = Desk(max_concurrent=1, max_queue_time=SECOND)
    held = await desk.slot()
    slow, tired = await desk.wait(), await desk.wait()
    paused = await desk.wait(tenant="acme")
    assert desk.stood == [(0, 1), (1, 1), (2, 1), (3, 1)]
    tired.cancel()
    await asyncio.sleep(0)
    desk.scheduler.set_tenant_limit("acme", 0)
    held.release()
    (await slow).release()  # type: ignore[union-attr] # it got the slot
    desk.clock.advance(1)
    await refused(paused)
    assert desk.stood[4:] == [(2, 1), (1, 1), (1, 0), (0, 0)]
    last = await desk.slot()
    waiting = await desk.wait()
    desk.scheduler.close()
    await refused(waiting)
    last.release()
    assert desk.stood[8:] == [(0, 1), (1, 1), (0, 1), (0, 0)]


async def test_the_hook_is_told_of_those_whom_a_new_limit_lets_in() -> None:
    """S004, R010."""
    desk = Desk()
    desk.scheduler.set_tenant_limit("acme", 0)
    paused = await desk.wait(tenant="acme")
    desk.scheduler.set_tenant_limit("acme", None)
    assert desk.stood == [(0, 0), (1, 0), (0, 1)]
    await paused


async def test_a_hook_that_fails_costs_no_slot(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def observed(self, name: str, outcome: str, priority: int, waited: timedelta) -> None:
            raise RuntimeError(f"no metric of {name}, {outcome}, {priority}, {waited}")

        def stands(self, name: str, *, queued: int, active: int) -> None:
            raise RuntimeError(f"no gauge of {name}, {queued}, {active}")

    scheduler = Scheduler(SchedulerOptions(name="main", max_concurrent=1), ManualClock(), hook=Broken())
    admitted = await scheduler.admit()
    assert isinstance(admitted, Admission)
    admitted.release()
    assert scheduler.snapshot().active == 0
    assert "the hook of scheduler 'main' failed" in caplog.text


async def test_a_fair_scheduler_forgets_idle_tenants_behind_a_busy_one() -> None:
    """One run that takes all day doesn't make every tenant of the day stay in memory."""
    desk = Desk(max_concurrent=2, fair=True)
    await desk.slot(tenant="all day")
    for number in range(5000):
        (await desk.slot(tenant=f"t{number}")).release()
    assert len(desk.scheduler._queue._last_admitted) < 2000
