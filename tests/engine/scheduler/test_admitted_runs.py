"""Runs under a scheduler: they wait before they do anything, and always give their slot back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelToken,
    Completed,
    Failed,
    FailureKind,
    Fatal,
    Interrupted,
    Refused,
    RunOptions,
)
from outcrop.engine.chunks import ChunkStream
from outcrop.engine.events import RunEvent, RunStarted
from outcrop.engine.scheduler import Admission, Scheduler, SchedulerOptions
from outcrop.stores import MemoryStore
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, Doc, Gate, World, gated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.engine import Threads
    from outcrop.stores import Lease

    Verb = Callable[[Threads[Doc], RunOptions], Awaitable[object]]

SECOND = timedelta(seconds=1)
VERBS: dict[str, Verb] = {
    "run": lambda threads, options: threads.run("t", Doc(), options),
    "resume": lambda threads, options: threads.resume("t", Answer(), options),
    "signal": lambda threads, options: threads.signal("t", "paid", {}, options),
    "wake": lambda threads, options: threads.wake("t", options),
    "recover": lambda threads, options: threads.recover("t", options),
    "rerun": lambda threads, options: threads.rerun("t", 1, options),
}


class Busy:
    """A world whose scheduler has one slot, which is taken, and a graph that waits after `a`."""

    def __init__(self, **options: Any) -> None:
        self.world = World()
        self.scheduler = Scheduler(SchedulerOptions(max_concurrent=1, **options), self.world.clock)
        self.options = RunOptions(scheduler=self.scheduler)
        graph = self.world.graph("a")
        graph.interrupt("w")
        graph.edge("a", "w")
        self.world.trailing(graph, "b")
        graph.edge("w", "b")
        self.threads = self.world.threads(graph.compile(checkpoints=EVERY_NODE))

    async def take(self) -> Admission:
        admitted = await self.scheduler.admit()
        assert isinstance(admitted, Admission)
        return admitted

    @property
    def numbers(self) -> tuple[int, int]:
        shown = self.scheduler.snapshot()
        return (shown.active, shown.queued)


async def until_queued(busy: Busy, count: int = 1) -> None:
    while busy.numbers[1] < count:  # noqa: ASYNC110 - the scheduler tells nobody who comes
        await asyncio.sleep(0)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_run_that_is_not_admitted_leaves_no_trace(verb: str) -> None:
    """S005: no call of the store, no event, no chunk; the stream is closed."""
    busy = Busy(max_queued=0)
    await busy.threads.run("t", Doc())
    before, calls = await busy.world.log(), dict(busy.world.store.faults.calls)
    await busy.take()
    events, chunks = list[RunEvent](), ChunkStream()
    result = await VERBS[verb](busy.threads, replace(busy.options, observer=events.append, stream=chunks))
    assert isinstance(result, Failed)
    assert (result.kind, result.sequence) == (FailureKind.NOT_ADMITTED, None)
    assert result.message == "run not admitted: the scheduler's queue is full"
    assert dict(busy.world.store.faults.calls) == calls
    assert await busy.world.log() == before
    assert [chunk async for chunk in chunks] == []
    await asyncio.sleep(0)
    assert events == []
    assert busy.numbers == (1, 0)


@pytest.mark.parametrize("verb", ["run", "resume"])
async def test_a_run_waits_before_it_touches_the_store(verb: str) -> None:
    """S005, S007: and its first event tells how long it waited."""
    busy = Busy()
    if verb == "resume":
        await busy.threads.run("t", Doc())
    calls = dict(busy.world.store.faults.calls)
    held, events = await busy.take(), list[RunEvent]()
    task = asyncio.ensure_future(
        VERBS[verb](busy.threads, replace(busy.options, observer=events.append, priority=4))
    )
    await until_queued(busy)
    assert dict(busy.world.store.faults.calls) == calls
    busy.world.clock.advance(2)
    held.release()
    assert isinstance(await task, Interrupted if verb == "run" else Completed)
    while not events:  # noqa: ASYNC110 - events are delivered on the loop's next rounds
        await asyncio.sleep(0)
    started = events[0].kind
    assert isinstance(started, RunStarted)
    assert (started.queued_for, started.priority) == (2.0, 4)
    assert busy.numbers == (0, 0)


@pytest.mark.parametrize("ending", ["interrupted", "completed", "failed", "cancelled", "refused", "dropped"])
async def test_every_ending_gives_the_slot_back(ending: str) -> None:
    """S006."""
    busy, gate, token = Busy(), Gate(), CancelToken()
    graph = busy.world.graph()
    if ending in {"cancelled", "dropped"}:
        gated(graph, "n", gate)
    elif ending == "failed":
        busy.world.failing(graph, "n", Fatal("no"))
    else:
        busy.world.trailing(graph, "n")
    threads = busy.threads if ending == "interrupted" else busy.world.threads(graph.compile())
    options = replace(busy.options, cancellation=token, expected_sequence=7 if ending == "refused" else None)
    task = asyncio.create_task(threads.run("t", Doc(), options))
    if ending in {"cancelled", "dropped"}:
        await gate.reached.wait()
        assert busy.numbers == (1, 0)
        if ending == "dropped":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            token.fire()
    if ending != "dropped":
        kinds = {
            "interrupted": Interrupted,
            "completed": Completed,
            "failed": Failed,
            "cancelled": Cancelled,
            "refused": Refused,
        }
        assert isinstance(await task, kinds[ending])
    assert busy.numbers == (0, 0)


async def test_levels_share_their_run_s_slot() -> None:
    """S006: a subgraph's run and a group's branches ask for none of their own."""
    busy, seen = Busy(max_queued=0), list[tuple[int, int]]()
    child = busy.world.graph()

    @child.node(name="inner")
    async def inner(_doc: Doc) -> None:
        seen.append(busy.numbers)

    graph = busy.world.graph()
    graph.subgraph("Work", child.compile(), input=lambda doc: doc, output=lambda _doc, done: done)
    threads = busy.world.threads(graph.compile())
    assert isinstance(await threads.run("t", Doc(), busy.options), Completed)
    assert seen == [(1, 0)]
    assert busy.numbers == (0, 0)


async def test_an_end_takes_no_slot() -> None:
    """S006."""
    busy = Busy(max_queued=0)
    await busy.threads.run("t", Doc())
    await busy.take()
    assert isinstance(await busy.threads.end("t", by="me", options=busy.options), Cancelled)
    assert busy.numbers == (1, 0)


@pytest.mark.parametrize("by", ["token", "deadline"])
async def test_what_ends_a_run_ends_its_wait_with_nothing_written(by: str) -> None:
    """S007."""
    busy, token = Busy(), CancelToken()
    await busy.take()
    options = replace(busy.options, cancellation=token, deadline=busy.world.clock.now() + SECOND)
    task = asyncio.create_task(busy.threads.run("t", Doc(), options))
    await until_queued(busy)
    if by == "token":
        token.fire()
    else:
        busy.world.clock.advance(1)
    result = await task
    assert isinstance(result, Failed)
    assert (
        result.message
        == {
            "token": "run not admitted: cancelled while waiting for a slot",
            "deadline": "run not admitted: its deadline passed while it waited for a slot",
        }[by]
    )
    assert not busy.world.store.faults.calls
    assert busy.numbers == (1, 0)


async def test_a_tenant_at_its_limit_blocks_only_its_own_runs() -> None:
    """S007: the tenant is in the run's metadata."""
    busy, gate = Busy(), Gate()
    scheduler = Scheduler(SchedulerOptions(tenant_limit=1, tenant_key="who"), busy.world.clock)
    graph = busy.world.graph()
    gated(graph, "n", gate)
    held = busy.world.threads(graph.compile())

    def of(tenant: str) -> RunOptions:
        return RunOptions(scheduler=scheduler, metadata={"who": tenant})

    first = asyncio.create_task(held.run("1", Doc(), of("a")))
    await gate.reached.wait()
    second = asyncio.create_task(busy.threads.run("2", Doc(), of("a")))
    assert isinstance(await busy.threads.run("3", Doc(), of("b")), Interrupted)
    assert not second.done()
    gate.opened.set()
    assert isinstance(await first, Completed)
    assert isinstance(await second, Interrupted)


