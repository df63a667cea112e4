"""Section D: cancellation, deadlines and node timeouts."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import datetime, timedelta

import pytest

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelReason,
    CancelToken,
    CheckpointPolicy,
    Completed,
    Failed,
    Graph,
    NodeContext,
    RefusalCode,
    Refused,
    Retry,
    RunOptions,
)
from support.engine import BOUNDARIES, EVERY_NODE, Doc, Gate, World, gated


def slow_world(**options: object) -> tuple[World, Graph[Doc], Gate, list[NodeContext]]:
    """A graph of `before`, then `slow` that waits at a gate, then `after`."""
    world, gate = World(), Gate()
    graph = world.graph("before")
    contexts = gated(graph, "slow", gate, **options)
    world.trailing(graph, "after")
    graph.edge("before", "slow")
    graph.edge("slow", "after")
    return world, graph, gate, contexts


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_cancelling_during_a_node(policy: CheckpointPolicy) -> None:
    """D001, D007, I007: no retry, no fallback, the handler's token fired."""
    world, graph, gate, contexts = slow_world(retry=Retry(max_retries=3), fallback="after")
    token = CancelToken()
    run = asyncio.create_task(
        world.threads(graph.compile(checkpoints=policy)).run("t", Doc(), RunOptions(cancellation=token))
    )
    await gate.reached.wait()
    token.fire(cause="why")
    result = await run
    rows = await world.rows()
    assert result == Cancelled(
        thread_id="t", reason=CancelReason.REQUESTED, node="slow", state=Doc(trail=["before"]),
        stopped_at=("slow",), sequence=len(rows) - 1,
    )  # fmt: skip
    assert (await world.log())[-1] == "cancelled:slow>slow"
    hops = {"strata.hops": "1"} if policy is EVERY_NODE else {}
    assert (rows[-1].metadata, rows[-1].schema_version) == ({**hops, "cancel_reason": "requested"}, "1.2.0")
    assert (contexts[0].cancellation.fired, contexts[0].cancellation.cause) == (True, "why")


async def test_cancelling_between_nodes_stops_at_the_next() -> None:
    """D003."""
    world, token = World(), CancelToken()
    graph = world.graph("a")
    world.trailing(graph, "b")

    def cancelling(_doc: Doc) -> bool:
        token.fire()
        return True

    graph.edge("a", "b", when=cancelling)
    result = await world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token))
    assert isinstance(result, Cancelled)
    assert (result.node, result.state.trail, world.ran) == ("b", ["a"], ["a"])


async def test_a_deadline_during_a_node() -> None:
    """D004."""
    world, graph, gate, _ = slow_world()
    options = RunOptions(deadline=world.clock.now() + timedelta(seconds=5))
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc(), options))
    await gate.reached.wait()
    world.clock.advance(4.9)
    assert not run.done()
    world.clock.advance(0.2)
    result = await run
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.DEADLINE
    assert (await world.last()).metadata == {"cancel_reason": "deadline"}


async def test_a_deadline_that_has_passed_runs_nothing() -> None:
    """D005."""
    world = World()
    _, threads = world.line("a", policy=BOUNDARIES)
    result = await threads.run("t", Doc(), RunOptions(deadline=world.clock.now()))
    assert isinstance(result, Cancelled)
    assert (result.reason, world.ran) == (CancelReason.DEADLINE, [])


async def test_the_callers_token_outranks_the_deadline() -> None:
    """2.1."""
    world, token = World(), CancelToken()
    token.fire()
    _, threads = world.line("a")
    result = await threads.run("t", Doc(), RunOptions(cancellation=token, deadline=world.clock.now()))
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.REQUESTED


@pytest.mark.parametrize("cut", ["token", "timeout"])
async def test_a_blocked_sync_node_is_abandoned(cut: str) -> None:
    """D006, D011: its result and its error go nowhere."""
    world, graph, token = World(), Graph(Doc), CancelToken()
    started, released = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @graph.node(timeout=5.0)
    def block(_doc: Doc) -> None:
        loop.call_soon_threadsafe(started.set)
        released.wait(30)
        raise ValueError("nobody hears this")

    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token)))
    await started.wait()
    if cut == "token":
        token.fire()
    else:
        world.clock.advance(5)
    result = await run
    released.set()
    assert isinstance(result, Cancelled if cut == "token" else Failed)


async def test_a_timeout_is_transient_and_each_attempt_has_its_own() -> None:
    """D008."""
    world, graph, gate, contexts = slow_world(timeout=2.0, retry=Retry(max_retries=1))
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc()))
    await gate.reached.wait()
    gate.reached.clear()
    world.clock.advance(2)
    await gate.reached.wait()
    world.clock.advance(1.9)
    gate.opened.set()
    assert isinstance(await run, Completed)
    assert [ctx.cancellation.fired for ctx in contexts] == [True, False]
    assert [ctx.attempt for ctx in contexts] == [1, 2]


async def test_an_exhausted_timeout_fails_the_node() -> None:
    """D009."""
    world, graph, gate, _ = slow_world(timeout=0.25)
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc()))
    await gate.reached.wait()
    world.clock.advance(0.25)
    result = await run
    assert isinstance(result, Failed)
    assert (result.message, result.attempts) == ("node 'slow' timed out after 250 ms", 1)
    assert (await world.last()).metadata == {
        "error": "node 'slow' timed out after 250 ms",
        "error_kind": "transient",
        "attempts": "1",
    }


