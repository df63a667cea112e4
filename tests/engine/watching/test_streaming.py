"""What a streaming run says, to one watcher: chunks, in order, and who waits for whom (section Q)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import (
    Cancelled,
    CancelToken,
    ChannelClosed,
    ChunkStream,
    Completed,
    Failed,
    FailureKind,
    Fatal,
    Graph,
    Interrupted,
    NodeContext,
    Refused,
    Retry,
    RunOptions,
    Transient,
)
from outcrop.engine.failpoints import armed
from support.engine import EVERY_NODE, Crash, Doc, Gate, World, crashing, gated

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from outcrop.engine import CompiledGraph, RunResult


async def said(chunks: ChunkStream) -> list[str]:
    return [f"{chunk.type.value} {chunk.node_name}: {chunk.content}" async for chunk in chunks]


async def streamed(
    call: Coroutine[None, None, RunResult[Doc]], chunks: ChunkStream
) -> tuple[RunResult[Doc], list[str]]:
    run = asyncio.ensure_future(call)
    told = await said(chunks)
    return await run, told


def speaking(graph: Graph[Doc], name: str, *words: str, error: Exception | None = None) -> None:
    """Add a streaming node that says its words; with an error, it fails after them once."""
    left = [error] if error is not None else []

    @graph.node(name=name, streams=True, retry=Retry(max_retries=1))
    async def speak(doc: Doc, ctx: NodeContext) -> None:
        assert ctx.stream is not None
        for word in words:
            await ctx.stream.emit(word)
        if left:
            raise left.pop()
        doc.trail.append(name)


def two() -> CompiledGraph[Doc]:
    graph: Graph[Doc] = Graph(Doc)
    speaking(graph, "a", "one", "two")
    speaking(graph, "b", "three")
    graph.edge("a", "b")
    return graph.compile(checkpoints=EVERY_NODE)


async def test_nodes_and_their_tokens_come_in_order() -> None:
    """Q001, Q011."""
    chunks = ChunkStream()
    threads = World().threads(two())
    result, told = await streamed(threads.run("t", Doc(), RunOptions(stream=chunks)), chunks)
    assert isinstance(result, Completed)
    assert told == [
        "NodeStart a: a", "Token a: one", "Token a: two", "NodeEnd a: a",
        "NodeStart b: b", "Token b: three", "NodeEnd b: b",
    ]  # fmt: skip


async def test_a_plain_run_of_a_streaming_node_fails_before_it_runs() -> None:
    """Q001, Q004."""
    result = await World().threads(two()).run("t", Doc())
    assert isinstance(result, Failed)
    assert result.kind is FailureKind.ABORTED
    assert result.message == (
        "node 'a' is a streaming node but this run has no stream: give it RunOptions(stream=ChunkStream())"
    )


async def test_a_plain_run_of_a_subgraph_that_streams_fails_before_its_child() -> None:
    """Q004."""
    graph: Graph[Doc] = Graph(Doc)
    graph.subgraph("Work", two(), input=lambda doc: doc, output=lambda _, doc: doc)
    result = await World().threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Failed)
    assert result.message == (
        "node 'Work' is a parallel group with a streaming branch, or a subgraph that streams, "
        "but this run has no stream: give it RunOptions(stream=ChunkStream())"
    )


async def test_a_full_stream_makes_the_producer_wait_and_drops_nothing() -> None:
    """Q002."""
    chunks, sent = ChunkStream(capacity=4), list[int]()
    graph: Graph[Doc] = Graph(Doc)

    @graph.node(streams=True)
    async def count(_doc: Doc, ctx: NodeContext) -> None:
        assert ctx.stream is not None
        for number in range(100):
            await ctx.stream.emit(str(number))
            sent.append(number)

    run = asyncio.create_task(World().threads(graph.compile()).run("t", Doc(), RunOptions(stream=chunks)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(sent) <= 4
    told = await said(chunks)
    assert isinstance(await run, Completed)
    assert told[1:-1] == [f"Token count: {number}" for number in range(100)]


async def test_a_stalled_reader_of_a_lossy_stream_slows_nobody() -> None:
    chunks = ChunkStream(capacity=4, lossy=True)
    result = await World().threads(two()).run("t", Doc(), RunOptions(stream=chunks))
    assert isinstance(result, Completed)
    assert chunks.dropped == 3
    assert len(await said(chunks)) == 4


async def test_a_retry_is_announced_by_name_with_what_failed() -> None:
    """Q005."""
    chunks = ChunkStream()
    graph: Graph[Doc] = Graph(Doc)
    speaking(graph, "a", "one", error=Transient("busy"))
    threads = World().threads(graph.compile())
    _, told = await streamed(threads.run("t", Doc(), RunOptions(stream=chunks)), chunks)
    assert told == [
        "NodeStart a: a", "Token a: one", "Retry a: busy", "Token a: one", "NodeEnd a: a",
    ]  # fmt: skip


async def test_a_node_that_gives_up_says_so_once_and_has_no_end() -> None:
    """C025, Q005."""
    chunks, world = ChunkStream(), World()
    graph: Graph[Doc] = Graph(Doc)
    world.failing(graph, "a", Fatal("no"), fallback="b")
    world.trailing(graph, "b")
    threads = world.threads(graph.compile())
    _, told = await streamed(threads.run("t", Doc(), RunOptions(stream=chunks)), chunks)
    assert told == ["NodeStart a: a", "Error a: no", "NodeStart b: b", "NodeEnd b: b"]


async def test_a_childs_chunks_are_between_its_nodes_and_a_frozen_one_has_no_end() -> None:
    """Q006, Q007, Q010, E018."""
    chunks, again, world = ChunkStream(), ChunkStream(), World()
    child = world.graph("Draft", "Send")
    child.interrupt("Draft")
    graph: Graph[Doc] = Graph(Doc)
    graph.subgraph("Work", child.compile(), input=lambda doc: doc, output=lambda _, doc: doc)
    threads = world.threads(graph.compile())
    result, told = await streamed(threads.run("t", Doc(), RunOptions(stream=chunks)), chunks)
    assert isinstance(result, Interrupted)
    assert told == ["NodeStart Work: Work", "NodeStart Work/Draft: Draft", "NodeEnd Work/Draft: Draft"]
    result, told = await streamed(threads.resume("t", options=RunOptions(stream=again)), again)
    assert isinstance(result, Completed)
    assert told == [
        "NodeStart Work: Work", "NodeStart Work/Send: Send", "NodeEnd Work/Send: Send", "NodeEnd Work: Work",
    ]  # fmt: skip


async def test_a_refused_resume_streams_nothing_and_closes() -> None:
    """Q009."""
    chunks = ChunkStream()
    threads = World().threads(two())
    result, told = await streamed(threads.resume("nobody", options=RunOptions(stream=chunks)), chunks)
    assert isinstance(result, Refused)
    assert told == []


async def test_a_signal_that_is_refused_at_once_closes_its_stream() -> None:
    """G031."""
    chunks = ChunkStream()
    threads = World().threads(two())
    result, told = await streamed(threads.signal("t", " ", None, RunOptions(stream=chunks)), chunks)
    assert isinstance(result, Refused)
    assert told == []


async def test_a_cancelled_stream_has_no_end_for_the_node_that_was_stopped() -> None:
    """D019."""
    chunks, token, gate = ChunkStream(), CancelToken(), Gate()
    graph: Graph[Doc] = Graph(Doc)
    gated(graph, "slow", gate)
    threads = World().threads(graph.compile())
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(stream=chunks, cancellation=token)))
    await gate.reached.wait()
    token.fire()
    assert await said(chunks) == ["NodeStart slow: slow"]
    assert isinstance(await run, Cancelled)


async def test_a_cancelled_run_does_not_wait_for_a_full_streams_reader() -> None:
    """D020: not for its chunks, and a node whose start can't be said doesn't start."""
    world, chunks, token = World(), ChunkStream(capacity=2), CancelToken()
    _, threads = world.line("a", "b")
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(stream=chunks, cancellation=token)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.ran == ["a"]
    token.fire()
    result = await run
    assert isinstance(result, Cancelled)
    assert (result.node, world.ran) == ("b", ["a"])


async def test_what_is_emitted_after_the_end_is_refused() -> None:
    chunks, kept = ChunkStream(), list[NodeContext]()
    graph: Graph[Doc] = Graph(Doc)

    @graph.node(streams=True)
    async def speak(_doc: Doc, ctx: NodeContext) -> None:
        kept.append(ctx)

    await World().threads(graph.compile()).run("t", Doc(), RunOptions(stream=chunks))
    stream = kept[0].stream
    assert stream is not None
    with pytest.raises(ChannelClosed):
        await stream.emit("late")


async def test_a_sync_node_streams_from_its_thread() -> None:
    chunks = ChunkStream(capacity=1)
    graph: Graph[Doc] = Graph(Doc)

    @graph.node(streams=True)
    def speak(_doc: Doc, ctx: NodeContext) -> None:
        assert ctx.stream is not None
        for number in range(5):
            ctx.stream.send(str(number))

    threads = World().threads(graph.compile())
    _, told = await streamed(threads.run("t", Doc(), RunOptions(stream=chunks)), chunks)
    assert told[1:-1] == [f"Token speak: {number}" for number in range(5)]


async def test_a_recovery_streams_from_the_recovered_node_on() -> None:
    """I019."""
    world, chunks = World(), ChunkStream()
    threads = world.threads(two())
    with armed(crashing("node.before", 2)), pytest.raises(Crash):
        await threads.run("t", Doc(), RunOptions(stream=ChunkStream()))
    result, told = await streamed(threads.recover("t", RunOptions(stream=chunks)), chunks)
    assert isinstance(result, Completed)
    assert told == ["NodeStart b: b", "Token b: three", "NodeEnd b: b"]


async def test_a_plain_resume_after_the_streaming_is_done_works() -> None:
    """Q008."""
    world, chunks = World(), ChunkStream()
    graph: Graph[Doc] = Graph(Doc)
    speaking(graph, "a", "one")
    world.trailing(graph, "b")
    graph.edge("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile())
    await streamed(threads.run("t", Doc(), RunOptions(stream=chunks)), chunks)
    assert isinstance(await threads.resume("t"), Completed)


async def test_a_closed_stream_is_refused_before_anything() -> None:
    world, chunks = World(), ChunkStream()
    threads = world.threads(two())
    await threads.run("t", Doc(), RunOptions(stream=chunks))
    before = await world.entries("t")
    result = await threads.run("u", Doc(), RunOptions(stream=chunks))
    assert isinstance(result, Refused)
    assert "give each call one of its own" in result.message
    assert (await world.entries("t"), await world.entries("u")) == (before, [])


async def test_a_watcher_that_leaves_stalls_nobody() -> None:
    world, chunks = World(), ChunkStream(capacity=1)
    run = asyncio.create_task(world.threads(two()).run("t", Doc(), RunOptions(stream=chunks)))
    assert (await anext(aiter(chunks))).node_name == "a"
    chunks.leave()
    assert isinstance(await run, Completed)
    assert chunks.dropped > 0
    assert await said(chunks) == []


async def test_a_watcher_that_closes_ends_the_engines_chunks_only() -> None:
    world, chunks = World(), ChunkStream(capacity=1)
    _, threads = world.line("a", "b")
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(stream=chunks)))
    await anext(aiter(chunks))
    chunks.close()
    assert isinstance(await run, Completed)


async def test_a_node_on_the_loop_that_sends_as_if_from_a_thread_fails() -> None:
    """It would wait for itself for ever."""
    world, chunks = World(), ChunkStream()
    graph: Graph[Doc] = Graph(Doc)

    @graph.node(streams=True)
    async def speak(_doc: Doc, ctx: NodeContext) -> None:
        assert ctx.stream is not None
        ctx.stream.send("word")

    threads = world.threads(graph.compile())
    result, _ = await streamed(threads.run("t", Doc(), RunOptions(stream=chunks)), chunks)
    assert isinstance(result, Failed)
    assert "use `await emit`" in result.message
