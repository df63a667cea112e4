"""Section B: runs without faults, edges, and where handlers run."""

from __future__ import annotations

import asyncio
import threading

import pytest

from outcrop.engine import (
    Cancelled,
    CancelReason,
    CancelToken,
    Completed,
    Failed,
    FailureKind,
    Graph,
    Interrupted,
    Retry,
    RunOptions,
    Transient,
)
from support.engine import BOUNDARIES, EVERY_NODE, Doc, Gate, World, gated


async def test_first_edge_that_holds_is_taken_and_a_plain_one_is_the_else() -> None:
    """B001."""
    world = World()
    graph = world.graph("a")
    for name in ("small", "large"):
        world.trailing(graph, name)
    graph.edge("a", "large", when=lambda doc: doc.n > 5)
    graph.edge("a", "small")
    threads = world.threads(graph.compile())
    for n, trail in ((1, ["a", "small"]), (9, ["a", "large"])):
        result = await threads.run("t", Doc(n=n))
        assert isinstance(result, Completed)
        assert result.state.trail == trail


async def test_no_matching_edge_fails_and_stores_nothing() -> None:
    """B002."""
    world = World()
    graph = world.graph("a")
    world.trailing(graph, "b")
    graph.edge("a", "b", when=lambda doc: doc.n > 5)
    result = await world.threads(graph.compile()).run("t", Doc())
    assert result == Failed(
        thread_id="t",
        kind=FailureKind.NO_MATCHING_EDGE,
        message="no outgoing edge condition matched for node 'a'",
        node="a",
    )
    assert await world.rows() == []


async def test_a_guarded_loop_ends_by_its_condition() -> None:
    """B003, K001: without a limit a long loop completes, and Boundaries rows carry no hops."""
    graph = Graph(Doc)

    @graph.node
    def count(doc: Doc) -> None:
        doc.n += 1

    @graph.node
    def done(doc: Doc) -> None:
        doc.note = "done"

    graph.edge(count, count, when=lambda doc: doc.n < 51)
    graph.edge(count, done)
    result = await World().threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert (result.state.n, result.state.note) == (51, "done")


async def test_sync_async_and_returning_nodes_mix() -> None:
    """B004: a node edits its copy or returns the new state."""
    graph = Graph(Doc)

    @graph.node
    def sync(doc: Doc) -> None:
        doc.trail.append("sync")

    @graph.node
    async def returned(doc: Doc) -> Doc:
        await asyncio.sleep(0)
        return doc.model_copy(update={"trail": [*doc.trail, "returned"]})

    @graph.node(inline=True)
    def inline(doc: Doc) -> Doc:
        return Doc(trail=[*doc.trail, "inline"])

    graph.edge(sync, returned)
    graph.edge(returned, inline)
    result = await World().threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert result.state.trail == ["sync", "returned", "inline"]


async def test_each_node_gets_a_copy_of_the_committed_state() -> None:
    """3.1: what a handler keeps and changes later reaches nobody."""
    graph, kept = Graph(Doc), list[Doc]()

    @graph.node
    async def keep(doc: Doc) -> None:
        kept.append(doc)
        doc.n = 1

    @graph.node
    async def change(doc: Doc) -> None:
        kept[0].n = 99
        doc.trail.append(str(doc.n))

    graph.edge(keep, change)
    result = await World().threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert (result.state.n, result.state.trail) == (1, ["1"])


@pytest.mark.parametrize("inline", [True, False])
async def test_inline_nodes_run_on_the_loops_thread_and_sync_ones_elsewhere(inline: bool) -> None:
    """B012."""
    graph, seen = Graph(Doc), list[int]()

    @graph.node(inline=inline)
    def where(_doc: Doc) -> None:
        seen.append(threading.get_ident())

    await World().threads(graph.compile()).run("t", Doc())
    assert (seen == [threading.get_ident()]) is inline


async def test_inline_nodes_are_retried_and_fail_like_others() -> None:
    """B013."""
    graph, calls = Graph(Doc), list[int]()

    @graph.node(inline=True, retry=Retry(max_retries=1))
    def flaky(doc: Doc) -> None:
        doc.n += 1
        calls.append(doc.n)
        raise Transient("not now")

    world = World()
    result = await world.threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Failed)
    assert calls == [1, 1]
    assert await world.log() == ["failed:flaky>flaky"]
    assert (await world.last()).frozen_state == '{"trail":[],"n":0,"note":null}'


async def test_cancelling_during_an_inline_node_commits_it_and_stops_before_the_next() -> None:
    """B014."""
    token, graph = CancelToken(), Graph(Doc)

    @graph.node(inline=True)
    def work(doc: Doc) -> None:
        doc.n = 1
        token.fire()

    @graph.node
    def finish(doc: Doc) -> None:
        doc.n = 2

    graph.edge(work, finish)
    world = World()
    result = await world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token))
    assert isinstance(result, Cancelled)
    assert (result.node, result.state.n) == ("finish", 1)
    assert await world.log() == ["cancelled:finish>finish"]


