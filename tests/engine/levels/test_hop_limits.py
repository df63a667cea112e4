"""Hop limits: how they are counted, what a run that trips leaves, and how it goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    Cancelled,
    CancelToken,
    CheckpointPolicy,
    ChunkStream,
    CompilationFailed,
    Failed,
    FailureKind,
    Fatal,
    Graph,
    RefusalCode,
    Retry,
    RunOptions,
    Transient,
)
from outcrop.engine.events import (
    CheckpointSaved,
    HopLimitExceeded,
    NodeCompleted,
    NodeStarted,
    RunCompleted,
    RunStarted,
)
from support.engine import BOUNDARIES, EVERY_NODE, Doc, World, told
from support.fan_outs import Watch, gather
from support.levels import Nested, approving, done, failed, metadata, refused, sub, waiting

if TYPE_CHECKING:
    from outcrop.engine import RunResult, Threads
    from outcrop.stores.record import Checkpoint

POLICIES = list(CheckpointPolicy)


def hops(row: Checkpoint) -> list[str | None]:
    """The count of each level, outermost first."""
    return [(level.metadata or {}).get("strata.hops") for level in row.levels()]


def looping(world: World, *, until: int = 1000) -> Graph[Doc]:
    """`A` and `B` in a loop, for as long as the trail is shorter than `until`, then `end`."""
    graph = world.graph("A", "B")
    world.trailing(graph, "end")
    graph.edge("B", "A", when=lambda doc: len(doc.trail) < until)
    graph.edge("B", "end")
    return graph


def threads_of(world: World, graph: Graph[Doc], **compiling: Any) -> Threads[Doc]:
    return world.threads(graph.compile(**compiling))


def limited(result: RunResult[Doc]) -> Failed:
    result = failed(result)
    assert result.kind is FailureKind.HOP_LIMIT
    return result


def test_a_limit_of_nothing_is_refused() -> None:
    """A027, compiling."""
    with pytest.raises(CompilationFailed, match="max_node_hops must be at least 1"):
        World().graph("A").compile(max_node_hops=0)


async def test_a_runs_limit_of_nothing_is_refused() -> None:
    """A027, per run: before any write."""
    world = World()
    threads = threads_of(world, world.graph("A"))
    message = refused(await threads.run("t", Doc(), RunOptions(max_node_hops=0)), RefusalCode.INVALID)
    assert message == "a run's max_node_hops must be at least 1"
    assert await world.rows() == []


async def test_without_a_limit_nothing_is_counted() -> None:
    """K001: 51 hops, and rows without a count."""
    world = World()
    graph = looping(world, until=50)
    graph.interrupt("end")
    threads = threads_of(world, graph)
    waiting(await threads.run("t", Doc()))
    assert world.ran == ["A", "B"] * 25 + ["end"]
    assert hops(await world.last()) == [None]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_run_trips_before_the_hop_beyond_its_limit(policy: CheckpointPolicy) -> None:
    """K002: row, metadata and state as specified, and no attempts."""
    world = World()
    threads = threads_of(world, looping(world), max_node_hops=5, checkpoints=policy)
    result = limited(await threads.run("t", Doc()))
    assert world.ran == ["A", "B", "A", "B", "A"]
    assert result.message == "hop limit of 5 reached: node 'B' would be hop 6"
    assert (result.node, result.hops, result.limit) == ("B", 5, 5)
    row = await world.last()
    assert told(row) == "failed:B>B"
    assert row.metadata == {"error": result.message, "error_kind": "hop_limit", "strata.hops": "5"}
    assert row.frozen_state == '{"trail":["A","B","A","B","A"],"n":0,"note":null}'


async def test_exactly_at_the_limit_a_run_completes() -> None:
    """K003."""
    world = World()
    threads = threads_of(world, looping(world, until=4), max_node_hops=5)
    assert done(await threads.run("t", Doc())).trail == ["A", "B", "A", "B", "end"]


async def test_retries_are_no_hops_and_a_fallback_a_group_and_a_subgraph_are_one_each() -> None:
    """K004."""
    result = limited(await _mixed(World(), 4).run("t", Doc()))
    assert (result.node, result.hops) == ("end", 4)
    assert done(await _mixed(World(), 5).run("t", Doc())).trail[-1] == "end"


def _mixed(world: World, limit: int) -> Threads[Doc]:
    """A node that fails three times, its fallback, a group, a subgraph and a last node."""
    graph = Graph(Doc)
    world.failing(graph, "shaky", *[Transient("no")] * 3, retry=Retry(max_retries=2), fallback="plan b")
    world.trailing(graph, "plan b")
    group = graph.group("Checks", reduce=gather)
    for name in ("x", "y"):

        @group.branch(name=name)
        async def check(doc: Doc) -> None:
            doc.trail.append("checked")

    sub(graph, "Work", world.graph("one", "two", "three").compile())
    world.trailing(graph, "end")
    graph.edge("plan b", "Checks")
    graph.edge("Checks", "Work")
    graph.edge("Work", "end")
    return threads_of(world, graph, max_node_hops=limit)


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_count_survives_a_boundary_in_the_loop(policy: CheckpointPolicy) -> None:
    """K005."""
    world = World()
    graph = looping(world)
    graph.interrupt("B")
    threads = threads_of(world, graph, max_node_hops=5, checkpoints=policy)
    waiting(await threads.run("t", Doc()))
    assert hops(await world.last()) == ["2"]
    waiting(await threads.resume("t"))
    assert hops(await world.last()) == ["4"]
    result = limited(await threads.resume("t"))
    assert result.message == "hop limit of 5 reached: node 'B' would be hop 6"


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_count_survives_a_freeze_below(policy: CheckpointPolicy) -> None:
    """K006: the subgraph node is entered again as the same hop."""
    world = World()
    case = Nested(approving, world=world, policy=policy, compiling={"max_node_hops": 3})
    waiting(await case.threads().run("t", Doc()))
    row = await world.last()
    assert hops(row) == ["1", "2" if policy is EVERY_NODE else None]
    done(await case.threads().resume("t"))
    ends = {ctx.node: ctx.idempotency_key.partition("@")[0] for ctx in world.contexts}
    assert ends["send"] == "t/Work/send#2.3" if policy is EVERY_NODE else "t/Work/send#2.1"
    assert ends["after"] == "t/after#3"


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_childs_own_limit_fails_its_node_for_good(policy: CheckpointPolicy) -> None:
    """K007: nesting its row; a resume trips again."""
    world, watch = World(), Watch()
    graph = world.graph("before")
    entered = sub(graph, "Work", looping(world).compile(max_node_hops=3), retry=Retry(max_retries=5))
    graph.edge("before", "Work")
    threads = world.threads(graph.compile(checkpoints=policy), telemetry=watch)
    result = failed(await threads.run("t", Doc()))
    assert result.kind is FailureKind.NODE_FAILED
    assert result.message == (
        "subgraph 'Work' hit its hop limit: hop limit of 3 reached: node 'B' would be hop 4"
    )
    row = await world.last()
    assert told(row) == "failed:Work>Work / failed:B>B"
    assert metadata(row)["error_kind"] == "fatal"
    assert hops(row) == ["1" if policy is EVERY_NODE else None, "3"]
    assert row.nested is not None
    assert metadata(row.nested) == {
        "error": "hop limit of 3 reached: node 'B' would be hop 4",
        "error_kind": "hop_limit",
    }
    tripped = [event for event in watch.events if isinstance(event.kind, HopLimitExceeded)]
    assert [(event.node_path, event.attempt, event.kind) for event in tripped] == [
        ("Work/B", None, HopLimitExceeded(3, 3))
    ]
    assert len(entered) == 1
    again = failed(await threads.resume("t", options=RunOptions(max_node_hops=100)))
    assert again.message == result.message
    assert told(await world.last()) == told(row)
    assert world.ran == ["before", "A", "B", "A"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_resume_trips_again_unless_its_limit_is_higher(policy: CheckpointPolicy) -> None:
    """K008: and counts on from what the row says."""
    world = World()
    threads = threads_of(world, looping(world, until=9), max_node_hops=3, checkpoints=policy)
    limited(await threads.run("t", Doc()))
    rows = len(await world.rows())
    assert limited(await threads.resume("t")).hops == 3
    assert len(await world.rows()) == rows + 2  # a stamp or a claim, and the failed row again
    result = limited(await threads.resume("t", options=RunOptions(max_node_hops=5)))
    assert (result.hops, result.limit, result.node) == (5, 5, "B")
    assert done(await threads.resume("t", options=RunOptions(max_node_hops=50))).trail[-1] == "end"


async def test_a_cancellation_beats_the_limit() -> None:
    """K009: and its row records the hops."""
    world, token = World(), CancelToken()
    graph = Graph(Doc)

    @graph.node(name="A")
    async def fire(doc: Doc) -> None:
        doc.trail.append("A")
        token.fire()

    graph.edge("A", "A", when=lambda _doc: True)
    threads = threads_of(world, graph, max_node_hops=1)
    assert isinstance(await threads.run("t", Doc(), RunOptions(cancellation=token)), Cancelled)
    assert (await world.last()).metadata == {"cancel_reason": "requested", "strata.hops": "1"}


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("value", ["many", "-1", "1.5", "", "\uff19", "99999999999999999999999"])
async def test_a_count_that_is_none_refuses_the_resume(level: int, value: str) -> None:
    """K010: at any level, and nothing is written."""
    world = World()
    case = Nested(approving, world=world)
    waiting(await case.threads().run("t", Doc()))
    row = await world.last()
    nested = row.nested
    assert nested is not None
    broken = {"strata.hops": value}
    if level == 0:
        row = replace(row, metadata=broken)
    else:
        row = replace(row, nested=replace(nested, metadata=broken))
    await world.memory.save(row)
    before = await world.entries()
    message = refused(await case.threads().resume("t"), RefusalCode.INVALID)
    at = " at level [Work]" if level else ""
    assert message == f"checkpoint for thread 't'{at} has an invalid 'strata.hops' value '{value}'"
    assert await world.entries() == before


async def test_a_runs_limit_is_the_outermost_levels() -> None:
    """K011: lower than the graph's or where it has none, and never a child's."""
    world = World()
    child = world.graph("one", "two", "three", "four")
    case = Nested(child, world=world, compiling={"max_node_hops": 100})
    assert done(await case.threads().run("t", Doc(), RunOptions(max_node_hops=3))).trail[-1] == "after"
    result = limited(await case.threads().run("u", Doc(), RunOptions(max_node_hops=2)))
    assert (result.node, result.limit) == ("after", 2)
    plain = Nested(child, world=world, policy=BOUNDARIES)
    limited(await plain.threads().run("v", Doc(), RunOptions(max_node_hops=2)))
    assert (await world.last("v")).metadata is not None
    assert hops(await world.last("v")) == ["2"]


async def test_a_trip_is_told_in_order_and_nothing_of_the_refused_node() -> None:
    """K012."""
    world, watch = World(), Watch()
    stream = ChunkStream()
    threads = world.threads(looping(world).compile(max_node_hops=1), telemetry=watch)
    limited(await threads.run("t", Doc(), RunOptions(stream=stream)))
    assert [type(event.kind) for event in watch.events] == [
        RunStarted,
        NodeStarted,
        NodeCompleted,
        HopLimitExceeded,
        CheckpointSaved,
        RunCompleted,
    ]
    assert [event.node_path for event in watch.events] == [None, "A", "A", "B", None, None]
    assert [f"{one.type} {one.node_name}" async for one in stream] == ["NodeStart A", "NodeEnd A"]


async def test_a_map_item_counts_on_its_own() -> None:
    """Engine.md 3.4: against the child's compiled limit."""
    world, graph = World(), Graph(Doc)
    child = looping(world, until=3).compile(max_node_hops=2)
    graph.map(
        "Lines",
        child,
        items=lambda _doc: ["a", "b"],
        key=str,
        input=lambda _doc, _item: Doc(),
        reduce=gather,
    )
    result = failed(await threads_of(world, graph).run("t", Doc()))
    assert "item 'a': hit its hop limit: hop limit of 2 reached: node 'A' would be hop 3" in result.message


async def test_a_limit_stops_a_fallback_too() -> None:
    """A fallback is a hop of its own."""
    world, graph = World(), Graph(Doc)
    world.failing(graph, "shaky", Fatal("no"), fallback="plan b")
    world.trailing(graph, "plan b")
    result = limited(await threads_of(world, graph, max_node_hops=1).run("t", Doc()))
    assert (result.node, result.hops) == ("plan b", 1)
