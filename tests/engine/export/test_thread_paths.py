"""Where a thread was and is, by logs of real runs and by rows as other engines write them."""

from __future__ import annotations

from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    CheckpointPolicy,
    Fatal,
    Graph,
    HistoryEntry,
    NodeContext,
    RunOptions,
    Threads,
    thread_path,
)
from outcrop.stores import Checkpoint, MemoryStore, Status
from support.drafts import State, add, always, graph_of
from support.twins import Variant, twin

DURABLE = Variant(every_node=True)


async def path_of(threads: Threads[Any]) -> tuple[list[str], str | None]:
    """The path of thread "t": places as text."""
    path = thread_path(await threads.history("t"))
    current = None if path.current is None else "/".join(path.current)
    return sorted("/".join(place) for place in path.visited), current


def durable(graph: Graph[State]) -> Threads[State]:
    return Threads(graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE), MemoryStore())


async def test_a_completed_thread_has_been_everywhere_on_its_way() -> None:
    threads = Threads(twin("line3", DURABLE), MemoryStore())
    await threads.run("t", {})
    assert await path_of(threads) == (["a", "b", "c"], None)


async def test_a_boundary_is_where_the_thread_is_until_it_is_answered() -> None:
    """Its node has run; a rejection goes on along its route."""
    threads = Threads(twin("approval", DURABLE), MemoryStore())
    await threads.run("t", {})
    assert await path_of(threads) == (["approve", "prepare"], "approve")
    await threads.resume("t", Answer(approved=False))
    assert await path_of(threads) == (["approve", "prepare", "reject"], None)


async def test_levels_have_their_own_places() -> None:
    """A subgraph's last node has no row of its own, and is known to have run once the level is left."""
    threads = Threads(twin("nested", DURABLE), MemoryStore())
    await threads.run("t", {})
    assert await path_of(threads) == (["open", "review/approve", "review/draft"], "review/approve")
    await threads.resume("t")
    visited, current = await path_of(threads)
    assert (visited, current) == (
        ["close", "open", "review", "review/approve", "review/draft", "review/publish"],
        None,
    )


async def test_a_failed_thread_is_at_the_node_that_failed() -> None:
    threads = Threads(twin("failing", DURABLE), MemoryStore())
    await threads.run("t", {})
    assert await path_of(threads) == (["start"], "charge")
    await threads.resume("t", Answer(overrides={"card": "ok"}))
    assert await path_of(threads) == (["charge", "ship", "start"], None)


async def test_a_node_that_asks_is_not_behind_the_thread_yet() -> None:
    graph = graph_of("before")

    @graph.node
    async def ask(state: State, ctx: NodeContext) -> None:
        state["answer"] = await ctx.interrupt("why?", id="why")

    graph.edge("before", "ask")
    threads = durable(graph)
    await threads.run("t", {})
    assert await path_of(threads) == (["before"], "ask")
    await threads.resume("t", Answer(replies={"why": 1}))
    assert await path_of(threads) == (["ask", "before"], None)


async def test_a_static_interrupt_stands_before_its_node() -> None:
    threads = Threads(twin("line3", DURABLE), MemoryStore())
    await threads.run("t", {}, RunOptions(interrupt_before=frozenset({"b"})))
    assert await path_of(threads) == (["a"], "b")


async def test_a_loop_is_at_its_node_while_it_turns() -> None:
    threads = Threads(twin("loop", DURABLE), MemoryStore())
    await threads.run("t", {"limit": 3})
    assert await path_of(threads) == (["done", "start", "work"], None)


async def test_the_branch_that_goes_on_is_the_one_told() -> None:
    """What an abandoned branch visited is none of the thread's way."""
    graph = graph_of("a")
    add(graph, "left")
    add(graph, "right")
    graph.edge("a", "left", when=lambda state: state.get("way") != "right")
    graph.edge("a", "right", when=always)
    threads = durable(graph)
    await threads.run("t", {})
    assert await path_of(threads) == (["a", "left"], None)
    await threads.update_state("t", {"way": "right"}, as_node="a", at_sequence=1)
    await threads.resume("t")
    assert await path_of(threads) == (["a", "right"], None)


async def test_a_fallback_leaves_the_failed_node_behind() -> None:
    graph = graph_of()

    @graph.node(fallback="rescue")
    async def work(_state: State) -> None:
        raise Fatal("no")

    add(graph, "rescue")
    add(graph, "after")
    graph.edge("work", "after")
    graph.edge("rescue", "after")
    threads = durable(graph)
    await threads.run("t", {})
    assert await path_of(threads) == (["after", "rescue", "work"], None)


async def test_a_run_without_rows_tells_its_stops_only() -> None:
    threads = Threads(twin("approval"), MemoryStore())
    await threads.run("t", {})
    assert await path_of(threads) == (["approve"], "approve")


def row(status: Status, suspended: str | None, following: str | None) -> Checkpoint:
    return Checkpoint(
        schema_version="1.7.0",
        thread_id="t",
        status=status,
        suspended_node=suspended,
        next_node=following,
        frozen_state="{}",
        metadata=None,
        created_at="2026-01-02T03:04:05Z",
    )


def log(*rows: Checkpoint) -> list[HistoryEntry]:
    return [HistoryEntry(at, one, at - 1 if at else None) for at, one in enumerate(rows)]


def test_an_ended_thread_is_where_it_was_stopped() -> None:
    path = thread_path(
        log(
            row(Status.RUNNING, None, "a"),
            row(Status.RUNNING, "a", "b"),
            row(Status.ENDED, "a", None),
        )
    )
    assert (path.visited, path.current) == (frozenset({("a",)}), ("a",))


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_run_that_died_before_its_first_node(status: Status) -> None:
    path = thread_path(log(row(Status.RUNNING, None, "a"), row(status, "a", "a")))
    assert (path.visited, path.current) == (frozenset(), ("a",))


def test_no_log_no_path() -> None:
    path = thread_path([])
    assert (path.visited, path.current) == (frozenset(), None)