@pytest.mark.parametrize("policy", [BOUNDARIES, EVERY_NODE])
async def test_dropping_the_run_writes_nothing_more(policy: object) -> None:
    """B007: an outside cancellation isn't the run's own."""
    world, gate = World(), Gate()
    graph = world.graph("a")
    gated(graph, "b", gate)
    graph.edge("a", "b")
    run = asyncio.create_task(world.threads(graph.compile(checkpoints=policy)).run("t", Doc()))  # type: ignore[arg-type]  # a policy
    await gate.reached.wait()
    before = await world.log()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await world.log() == before
    assert before == ([] if policy is BOUNDARIES else ["running:->a", "running:a>b"])


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_panic_propagates_and_leaves_no_row_under_boundaries(is_async: bool) -> None:
    """B006: what is no `Exception` is nobody's failure."""

    class Panic(BaseException):
        pass

    graph = Graph(Doc)
    if is_async:

        @graph.node(name="a", retry=Retry(max_retries=3))
        async def panic(_doc: Doc) -> None:
            raise Panic

    else:

        @graph.node(name="a", retry=Retry(max_retries=3))
        def panic_on_a_thread(_doc: Doc) -> None:
            raise Panic

    world = World()
    with pytest.raises(Panic):
        await world.threads(graph.compile()).run("t", Doc())
    assert await world.rows() == []


async def test_a_boundary_on_an_async_node_freezes_and_resumes() -> None:
    """B009."""
    world = World()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile())
    assert isinstance(await threads.run("t", Doc()), Interrupted)
    assert isinstance(await threads.resume("t"), Completed)
    assert world.ran == ["a", "b"]


async def test_cancelling_during_a_boundarys_save_still_waits() -> None:
    """B016: a store call is never raced against the token."""
    token, world = CancelToken(), World()
    save = world.store.save

    async def slow(*args: object, **kwargs: object) -> object:
        token.fire()
        await asyncio.sleep(0)
        return await save(*args, **kwargs)  # type: ignore[arg-type]  # passed through

    world.store.save = slow  # type: ignore[method-assign, assignment]  # a store that suspends
    graph = world.graph("a", "b")
    graph.interrupt("a")
    result = await world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token))
    assert isinstance(result, Interrupted)
    assert await world.log() == ["interrupted:a>b"]


async def test_a_run_that_starts_cancelled_leaves_its_row() -> None:
    """B017, D002."""
    token, world = CancelToken(), World()
    token.fire()
    _, threads = world.line("a", "b", policy=BOUNDARIES)
    result = await threads.run("t", Doc(), RunOptions(cancellation=token))
    assert isinstance(result, Cancelled)
    assert (result.node, result.reason, world.ran) == ("a", CancelReason.REQUESTED, [])
    assert await world.log() == ["cancelled:a>a"]


async def test_a_failing_predicate_fails_its_node_and_is_retried() -> None:
    """The issue's rule: a failing edge predicate counts as the node's failure."""
    world, answers = World(), [ValueError("not yet"), None]

    def when(_doc: Doc) -> bool:
        if (error := answers.pop(0)) is not None:
            raise error
        return True

    graph = Graph(Doc)
    world.trailing(graph, "a", retry=Retry(max_retries=1))
    world.trailing(graph, "b")
    graph.edge("a", "b", when=when)
    result = await world.threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert (world.ran, result.state.trail) == (["a", "a", "b"], ["a", "b"])


async def test_a_state_that_has_no_json_aborts_the_run() -> None:
    """2.2: the message says at which node, and no running row is left behind."""
    world = World()
    graph = Graph(dict[str, object])

    @graph.node
    async def spoil(state: dict[str, object]) -> None:
        state["x"] = float("nan")

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    result = await threads.run("t", {})
    assert isinstance(result, Failed)
    assert result.kind is FailureKind.ABORTED
    assert result.message.startswith("failed to persist state after 'spoil': ")
    assert await world.log() == ["running:->spoil", "failed:spoil>spoil"]
    before = await threads.run("u", {"x": float("inf")})
    assert isinstance(before, Failed)
    assert before.message.startswith("failed to persist state before 'spoil': ")
    assert await world.rows("u") == []


async def test_a_fresh_run_follows_whatever_the_log_holds() -> None:
    """11.1: a run doesn't look at the log unless it is asked to."""
    world = World()
    _, threads = world.line("a")
    await threads.run("t", Doc())
    await threads.run("t", Doc())
    assert await world.log() == ["running:->a", "completed:a>-"] * 2


async def test_closing_a_runs_coroutine_writes_nothing() -> None:
    """B007: nor does it complain that it couldn't."""
    world, graph, gate = World(), Graph(Doc), Gate()
    gated(graph, "a", gate)
    run = world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc())
    run.send(None)
    run.close()
    assert await world.log() == ["running:->a"]
