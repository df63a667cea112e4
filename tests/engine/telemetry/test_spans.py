"""Spans of real runs: their names, attributes, parents, events and statuses (R008, R009)."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelToken,
    Completed,
    Failed,
    Fatal,
    Graph,
    Interrupted,
    LeaseOptions,
    NodeContext,
    Refused,
    Retry,
    RunOptions,
    Scheduler,
    SchedulerOptions,
    Transient,
    first_success,
)
from outcrop.engine.failpoints import armed
from support.engine import EVERY_NODE, LEASED, TTL, Crash, Doc, Gate, World, crashing, gated
from support.telescope import Telescope

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from outcrop.engine import Threads

SECOND = timedelta(seconds=1)


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


def status(span: ReadableSpan) -> tuple[StatusCode, str | None]:
    return (span.status.status_code, span.status.description)


UNSET = (StatusCode.UNSET, None)


async def test_a_run_its_nodes_and_their_attempts() -> None:
    """R008: the tree, the IDs on every span, and what a node that was tried twice tells."""
    world = Watched()
    graph = world.graph()
    world.failing(graph, "a", Transient("busy"), retry=Retry(max_retries=1))
    world.trailing(graph, "b")
    graph.edge("a", "b")
    options = RunOptions(run_id="r-1", metadata={"tenant": "acme"})
    assert isinstance(await world.watch(graph).run("t", Doc(), options), Completed)
    seen = world.telescope
    assert seen.tree() == [
        "- > strata.run",
        "strata.run > a",
        "a > a #1",
        "a > a #2",
        "strata.run > b",
        "b > b #1",
    ]
    for span in seen.spans:
        assert span.attributes is not None
        assert (span.attributes["strata.thread_id"], span.attributes["strata.run_id"]) == ("t", "r-1")
        assert span.kind is SpanKind.INTERNAL
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.name == "outcrop.engine"
    metadata = seen.attributes("strata.run").pop("strata.metadata")
    assert json.loads(metadata) == {"tenant": "acme"}
    assert seen.attributes("strata.run") == {
        "strata.run.mode": "run",
        "strata.run.priority": 0,
        "strata.metadata": metadata,
        "strata.outcome": "completed",
    }
    assert seen.attributes("a") == {
        "strata.node.path": "a",
        "strata.retry_count": 1,
        "strata.node.result": "committed",
    }
    assert seen.attributes("a #1") == {
        "strata.node.path": "a",
        "strata.attempt": 1,
        "error.type": "transient",
    }
    assert seen.attributes("a #2") == {"strata.node.path": "a", "strata.attempt": 2}
    assert status(seen.span("a #1")) == (StatusCode.ERROR, "busy")
    assert all(status(seen.span(name)) == UNSET for name in ("strata.run", "a", "a #2", "b", "b #1"))
    assert seen.events("a") == [("retry scheduled: busy", {"strata.retry.delay_ms": 0})]


async def test_the_events_of_a_run() -> None:
    """R008: it began, each row, it ended."""
    world = Watched()
    await world.watch(world.graph("a")).run("t", Doc())
    saved = {"strata.checkpoint.resume_stamp": False, "strata.checkpoint.duration_ms": 0}
    assert world.telescope.events("strata.run") == [
        ("run started", {}),
        ("checkpoint saved", {"strata.checkpoint.status": "running", **saved}),
        ("checkpoint saved", {"strata.checkpoint.status": "completed", **saved}),
        ("run completed", {}),
    ]


async def test_a_failed_run_marks_its_spans() -> None:
    """R009."""
    world = Watched()
    graph = world.graph()
    world.failing(graph, "a", Fatal("no money"))
    assert isinstance(await world.watch(graph).run("t", Doc()), Failed)
    seen = world.telescope
    assert {status(span) for span in seen.spans} == {(StatusCode.ERROR, "no money")}
    assert seen.attributes("strata.run")["strata.outcome"] == "failed"
    assert "error.type" not in seen.attributes("strata.run")
    assert seen.attributes("a") == {
        "strata.node.path": "a",
        "strata.retry_count": 0,
        "strata.node.result": "failed",
        "error.type": "fatal",
    }
    assert seen.attributes("a #1")["error.type"] == "fatal"
    assert seen.events("a") == [("node failed: no money", {})]


async def test_a_timed_out_attempt_and_a_panic_have_types_of_their_own() -> None:
    """R009."""
    world, gate = Watched(), Gate()
    graph = world.graph()
    gated(graph, "slow", gate, timeout=SECOND)
    running = asyncio.ensure_future(world.watch(graph).run("t", Doc()))
    await gate.reached.wait()
    world.clock.advance(1)
    assert isinstance(await running, Failed)
    assert world.telescope.attributes("slow")["error.type"] == "timeout"
    assert world.telescope.attributes("slow #1")["error.type"] == "timeout"

    class Panic(BaseException):
        pass

    panicking = world.graph()

    @panicking.node
    async def burn(_doc: Doc) -> None:
        raise Panic("fire")

    world.telescope.forget()
    with pytest.raises(Panic):
        await world.watch(panicking).run("u", Doc())
    seen = world.telescope
    assert [span.name for span in seen.spans] == ["burn #1", "burn", "strata.run"]
    assert seen.attributes("burn")["error.type"] == seen.attributes("burn #1")["error.type"] == "panic"
    assert status(seen.span("strata.run"))[0] is StatusCode.ERROR
    assert "error.type" not in seen.attributes("strata.run")


async def test_a_cancelled_run_is_no_error() -> None:
    """R009."""
    world, gate, token = Watched(), Gate(), CancelToken()
    graph = world.graph()
    gated(graph, "a", gate)
    running = asyncio.ensure_future(world.watch(graph).run("t", Doc(), RunOptions(cancellation=token)))
    await gate.reached.wait()
    token.fire()
    assert isinstance(await running, Cancelled)
    seen = world.telescope
    assert {status(span) for span in seen.spans} == {UNSET}
    assert seen.attributes("strata.run")["strata.outcome"] == "cancelled"
    assert seen.attributes("strata.run")["strata.cancel_reason"] == "requested"
    assert seen.attributes("a")["strata.node.result"] == "cancelled"
    assert "error.type" not in seen.attributes("a #1")


async def test_the_hop_limit_is_the_run_s_error() -> None:
    """R009: told where the refused node would have been, which has no span."""
    world = Watched()
    graph = world.graph("a", "b")
    threads = world.watch(graph)
    assert isinstance(await threads.run("t", Doc(), RunOptions(max_node_hops=1)), Failed)
    seen = world.telescope
    assert seen.attributes("strata.run")["error.type"] == "hop_limit"
    assert ("hop limit exceeded", {}) in seen.events("strata.run")
    assert "b" not in [span.name for span in seen.spans]


async def test_a_child_s_hop_limit_is_told_inside_its_node() -> None:
    """R009: and fails that node; the run's own limit wasn't reached."""
    world = Watched()
    child = world.graph("Draft", "Check").compile(max_node_hops=1)
    graph: Graph[Doc] = Graph(Doc)
    graph.subgraph("Work", child, input=lambda doc: doc, output=lambda doc, _left: doc)
    assert isinstance(await world.watch(graph).run("t", Doc()), Failed)
    seen = world.telescope
    assert seen.events("Work #1") == [("hop limit exceeded", {})]
    assert seen.attributes("Work")["error.type"] == "fatal"
    assert "error.type" not in seen.attributes("strata.run")
    assert seen.counts("strata.graph.hop_limit_exceeded") == [({"strata.node.path": "Work/Check"}, 1)]


async def test_graph_priority_and_wait_are_on_the_run() -> None:
    """R009, R010."""
    world = Watched()
    graph = world.graph("a", id="orders", version="3")
    scheduler = Scheduler(SchedulerOptions(max_concurrent=1), world.clock)
    held = await scheduler.admit()
    running = asyncio.ensure_future(
        world.watch(graph).run("t", Doc(), RunOptions(scheduler=scheduler, priority=2))
    )
    await asyncio.sleep(0)
    world.clock.advance(1.5)
    held.release()  # type: ignore[union-attr] # it was free
    await running
    assert world.telescope.attributes("strata.run") == {
        "strata.run.mode": "run",
        "strata.run.priority": 2,
        "strata.graph.id": "orders",
        "strata.graph.version": "3",
        "strata.scheduler.wait_ms": 1500,
        "strata.outcome": "completed",
    }


async def test_lease_and_recovery_are_on_the_run() -> None:
    """R010."""
    world = Watched()
    threads = world.watch(world.graph("a"))
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads.run("t", Doc(), LEASED)
    world.clock.advance(TTL.total_seconds())
    world.telescope.forget()
    assert isinstance(await threads.recover("t", LEASED), Completed)
    about = world.telescope.attributes("strata.recover")
    assert about["strata.run.mode"] == "recover"
    assert (about["strata.recoveries"], about["strata.lease.owner"]) == (1, "w1")
    assert about["strata.lease.token"] == 2


async def test_a_lost_lease_is_no_error() -> None:
    """R009, R010."""
    world, gate = Watched(), Gate()
    graph = world.graph()
    gated(graph, "a", gate)
    running = asyncio.ensure_future(world.watch(graph).run("t", Doc(), LEASED))
    await gate.reached.wait()
    world.store.fail("renew_lease", OSError("away"))
    world.clock.advance(TTL.total_seconds() * 2)
    gate.opened.set()
    assert isinstance(await running, Cancelled)
    seen = world.telescope
    assert ("lease lost", {}) in seen.events("strata.run")
    assert status(seen.span("strata.run")) == UNSET
    assert seen.attributes("strata.run")["strata.cancel_reason"] == "lease_lost"


async def test_a_lease_that_is_found_lost_before_an_attempt_is_no_error() -> None:
    """R009: of a process that was stopped and goes on."""
    world = Watched()
    graph = world.graph()
    world.store.fail("renew_lease", OSError("away"))

    @graph.node(retry=Retry(max_retries=1))
    async def sleep_in(_doc: Doc) -> None:
        world.clock.advance(TTL.total_seconds() * 2)
        raise Transient("late")

    assert isinstance(await world.watch(graph).run("t", Doc(), LEASED), Cancelled)
    seen = world.telescope
    assert status(seen.span("strata.run")) == status(seen.span("sleep_in")) == UNSET
    assert seen.attributes("sleep_in")["strata.node.result"] == "cancelled"


async def test_a_branch_whose_result_can_t_be_kept_for_a_lost_lease_is_no_error() -> None:
    """R009."""
    world = Watched()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", reduce=lambda _doc, _states: None, keep_finished=True)

    @group.branch
    async def work(_doc: Doc) -> None:
        world.clock.advance(TTL.total_seconds() * 2)
        assert await world.memory.acquire_lease("t", "other", TTL)

    assert isinstance(await world.watch(graph).run("t", Doc(), LEASED), Cancelled)
    assert {status(span) for span in world.telescope.spans} == {UNSET}
    assert "error.type" not in world.telescope.attributes("g/work")


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_dropped_run_is_no_error_and_leaves_nothing_open(how: str) -> None:
    """R004, R009: its thread is left as it is, for a recovery."""
    world, gate = Watched(), Gate()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", reduce=lambda _doc, _states: None)

    @group.branch
    async def work(_doc: Doc) -> None:
        await gate()

    running = world.watch(graph).run("t", Doc())
    if how == "cancelled":
        task = asyncio.ensure_future(running)
        await gate.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with armed(crashing("node.before", 1)), pytest.raises(Crash):
            await running
    seen = world.telescope
    assert {status(span) for span in seen.spans} == {UNSET}
    inside = ["g #1", "g/work"] if how == "cancelled" else []
    assert sorted(span.name for span in seen.spans) == ["g", *inside, "strata.run"]
    assert seen.attributes("g")["strata.node.result"] == "cancelled"
    assert seen.attributes("strata.run")["strata.outcome"] == "stopped"
    assert seen.counts("strata.graphs.active") == [({}, 0)]


async def test_a_resume_an_end_and_a_refusal() -> None:
    """R008: each call is a span of its own, named by its mode."""
    world = Watched()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads, seen = world.watch(graph), world.telescope
    assert isinstance(await threads.run("t", Doc()), Interrupted)
    assert seen.attributes("strata.run")["strata.outcome"] == "interrupted"
    await threads.resume("t", Answer(by="dana"))
    assert "strata.wake.reason" not in seen.attributes("strata.resume")
    assert "strata.resume > b" in seen.tree()
    assert isinstance(await threads.end("t"), Refused)
    code, message = status(seen.span("strata.end"))
    assert code is StatusCode.ERROR
    assert message is not None
    assert "completed" in message


async def test_a_wake_says_what_woke_the_thread() -> None:
    """R010."""
    world = Watched()
    graph: Graph[Doc] = Graph(Doc)
    world.trailing(graph, "a")
    graph.timer("w", delay=SECOND)
    world.trailing(graph, "b")
    graph.edge("a", "w")
    graph.edge("w", "b")
    threads = world.watch(graph)
    await threads.run("t", Doc())
    world.clock.advance(1)
    assert isinstance(await threads.wake("t"), Completed)
    assert world.telescope.attributes("strata.resume")["strata.wake.reason"] == "timer"


async def test_a_run_hangs_on_its_caller_s_span_and_handlers_on_their_attempts() -> None:
    """R008: async, sync and inline handlers alike."""
    world = Watched()
    graph: Graph[Doc] = Graph(Doc)
    tracer = world.telescope.tracers.get_tracer("user")

    @graph.node
    async def loop(_doc: Doc) -> None:
        await asyncio.sleep(0)
        with tracer.start_as_current_span("in loop"):
            await asyncio.sleep(0)

    @graph.node
    def thread(_doc: Doc) -> None:
        tracer.start_span("in thread").end()

    @graph.node(inline=True)
    def inline(_doc: Doc) -> None:
        tracer.start_span("in inline").end()

    graph.edge(loop, thread)
    graph.edge(thread, inline)
    with tracer.start_as_current_span("caller") as caller:
        await world.watch(graph).run("t", Doc())
        assert trace.get_current_span() is caller
    assert world.telescope.tree() == [
        "- > caller",
        "caller > strata.run",
        "strata.run > loop",
        "loop > loop #1",
        "loop #1 > in loop",
        "strata.run > thread",
        "thread > thread #1",
        "thread #1 > in thread",
        "strata.run > inline",
        "inline > inline #1",
        "inline #1 > in inline",
    ]
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_branches_hang_on_their_group_s_attempt() -> None:
    """R008: and a decided join is told there; the loser says why it lost."""
    world, gate = Watched(), Gate()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", reduce=lambda _doc, _states: None, join=first_success())

    @group.branch
    async def slow(_doc: Doc) -> None:
        await gate()

    @group.branch
    async def broken(_doc: Doc) -> None:
        await gate.reached.wait()
        raise Fatal("no")

    @group.branch
    async def quick(_doc: Doc) -> None:
        await gate.reached.wait()
        await asyncio.sleep(0)

    assert isinstance(await world.watch(graph).run("t", Doc()), Completed)
    seen = world.telescope
    assert seen.tree() == [
        "- > strata.run",
        "strata.run > g",
        "g > g #1",
        "g #1 > g/slow",
        "g #1 > g/broken",
        "g #1 > g/quick",
    ]
    assert seen.attributes("g/slow") == {
        "strata.node.path": "g/slow",
        "strata.attempt": 1,
        "strata.branch.reason": "lost_race",
    }
    assert seen.attributes("g/broken")["error.type"] == "fatal"
    assert status(seen.span("g/broken")) == (StatusCode.ERROR, "no")
    assert status(seen.span("g/slow")) == status(seen.span("g/quick")) == UNSET
    decided = {
        "strata.join.policy": "first_success",
        "strata.join.met": True,
        "strata.join.deciding": ("quick",),
    }
    assert seen.events("g #1") == [("join decided", decided)]


async def test_a_branch_that_times_out_and_one_whose_sibling_failed() -> None:
    """R008."""
    world, gate = Watched(), Gate()
    graph: Graph[Doc] = Graph(Doc)
    slow = graph.group("slow", reduce=lambda _doc, _states: None, branch_timeout=SECOND, fallback="g")
    group = graph.group("g", reduce=lambda _doc, _states: None)

    @slow.branch
    async def late(_doc: Doc) -> None:
        await gate()

    @group.branch
    async def sibling(_doc: Doc) -> None:
        await asyncio.Event().wait()

    @group.branch
    async def broken(_doc: Doc) -> None:
        raise Fatal("no")

    running = asyncio.ensure_future(world.watch(graph).run("t", Doc()))
    await gate.reached.wait()
    world.clock.advance(1)
    assert isinstance(await running, Failed)
    seen = world.telescope
    assert seen.attributes("slow/late")["strata.branch.reason"] == "timed_out"
    assert seen.attributes("slow/late")["error.type"] == "timeout"
    assert seen.attributes("g/sibling")["strata.branch.reason"] == "sibling_failed"
    assert status(seen.span("g/sibling")) == UNSET


async def test_a_child_s_nodes_hang_on_the_subgraph_s_attempt_and_items_on_the_map_s() -> None:
    """R008: an item's nodes hang on the item."""
    world = Watched()
    child = world.graph("Draft", "Check").compile()
    graph: Graph[Doc] = Graph(Doc)
    graph.subgraph("Work", child, input=lambda doc: doc, output=lambda doc, _left: doc)
    graph.map(
        "lines",
        world.graph("Price").compile(),
        items=lambda _doc: ["k1", "k2"],
        key=lambda item: item,
        input=lambda doc, _item: doc,
        reduce=lambda doc, _states: doc,
        max_concurrency=1,
    )
    graph.edge("Work", "lines")
    assert isinstance(await world.watch(graph).run("t", Doc()), Completed)
    seen = world.telescope
    assert seen.tree() == [
        "- > strata.run",
        "strata.run > Work",
        "Work > Work #1",
        "Work #1 > Work/Draft",
        "Work/Draft > Work/Draft #1",
        "Work #1 > Work/Check",
        "Work/Check > Work/Check #1",
        "strata.run > lines",
        "lines > lines #1",
        "lines #1 > lines/k1",
        "lines/k1 > lines/k1/Price",
        "lines/k1/Price > lines/k1/Price #1",
        "lines #1 > lines/k2",
        "lines/k2 > lines/k2/Price",
        "lines/k2/Price > lines/k2/Price #1",
    ]
    expanded = {"strata.map.item_count": 2, "strata.map.keys": ("k1", "k2")}
    assert ("map expanded", expanded) in seen.events("lines #1")