async def test_waiting_runs_go_by_priority() -> None:
    """S007."""
    busy = Busy()
    held = await busy.take()
    order = list[str]()

    async def run(name: str, priority: int) -> None:
        await busy.threads.run(name, Doc(), replace(busy.options, priority=priority))
        order.append(name)

    tasks = list[asyncio.Task[None]]()
    for count, (name, priority) in enumerate([("low", 0), ("high", 2), ("middle", 1)], start=1):
        tasks.append(asyncio.create_task(run(name, priority)))
        await until_queued(busy, count)
    held.release()
    await asyncio.gather(*tasks)
    assert order == ["high", "middle", "low"]


class SlowToRelease(MemoryStore):
    """A store that gives leases back once its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    async def release_lease(self, lease: Lease) -> bool:
        await self.gate()
        return await super().release_lease(lease)


async def test_the_slot_comes_back_after_the_lease() -> None:
    """So that the next run that gets it may be of the same thread."""
    store = SlowToRelease()
    world = World(store)
    threads = world.threads(world.graph("a").compile(checkpoints=BOUNDARIES))
    scheduler = Scheduler(SchedulerOptions(max_concurrent=1), world.clock)
    options = replace(LEASED, scheduler=scheduler)
    first = asyncio.create_task(threads.run("t", Doc(), options))
    await store.gate.reached.wait()
    second = asyncio.create_task(threads.run("t", Doc(), options))
    await asyncio.sleep(0)
    assert scheduler.snapshot().queued == 1
    store.gate.opened.set()
    assert isinstance(await first, Completed)
    assert isinstance(await second, Completed)
