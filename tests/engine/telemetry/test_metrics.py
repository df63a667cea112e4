"""Metrics of real runs and schedulers: each with its unit, labels and counts (R005, R009, R010)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint

from outcrop.engine import (
    CancelToken,
    Completed,
    Failed,
    Fatal,
    Graph,
    Retry,
    RunEvent,
    RunOptions,
    Scheduler,
    SchedulerOptions,
    Transient,
)
from outcrop.engine.events import RunCompleted
from outcrop.engine.failpoints import armed
from support.engine import (
    BOUNDARIES,
    EVERY_NODE,
    LEASED,
    OTHER,
    TTL,
    Crash,
    Doc,
    Gate,
    World,
    crashing,
    gated,
)
from support.telescope import Telescope

if TYPE_CHECKING:
    from outcrop.engine import Threads

SECOND = timedelta(seconds=1)

UNITS = {
    "strata.graphs.started": "{run}",
    "strata.graphs.active": "{run}",
    "strata.graph.duration": "s",
    "strata.node.duration": "s",
    "strata.node.retries": "{retry}",
    "strata.graph.transition": "{transition}",
    "strata.graph.hop_limit_exceeded": "{run}",
    "strata.checkpoint.latency": "s",
    "strata.observer.errors": "{error}",
    "strata.thread.wakes": "{wake}",
    "strata.lease.acquisitions": "{lease}",
    "strata.lease.losses": "{lease}",
    "strata.thread.recoveries": "{recovery}",
    "strata.scheduler.admissions": "{run}",
    "strata.scheduler.wait": "s",
    "strata.scheduler.queued": "{run}",
    "strata.scheduler.active": "{run}",
}


class Watched(World):
    """A world whose threads are watched through a telescope."""

    def __init__(self) -> None:
        super().__init__()
        self.telescope = Telescope()

    def watch(self, graph: Graph[Doc], **compiled: object) -> Threads[Doc]:
        compiled.setdefault("checkpoints", EVERY_NODE)
        return self.threads(
            graph.compile(**compiled),  # type: ignore[arg-type] # whatever a test says
            telemetry=self.telescope.telemetry,
        )


def saves(status: str) -> dict[str, str]:
    return {"strata.checkpoint.operation": "save", "strata.checkpoint.status": status}


def loads(status: str) -> dict[str, str]:
    return {"strata.checkpoint.operation": "load", "strata.checkpoint.status": status}


async def test_a_run_counts_itself_its_nodes_their_ways_and_its_rows() -> None:
    """R010."""
    world, gate = Watched(), Gate()
    graph = world.graph("a")
    gated(graph, "b", gate)
    graph.edge("a", "b")
    seen = world.telescope
    running = asyncio.ensure_future(world.watch(graph).run("t", Doc()))
    await gate.reached.wait()
    assert seen.counts("strata.graphs.active") == [({}, 1)]
    world.clock.advance(2.5)
    gate.opened.set()
    assert isinstance(await running, Completed)
    assert seen.counts("strata.graphs.active") == [({}, 0)]
    assert seen.counts("strata.graphs.started") == [({"strata.run.mode": "run"}, 1)]
    finished = {"strata.run.mode": "run", "strata.outcome": "completed"}
    assert seen.counts("strata.graph.duration") == [(finished, 1)]
    assert seen.total("strata.graph.duration") == 2.5
    assert seen.counts("strata.node.duration") == [
        ({"strata.node.path": "a", "strata.node.result": "committed"}, 1),
        ({"strata.node.path": "b", "strata.node.result": "committed"}, 1),
    ]
    assert seen.total("strata.node.duration") == 2.5
    assert seen.counts("strata.graph.transition") == [
        ({"strata.node.path": "a", "strata.next_node.path": "b"}, 1)
    ]
    assert seen.counts("strata.checkpoint.latency") == [(saves("running"), 2), (saves("completed"), 1)]


async def test_retries_and_fallbacks_are_counted_by_node() -> None:
    """R010: a way to a fallback is a way."""
    world, gate = Watched(), Gate()
    graph = world.graph()
    world.failing(
        graph,
        "a",
        *(Transient("busy"), Transient("busy"), Fatal("no")),
        retry=Retry(max_retries=5),
        fallback="mend",
    )
    gated(graph, "mend", gate, timeout=SECOND, retry=Retry(max_retries=1))
    running = asyncio.ensure_future(world.watch(graph).run("t", Doc()))
    await gate.reached.wait()
    world.clock.advance(1)
    gate.opened.set()
    assert isinstance(await running, Completed)
    seen = world.telescope
    assert seen.counts("strata.node.retries") == [
        ({"strata.node.path": "a", "error.type": "transient"}, 2),
        ({"strata.node.path": "mend", "error.type": "timeout"}, 1),
    ]
    assert seen.counts("strata.graph.transition") == [
        ({"strata.node.path": "a", "strata.next_node.path": "mend"}, 1)
    ]
    assert ({"strata.node.path": "a", "strata.node.result": "failed"}, 1) in seen.counts(
        "strata.node.duration"
    )


async def test_a_hop_limit_is_counted_at_the_refused_node() -> None:
    """R009."""
    world = Watched()
    threads = world.watch(world.graph("a", "b"))
    assert isinstance(await threads.run("t", Doc(), RunOptions(max_node_hops=1)), Failed)
    counted = world.telescope.counts("strata.graph.hop_limit_exceeded")
    assert counted == [({"strata.node.path": "b"}, 1)]


async def test_paths_of_children_are_whole_and_those_of_items_bounded() -> None:
    """R010: an item's key is no label, however many items there are."""
    world = Watched()
    item = world.graph("Price", "Add").compile()
    child: Graph[Doc] = Graph(Doc)
    child.map(
        "lines",
        item,
        items=lambda _doc: [f"k{number}" for number in range(20)],
        key=lambda key: key,
        input=lambda doc, _item: doc,
        reduce=lambda doc, _states: doc,
    )
    graph: Graph[Doc] = Graph(Doc)
    graph.subgraph("Work", child.compile(), input=lambda doc: doc, output=lambda doc, _left: doc)
    assert isinstance(await world.watch(graph).run("t", Doc()), Completed)
    counts = world.telescope.counts
    assert {str(labels["strata.node.path"]): count for labels, count in counts("strata.node.duration")} == {
        "Work/lines/*/Price": 20,
        "Work/lines/*/Add": 20,
        "Work/lines": 1,
        "Work": 1,
    }
    assert counts("strata.graph.transition") == [
        ({"strata.node.path": "Work/lines/*/Price", "strata.next_node.path": "Work/lines/*/Add"}, 20)
    ]


