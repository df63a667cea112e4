"""Sweeps under a scheduler: each listed thread waits for a slot before it is even loaded (S008)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    Admission,
    CancelToken,
    Completed,
    Fatal,
    LeaseOptions,
    RecoverOptions,
    RunOptions,
    Scheduler,
    SchedulerOptions,
    WakeOptions,
)
from outcrop.engine.events import RunEvent, RunStarted
from outcrop.engine.failpoints import armed
from support.engine import EVERY_NODE, TTL, Crash, Doc, World, crashing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine import RecoverReport, Threads, WakeReport

    Report = WakeReport[Doc] | RecoverReport[Doc]

SWEEPS = ["wake", "recover"]
FULL = "it was not admitted: run not admitted: the scheduler's queue is full"
STOPPED = "it was not admitted: run not admitted: cancelled while waiting for a slot"


class Due:
    """Threads that are due, or dead, for a sweep under a scheduler of one slot."""

    def __init__(self, sweep: str, **options: Any) -> None:
        self.sweep, self.world = sweep, World()
        self.scheduler = Scheduler(SchedulerOptions(max_concurrent=1, **options), self.world.clock)
        graph = self.world.graph("a")
        if sweep == "wake":
            graph.timer("w", delay=timedelta(seconds=10))
            graph.edge("a", "w")
            self.world.trailing(graph, "b")
            graph.edge("w", "b")
        self.threads: Threads[Doc] = self.world.threads(graph.compile(checkpoints=EVERY_NODE))
        self.stop = CancelToken()
        self.lease = LeaseOptions("sweeper", TTL)

    async def leave(self, *threads: str, **metadata: str) -> None:
        """Have these threads due."""
        for thread in threads:
            options = RunOptions(metadata=metadata)
            if self.sweep == "wake":
                await self.threads.run(thread, Doc(), options)
            else:
                with armed(crashing("node.before", 1)), pytest.raises(Crash):
                    await self.threads.run(thread, Doc(), options)
        self.world.clock.advance(10)

    async def swept(self, options: RunOptions | None = None, **more: Any) -> Report:
        """What one sweep did."""
        options = replace(options or RunOptions(lease=self.lease), scheduler=self.scheduler)
        if self.sweep == "wake":
            return await self.threads.wake_due(WakeOptions(options=options, stop=self.stop, **more))
        return await self.threads.recover_stale(RecoverOptions(options=options, stop=self.stop, **more))

    async def take(self, **asked: Any) -> Admission:
        admitted = await self.scheduler.admit(**asked)
        assert isinstance(admitted, Admission)
        return admitted

    async def until_queued(self) -> None:
        while not self.scheduler.snapshot().queued:  # noqa: ASYNC110 - it tells nobody who comes
            await asyncio.sleep(0)

    @property
    def loads(self) -> int:
        return self.world.store.faults.calls.get("load", 0)


def done(report: Report) -> Sequence[str]:
    """The threads that the sweep ran."""
    ran = report.woken if hasattr(report, "woken") else report.recovered
    assert all(isinstance(one.result, Completed) for one in ran)
    return [one.thread_id for one in ran]


def skipped(report: Report) -> list[tuple[str, str]]:
    return [(one.thread_id, one.reason) for one in report.skipped]


@pytest.mark.parametrize("sweep", SWEEPS)
async def test_a_thread_that_gets_no_slot_is_skipped_and_not_even_loaded(sweep: str) -> None:
    """S008."""
    due = Due(sweep, max_queued=0)
    await due.leave("t", "u")
    held, loads, log = await due.take(), due.loads, await due.world.log()
    report = await due.swept()
    assert (done(report), skipped(report)) == ([], [("u", FULL), ("t", FULL)])
    assert report.refusal is None
    assert due.loads == loads
    assert await due.world.log() == log
    held.release()
    assert done(await due.swept()) == ["u", "t"]
    assert due.scheduler.snapshot().active == 0


@pytest.mark.parametrize("sweep", SWEEPS)
async def test_the_stop_of_a_sweep_ends_its_wait_for_a_slot(sweep: str) -> None:
    """S008: and it begins no other."""
    due = Due(sweep)
    await due.leave("t", "u")
    held, loads = await due.take(), due.loads
    sweeping = asyncio.ensure_future(due.swept())
    await due.until_queued()
    due.stop.fire()
    report = await sweeping
    assert (done(report), skipped(report), due.loads) == ([], [("u", STOPPED)], loads)
    held.release()
    assert due.scheduler.snapshot().active == 0


@pytest.mark.parametrize("sweep", SWEEPS)
async def test_a_run_takes_the_slot_that_its_thread_was_given(sweep: str) -> None:
    """S006, S008: one slot is enough, and its first event tells how long it waited for it."""
    due, events = Due(sweep), list[RunEvent]()
    await due.leave("t")
    held = await due.take()
    options = RunOptions(lease=due.lease, observer=events.append, priority=3)
    sweeping = asyncio.ensure_future(due.swept(options))
    await due.until_queued()
    due.world.clock.advance(2)
    held.release()
    assert done(await sweeping) == ["t"]
    while not events:  # noqa: ASYNC110 - events come from a thread
        await asyncio.sleep(0)
    started = events[0].kind
    assert isinstance(started, RunStarted)
    assert (started.queued_for, started.priority) == (2.0, 3)
    assert due.scheduler.snapshot().active == 0


@pytest.mark.parametrize("sweep", SWEEPS)
async def test_the_tenant_is_the_row_s_unless_the_run_has_one(sweep: str) -> None:
    """S007, S008: a paused tenant's threads are passed over while others' go on."""
    due = Due(sweep, tenant_max_queued=0)
    due.scheduler.set_tenant_limit("acme", 0)
    await due.leave("t", tenant="acme")
    await due.leave("u", tenant="zenith")
    report = await due.swept()
    assert (done(report), skipped(report)) == (["u"], [("t", FULL)])
    report = await due.swept(RunOptions(lease=due.lease, metadata={"tenant": "zenith"}))
    assert done(report) == ["t"]


@pytest.mark.parametrize("sweep", SWEEPS)
async def test_a_skipped_thread_gives_its_slot_back(sweep: str) -> None:
    """S006, S008: one that another run holds, and one that can't be loaded."""
    due = Due(sweep)
    await due.leave("t")
    await due.world.memory.acquire_lease("t", "other", TTL)
    (reason,) = [reason for _, reason in skipped(await due.swept())]
    assert reason.startswith("it is held by 'other' until")
    assert due.scheduler.snapshot().active == 0
    due.world.store.fail("load", OSError("away"))
    (reason,) = [reason for _, reason in skipped(await due.swept())]
    assert reason.startswith("its checkpoint can't be loaded: ")
    assert due.scheduler.snapshot().active == 0