async def test_sixteen_branches_at_once_keep_their_spans_apart() -> None:
    """R003, R008: whatever a branch opens is its own child, in two runs at once."""
    world, reached, opened = Watched(), list[str](), asyncio.Event()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", reduce=lambda _doc, _states: None)
    tracer = world.telescope.tracers.get_tracer("user")

    async def work(_doc: Doc, ctx: NodeContext) -> None:
        reached.append(ctx.node)
        await opened.wait()
        with tracer.start_as_current_span(f"{ctx.thread_id} {ctx.node_path} begins"):
            await asyncio.sleep(0)
        with tracer.start_as_current_span(f"{ctx.thread_id} {ctx.node_path} ends"):
            await asyncio.sleep(0)

    for number in range(16):
        group.branch(name=f"b{number}")(work)
    threads = world.watch(graph)
    running = asyncio.gather(threads.run("t", Doc()), threads.run("u", Doc()))
    while len(reached) < 32:  # noqa: ASYNC110 - nothing tells when all are there
        await asyncio.sleep(0)
    opened.set()
    assert all(isinstance(result, Completed) for result in await running)
    spans = world.telescope.spans
    by_id = {span.context.span_id: span for span in spans if span.context is not None}
    mine = [span for span in spans if span.name.endswith((" begins", " ends"))]
    assert len(mine) == 64
    for span in mine:
        thread, path, _ = span.name.split()
        assert span.parent is not None
        branch = by_id[span.parent.span_id]
        assert branch.name == path
        assert branch.attributes is not None
        assert branch.attributes["strata.thread_id"] == thread
        assert branch.parent is not None
        assert by_id[branch.parent.span_id].name == "g #1"
    assert len({span.context.trace_id for span in spans if span.context is not None}) == 2