async def test_loads_tell_what_they_found() -> None:
    """R010."""
    world = Watched()
    threads = world.watch(world.graph("a"), checkpoints=BOUNDARIES, interrupt_before=["a"])
    await threads.resume("t")
    await threads.run("t", Doc())
    await threads.resume("t")
    assert world.telescope.counts("strata.checkpoint.latency") == [
        (loads("none"), 1),
        (saves("interrupted"), 2),
        (loads("interrupted"), 1),
    ]


async def test_wakes_are_counted_but_not_people_s() -> None:
    """R010: event, timer, timeout."""
    world = Watched()
    graph = world.graph("a")
    graph.wait_for_event("w", event="paid", timeout=SECOND, on_timeout="late")
    graph.timer("late", delay=SECOND)
    world.trailing(graph, "b")
    graph.interrupt("b")
    world.trailing(graph, "c")
    for here, there in [("a", "w"), ("w", "b"), ("late", "b"), ("b", "c")]:
        graph.edge(here, there)
    threads = world.watch(graph)
    await threads.run("t", Doc())
    await threads.signal("t", "paid", {})
    await threads.resume("t")
    await threads.run("u", Doc())
    for _ in range(2):
        world.clock.advance(1)
        await threads.wake("u")
    assert world.telescope.counts("strata.thread.wakes") == [
        ({"strata.wake.reason": reason}, 1) for reason in ("event", "timeout", "timer")
    ]


async def test_leases_and_recoveries_are_counted() -> None:
    """R010."""
    world, gate = Watched(), Gate()
    graph = world.graph()
    gated(graph, "a", gate)
    threads, seen = world.watch(graph), world.telescope
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads.run("t", Doc(), LEASED)
    await threads.recover("t", OTHER)
    world.clock.advance(TTL.total_seconds())
    recovering = asyncio.ensure_future(threads.recover("t", OTHER))
    await gate.reached.wait()
    world.store.fail("renew_lease", OSError("away"))
    world.clock.advance(TTL.total_seconds() * 2)
    gate.opened.set()
    await recovering
    assert seen.counts("strata.lease.acquisitions") == [
        ({"strata.lease.outcome": "acquired"}, 2),
        ({"strata.lease.outcome": "held"}, 1),
    ]
    assert seen.counts("strata.lease.losses") == [({}, 1)]
    assert seen.counts("strata.thread.recoveries") == [({}, 1)]