@pytest.mark.parametrize("sweep", SWEEPS)
async def test_a_thread_that_is_refused_before_its_call_gives_its_slot_back(sweep: str) -> None:
    """S006, S008."""
    due = Due(sweep)
    await due.leave("t")
    report = await due.swept(RunOptions(lease=due.lease, interrupt_before=frozenset({"nowhere"})))
    assert [thread for thread, _ in skipped(report)] == ["t"]
    assert due.scheduler.snapshot().active == 0


async def test_a_closed_scheduler_skips_everybody() -> None:
    """S008."""
    due = Due("wake")
    await due.leave("t")
    due.scheduler.close()
    closed = "it was not admitted: run not admitted: the scheduler is closed"
    assert skipped(await due.swept()) == [("t", closed)]


async def test_a_stop_ends_the_wait_of_a_single_run_too() -> None:
    """S007: a run that waits for a slot hasn't begun, so it is handed over at once."""
    due = Due("wake")
    held, stop = await due.take(), CancelToken()
    options = RunOptions(scheduler=due.scheduler, stop=stop)
    running = asyncio.ensure_future(due.threads.run("t", Doc(), options))
    await due.until_queued()
    stop.fire()
    assert "cancelled while waiting for a slot" in str(await running)
    held.release()
    assert await due.world.memory.load("t") is None


async def test_a_failing_thread_gives_its_slot_back_too() -> None:
    """S006, S008."""
    due = Due("recover")
    graph = due.world.graph()
    due.world.failing(graph, "a", Fatal("no"))
    due.threads = due.world.threads(graph.compile(checkpoints=EVERY_NODE))
    await due.leave("t")
    await due.swept()
    assert await due.world.log() == ["running:->a", "running:->a", "failed:a>a"]
    assert due.scheduler.snapshot().active == 0