async def test_a_timeout_goes_to_the_fallback_with_the_state_before() -> None:
    """D010, C018."""
    world, graph, gate, _ = slow_world(timeout=1.0, fallback="rescue")
    world.trailing(graph, "rescue")
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc()))
    await gate.reached.wait()
    world.clock.advance(1)
    result = await run
    assert isinstance(result, Completed)
    assert result.state.trail == ["before", "rescue"]
    failure = world.contexts[-1].last_failure
    assert failure is not None
    assert failure.timed_out
    assert failure.error == "node 'slow' timed out after 1000 ms"


async def test_a_cancelled_thread_resumes_once_where_it_stopped() -> None:
    """D014."""
    world, graph, gate, _ = slow_world()
    token, threads = CancelToken(), world.threads(graph.compile())
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(cancellation=token)))
    await gate.reached.wait()
    token.fire()
    await run
    gate.opened.set()
    result = await threads.resume("t", Answer(overrides={"n": 4}))
    assert isinstance(result, Completed)
    assert (result.state.n, result.state.trail) == (4, ["before", "slow", "after"])
    again = await threads.resume("t")
    assert isinstance(again, Refused)
    assert again.code is RefusalCode.ALREADY_RESUMED


async def test_a_resume_that_starts_cancelled_keeps_the_overrides() -> None:
    """D018, for one level."""
    world, token = World(), CancelToken()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    token.fire()
    await threads.resume("t", Answer(overrides={"n": 4}), RunOptions(cancellation=token))
    assert await world.log() == ["interrupted:a>b", "interrupted:a>b", "cancelled:b>b"]
    assert (await world.last()).frozen_state == '{"trail":["a"],"n":4,"note":null}'


async def test_a_handlers_own_token_does_not_cancel_the_run() -> None:
    """D022."""
    graph = Graph(Doc)

    @graph.node
    async def own(_doc: Doc, ctx: NodeContext) -> None:
        ctx.cancellation.fire()

    assert isinstance(await World().threads(graph.compile()).run("t", Doc()), Completed)


async def test_a_node_that_fires_the_runs_token_and_returns_has_committed() -> None:
    """A ready result beats the token, and the cancellation never leaks out of the attempt."""
    world, token = World(), CancelToken()
    graph = Graph(Doc)

    @graph.node
    async def last(doc: Doc) -> None:
        doc.n = 1
        token.fire()

    result = await world.threads(graph.compile(checkpoints=EVERY_NODE)).run(
        "t", Doc(), RunOptions(cancellation=token)
    )
    assert isinstance(result, Completed)
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_node_that_fires_the_runs_token_and_waits_is_cancelled() -> None:
    world, token = World(), CancelToken()
    graph = Graph(Doc)

    @graph.node
    async def wait(_doc: Doc) -> None:
        token.fire()
        await asyncio.Event().wait()

    result = await world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token))
    assert isinstance(result, Cancelled)


async def test_a_node_that_winds_down_is_waited_for_and_its_result_is_dropped() -> None:
    """An async handler is awaited until it has wound down, whatever it returns then."""
    world, token, graph, gate = World(), CancelToken(), Graph(Doc), Gate()
    cleaned = list[bool]()

    @graph.node
    async def stubborn(doc: Doc) -> None:
        try:
            await gate()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cleaned.append(True)
            doc.n = 99

    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token)))
    await gate.reached.wait()
    token.fire()
    result = await run
    assert isinstance(result, Cancelled)
    assert (cleaned, result.state.n) == ([True], 0)


async def test_an_outside_cancellation_on_top_of_ours_still_drops_the_run() -> None:
    world, token = World(), CancelToken()
    graph, gate = Graph(Doc), Gate()
    gated(graph, "slow", gate)
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token)))
    await gate.reached.wait()
    token.fire()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await world.rows() == []


async def test_a_cancellation_of_something_else_is_a_panic() -> None:
    """A node that lets another task's cancellation through didn't drop the run: a durable row says so."""
    world, graph = World(), Graph(Doc)

    @graph.node
    async def confused(_doc: Doc) -> None:
        other = asyncio.get_running_loop().create_future()
        other.cancel()
        await other

    with pytest.raises(asyncio.CancelledError):
        await world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc())
    assert await world.log() == ["running:->confused", "failed:confused>confused"]


async def test_sync_nodes_see_the_callers_context_variables() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    graph = Graph(Doc)

    @graph.node
    def read(doc: Doc) -> None:
        doc.note = variable.get()

    variable.set("set")
    result = await World().threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert result.state.note == "set"


async def test_a_naive_deadline_is_refused() -> None:
    world = World()
    _, threads = world.line("a")
    result = await threads.run("t", Doc(), RunOptions(deadline=datetime(2026, 1, 1)))  # noqa: DTZ001 - the case
    assert isinstance(result, Refused)
    assert result.code is RefusalCode.INVALID


async def test_tokens_and_timers_are_withdrawn_at_the_end() -> None:
    """A token that outlives thousands of runs must not remember them."""
    world, token = World(), CancelToken()
    graph = Graph(Doc)
    world.trailing(graph, "a", timeout=9.0)
    options = RunOptions(cancellation=token, deadline=world.clock.now() + timedelta(hours=1))
    await world.threads(graph.compile()).run("t", Doc(), options)
    assert token._callbacks == {}
    assert world.clock.next_due is None