async def test_an_observer_that_fails_is_counted() -> None:
    """R005: each time."""
    world, told = Watched(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def observe(event: RunEvent) -> None:
        if isinstance(event.kind, RunCompleted):
            loop.call_soon_threadsafe(told.set)
            return
        raise RuntimeError("no")

    graph = world.graph("a")
    await world.watch(graph, checkpoints=BOUNDARIES).run("t", Doc(), RunOptions(observer=observe))
    await told.wait()
    # RunStarted, NodeStarted, NodeCompleted
    assert world.telescope.counts("strata.observer.errors") == [({}, 3)]


async def test_a_scheduler_tells_its_admissions_waits_and_numbers() -> None:
    """R010: given the same telemetry as its hook."""
    world = Watched()
    seen = world.telescope
    options = SchedulerOptions(name="main", max_concurrent=1, max_queue_time=3 * SECOND)
    scheduler = Scheduler(options, world.clock, hook=seen.telemetry)
    held = await scheduler.admit(priority=5)
    first, late = (asyncio.ensure_future(scheduler.admit()) for _ in range(2))
    await asyncio.sleep(0)
    named = {"strata.scheduler.name": "main"}
    assert seen.counts("strata.scheduler.queued") == [(named, 2)]
    assert seen.counts("strata.scheduler.active") == [(named, 1)]
    world.clock.advance(2)
    held.release()  # type: ignore[union-attr] # it was free
    await first
    world.clock.advance(1)
    await late
    (await first).release()  # type: ignore[union-attr] # it got the slot
    assert seen.counts("strata.scheduler.queued") == seen.counts("strata.scheduler.active") == [(named, 0)]
    let_in = {**named, "strata.scheduler.outcome": "admitted"}
    timed_out = {**named, "strata.scheduler.outcome": "queue_timeout"}
    assert seen.counts("strata.scheduler.admissions") == [
        ({**let_in, "strata.run.priority": 5}, 1),
        ({**let_in, "strata.run.priority": 0}, 1),
        ({**timed_out, "strata.run.priority": 0}, 1),
    ]
    assert seen.counts("strata.scheduler.wait") == [(let_in, 2), (timed_out, 1)]
    assert seen.total("strata.scheduler.wait") == 5


async def test_every_metric_has_its_unit_and_no_thread_s_or_run_s_id() -> None:
    """R010."""
    world = Watched()
    seen = world.telescope
    scheduler = Scheduler(SchedulerOptions(), world.clock, hook=seen.telemetry)
    graph = world.graph()
    world.failing(graph, "a", Transient("busy"), retry=Retry(max_retries=1))
    graph.timer("w", delay=SECOND)
    world.trailing(graph, "b")
    graph.edge("a", "w")
    graph.edge("w", "b")
    threads = world.watch(graph)

    def observe(_event: RunEvent) -> None:
        raise RuntimeError("no")

    options = RunOptions(
        run_id="run-id", lease=LEASED.lease, scheduler=scheduler, observer=observe, max_node_hops=2
    )
    await threads.run("thread-id", Doc(), options)
    world.clock.advance(1)
    await threads.wake("thread-id", options)
    await threads.run("thread-id-2", Doc(), RunOptions(max_node_hops=1))
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads.run("thread-id-3", Doc(), LEASED)
    world.clock.advance(TTL.total_seconds())
    stopped = CancelToken()
    stopped.fire()
    await threads.recover("thread-id-3", RunOptions(lease=LEASED.lease, cancellation=stopped))
    gate = Gate()
    losing = world.graph()
    gated(losing, "a", gate)
    running = asyncio.ensure_future(world.watch(losing).run("thread-id-4", Doc(), LEASED))
    await gate.reached.wait()
    world.store.fail("renew_lease", OSError("away"))
    world.clock.advance(TTL.total_seconds() * 2)
    gate.opened.set()
    await running
    metrics = seen.metrics
    assert {name: metric.unit for name, metric in metrics.items()} == UNITS
    for name, metric in metrics.items():
        histograms = [point for point in metric.data.data_points if isinstance(point, HistogramDataPoint)]
        assert bool(histograms) == (UNITS[name] == "s")
        assert all({0.001, 1, 3600} <= set(point.explicit_bounds) for point in histograms)
    labels = [label for name in metrics for labels, _ in seen.counts(name) for label in labels.values()]
    assert not [label for label in labels if "thread-id" in str(label) or "run-id" in str(label)]