async def test_a_group_that_is_tried_again_has_new_branches() -> None:
    """R008: each attempt has the branches that it ran."""
    world = Watched()
    graph: Graph[Doc] = Graph(Doc)
    group = graph.group("g", reduce=lambda _doc, _states: None, retry=Retry(max_retries=1))
    left = [Transient("busy")]

    @group.branch
    async def work(_doc: Doc) -> None:
        if left:
            raise left.pop()

    assert isinstance(await world.watch(graph).run("t", Doc()), Completed)
    assert world.telescope.tree() == [
        "- > strata.run",
        "strata.run > g",
        "g > g #1",
        "g #1 > g/work",
        "g > g #2",
        "g #2 > g/work",
    ]


async def test_an_attempt_ends_when_its_handler_does() -> None:
    """R008: what follows until its end is known is the node's time, not the attempt's."""
    world, left = Watched(), list[int]()
    graph = world.graph("b")
    world.failing(graph, "a", Transient("busy"), retry=Retry(max_retries=1))

    def look(_doc: Doc) -> bool:
        left.append(time.time_ns())
        return True

    graph.entry("a")
    graph.edge("a", "b", when=look)
    await world.watch(graph).run("t", Doc())
    first, second, node = (world.telescope.span(name) for name in ("a #1", "a #2", "a"))
    assert first.end_time is not None
    assert second.start_time is not None
    assert second.end_time is not None
    assert node.end_time is not None
    assert first.end_time <= second.start_time <= second.end_time <= left[0] <= node.end_time


async def test_a_run_that_is_not_admitted_leaves_no_span() -> None:
    """S005."""
    world = Watched()
    scheduler = Scheduler(SchedulerOptions(), world.clock)
    scheduler.close()
    result = await world.watch(world.graph("a")).run("t", Doc(), RunOptions(scheduler=scheduler))
    assert isinstance(result, Failed)
    assert world.telescope.spans == ()


async def test_nothing_of_a_state_or_an_answer_is_told() -> None:
    """R009: not of a run that fails because its state can't be stored, either."""
    world = Watched()
    graph = world.graph("a")
    graph.interrupt("a")
    group = graph.group("g", reduce=lambda _doc, _states: None)

    @group.branch
    async def work(_doc: Doc) -> None: ...

    @graph.node
    async def spoil(doc: Doc) -> None:
        doc.n = float("nan")  # type: ignore[assignment] # what can't be stored
        doc.trail.append("s3cret")

    graph.edge("a", "g")
    graph.edge("g", "spoil")
    threads = world.watch(graph)
    await threads.run("t", Doc(note="s3cret"), RunOptions(lease=LeaseOptions("w", TTL)))
    assert isinstance(await threads.resume("t", Answer(text_overrides={"note": "s3cret too"})), Failed)
    told = "".join(span.to_json() for span in world.telescope.spans)
    assert "strata.node.path" in told
    assert "s3cret" not in told
