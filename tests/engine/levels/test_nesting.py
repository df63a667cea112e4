"""A graph as one node of another: what it is given, what it leaves, where it freezes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import (
    Answer,
    CheckpointPolicy,
    ChunkStream,
    Fatal,
    Graph,
    NodeContext,
    RefusalCode,
    Retry,
    RunOptions,
    Transient,
)
from support.engine import BOUNDARIES, EVERY_NODE, Doc, World, told
from support.levels import (
    Nested,
    approving,
    done,
    failed,
    metadata,
    refused,
    sub,
    three_deep,
    versions,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable

POLICIES = list(CheckpointPolicy)


@dataclass
class Invoice:
    """A child's own type."""

    amount: int
    paid: list[str] = field(default_factory=list)


async def test_a_child_of_another_type_runs_as_one_node() -> None:
    """P001, B008: sync and async nodes below; the output mapper gets the state that the node started with."""
    world, child = World(), Graph(Invoice)

    @child.node
    def charge(invoice: Invoice) -> None:
        invoice.amount *= 2

    @child.node
    async def receipt(invoice: Invoice) -> Invoice:
        return Invoice(invoice.amount, ["receipt"])

    child.edge(charge, receipt)
    graph = world.graph("start")
    graph.subgraph(
        "Pay",
        child.compile(),
        input=lambda doc: Invoice(doc.n),
        output=lambda doc, invoice: Doc(trail=[*doc.trail, *invoice.paid], n=invoice.amount),
    )
    graph.edge("start", "Pay")
    result = await world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc(n=21))
    assert done(result) == Doc(trail=["start", "receipt"], n=42)


async def test_async_nodes_run_at_any_depth_and_know_their_path() -> None:
    """B008, C020, T001."""
    world = World()
    threads, _ = three_deep(world, world.graph("deep"))
    result = await threads.run("t", Doc())
    assert done(result).trail == ["begin", "Work/first", "Work/Inner/deep"]
    assert [ctx.node_path for ctx in world.contexts] == ["begin", "Work/first", "Work/Inner/deep"]
    assert [ctx.node for ctx in world.contexts] == ["begin", "first", "deep"]
    assert {ctx.thread_id for ctx in world.contexts} == {"t"}
    assert len({ctx.run_id for ctx in world.contexts}) == 1
    assert [ctx.idempotency_key for ctx in world.contexts] == [
        "t/begin#1",
        "t/Work/first#2.1",
        "t/Work/Inner/deep#2.2.1",
    ]


async def test_a_child_has_its_own_loop_and_retries_and_the_parent_sees_nothing() -> None:
    """P002, C020."""
    world = World()
    child = world.graph("again")
    attempts = world.failing(child, "shaky", Transient("no"), retry=Retry(max_retries=1))
    child.edge("again", "again", when=lambda doc: len(doc.trail) < 3)
    child.edge("again", "shaky")
    case = Nested(child, world=world, policy=BOUNDARIES)
    result = await case.threads().run("t", Doc())
    assert done(result).trail == [
        "before", "Work/again", "Work/again", "Work/again", "Work/shaky", "after"
    ]  # fmt: skip
    assert attempts == [1, 2]
    assert await world.rows() == []


async def test_a_fatal_failure_of_a_child_is_its_nodes() -> None:
    """P003: the parent's row has the parent's state."""
    world, child = World(), Graph(Doc)
    world.failing(child, "broken", Fatal("out of ink"))
    case = Nested(child, world=world, policy=BOUNDARIES, retry=Retry(max_retries=5))
    result = failed(await case.threads().run("t", Doc()))
    assert result.message == "subgraph 'Work' failed at 'broken' after 1 attempt(s): out of ink"
    assert (result.node, result.attempts) == ("Work", 1)
    row = await world.last()
    assert told(row) == "failed:Work>Work / failed:broken>broken"
    assert row.frozen_state == '{"trail":["before"],"n":0,"note":null}'
    assert metadata(row) == {"error": result.message, "error_kind": "fatal", "attempts": "1"}
    assert row.nested is not None
    assert metadata(row.nested) == {"error": "out of ink", "error_kind": "fatal", "attempts": "1"}
    assert versions(row) == ["1.1.0", "1.0.0"]
    assert len(case.entered) == 1


async def test_a_transient_failure_of_a_child_is_retried_whole() -> None:
    """P004: three attempts of two; the child begins anew each time."""
    world, child = World(), world_graph("first")
    world.trailing(child, "second")
    attempts = world.failing(child, "shaky", *[Transient("busy")] * 6, retry=Retry(max_retries=1))
    child.edge("first", "second")
    child.edge("second", "shaky")
    case = Nested(child, world=world, retry=Retry(max_retries=2))
    result = failed(await case.threads().run("t", Doc()))
    assert attempts == [1, 2] * 3
    assert len(case.entered) == 3
    assert result.message == "subgraph 'Work' failed at 'shaky' after 2 attempt(s): busy"
    assert metadata(await world.last())["attempts"] == "3"


def world_graph(name: str) -> Graph[Doc]:
    """A graph of one node that leaves its name and tells nobody."""
    graph = Graph(Doc)

    @graph.node(name=name)
    async def leave(doc: Doc) -> None:
        doc.trail.append(name)

    return graph


async def test_a_child_recovers_when_the_parent_retries() -> None:
    """P004."""
    world, child = World(), Graph(Doc)
    world.failing(child, "shaky", Transient("busy"))
    case = Nested(child, world=world, retry=Retry(max_retries=1))
    assert done(await case.threads().run("t", Doc())).trail == ["before", "Work/shaky", "after"]


async def test_a_fallback_starts_from_the_state_before_the_child() -> None:
    """P005."""
    world, child = World(), world_graph("first")
    world.failing(child, "broken", Fatal("no"))
    child.edge("first", "broken")
    graph = world.graph("before")
    sub(graph, "Work", child.compile(), fallback="plan b")
    world.trailing(graph, "plan b")
    graph.edge("before", "Work")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    assert done(await threads.run("t", Doc())).trail == ["before", "plan b"]
    told_of = world.contexts[-1].last_failure
    assert told_of is not None
    assert (told_of.node, told_of.node_path) == ("Work", "Work")
    assert told_of.error == "subgraph 'Work' failed at 'broken' after 1 attempt(s): no"
    assert [ctx.idempotency_key for ctx in world.contexts if ctx.node == "plan b"] == ["t/plan b#3"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_routing_gap_in_a_child_is_fatal_and_nests_nothing(policy: CheckpointPolicy) -> None:
    """P005, E028."""
    world, child = World(), world_graph("stuck")
    world.trailing(child, "never")
    child.edge("stuck", "never", when=lambda _doc: False)
    case = Nested(child, world=world, policy=policy, retry=Retry(max_retries=3))
    result = failed(await case.threads().run("t", Doc()))
    assert result.message == "subgraph 'Work': no outgoing edge condition matched for node 'stuck'"
    row = await world.last()
    assert told(row) == "failed:Work>Work"
    assert row.schema_version == "1.0.0"
    assert len(case.entered) == 1


async def test_failures_three_deep_chain_their_messages() -> None:
    """P006, E027: failed rows nest at each level, and the thread goes on where the innermost failed."""
    world, inner = World(), world_graph("fine")
    attempts = world.failing(inner, "broken", Fatal("no ink"))
    inner.edge("fine", "broken")
    threads, _ = three_deep(world, inner)
    result = failed(await threads.run("t", Doc()))
    assert result.message == (
        "subgraph 'Work' failed at 'Inner' after 1 attempt(s): "
        "subgraph 'Inner' failed at 'broken' after 1 attempt(s): no ink"
    )
    row = await world.last()
    assert told(row) == "failed:Work>Work / failed:Inner>Inner / failed:broken>broken"
    assert [level.thread_id for level in row.levels()] == ["t", "Work", "Inner"]
    assert versions(row) == ["1.1.0", "1.1.0", "1.0.0"]
    world.contexts.clear()
    assert done(await threads.resume("t")).trail == [
        "begin", "Work/first", "Work/Inner/fine", "Work/Inner/broken"
    ]  # fmt: skip
    assert world.ran == ["broken"]
    assert attempts == [1, 1]


async def test_one_child_backs_several_nodes() -> None:
    """P006."""
    world = World()
    child, graph = world.graph("step").compile(), Graph(Doc)
    for name in ("One", "Two"):
        sub(graph, name, child)
    graph.edge("One", "Two")
    assert done(await world.threads(graph.compile()).run("t", Doc())).trail == ["One/step", "Two/step"]


async def test_a_supervisor_routes_among_children() -> None:
    """P007."""
    world, graph = World(), Graph(Doc)

    @graph.node(name="supervisor")
    async def supervise(doc: Doc) -> None:
        doc.n += 1

    for number, name in enumerate(("Research", "Write"), start=1):
        sub(graph, name, world.graph("step").compile())
        graph.edge("supervisor", name, when=lambda doc, number=number: doc.n == number)  # type: ignore[misc]  # bound here
        graph.edge(name, "supervisor")
    world.trailing(graph, "end")
    graph.edge("supervisor", "end")
    assert done(await world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc())).trail == [
        "Research/step", "Write/step", "end"
    ]  # fmt: skip


async def test_a_panic_in_a_child_propagates_unretried() -> None:
    """P008: and leaves the levels it struck `failed`."""
    world, child, calls = World(), Graph(Doc), list[int]()

    class Panic(BaseException):
        pass

    @child.node(name="x")
    async def explode(_doc: Doc) -> None:
        calls.append(1)
        raise Panic

    case = Nested(child, world=world, retry=Retry(max_retries=3))
    with pytest.raises(Panic):
        await case.threads().run("t", Doc())
    assert len(calls) == 1
    assert (await world.log())[-1] == "failed:Work>Work"


async def test_a_childs_nodes_stream_between_their_parents_chunks() -> None:
    """P008, Q: names are paths."""
    world = World()
    case = Nested(world.graph("draft"), world=world)
    stream = ChunkStream()
    done(await case.threads().run("t", Doc(), RunOptions(stream=stream)))
    assert [f"{one.type} {one.node_name} {one.content}" async for one in stream] == [
        "NodeStart before before",
        "NodeEnd before before",
        "NodeStart Work Work",
        "NodeStart Work/draft draft",
        "NodeEnd Work/draft draft",
        "NodeEnd Work Work",
        "NodeStart after after",
        "NodeEnd after after",
    ]


async def test_a_frozen_childs_node_has_a_start_and_no_end() -> None:
    """E018: and the resume's stream starts with the node again."""
    world = World()
    case = Nested(approving, world=world)
    stream = ChunkStream()
    waiting(await case.threads().run("t", Doc(), RunOptions(stream=stream)))
    chunks = [f"{one.type} {one.node_name}" async for one in stream]
    assert chunks[-3:] == ["NodeEnd Work/draft", "NodeStart Work/approve", "NodeEnd Work/approve"]
    assert "NodeStart Work" in chunks
    assert "NodeEnd Work" not in chunks
    stream = ChunkStream()
    done(await case.threads().resume("t", options=RunOptions(stream=stream)))
    assert [f"{one.type} {one.node_name}" async for one in stream][:3] == [
        "NodeStart Work",
        "NodeStart Work/send",
        "NodeEnd Work/send",
    ]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_childs_boundary_freezes_the_thread_at_the_subgraph_node(policy: CheckpointPolicy) -> None:
    """E004, E005, E020."""
    world = World()
    case = Nested(approving, world=world, policy=policy)
    result = waiting(await case.threads().run("t", Doc(n=5)))
    assert (result.suspended_node, result.next_node) == ("Work", "Work")
    assert result.waiting_at == ("Work", "approve")
    assert result.state == Doc(trail=["before"], n=5)
    row = await world.last()
    assert told(row) == "interrupted:Work>Work / interrupted:approve>send"
    assert versions(row) == ["1.1.0", "1.0.0"]
    assert [level.thread_id for level in row.levels()] == ["t", "Work"]
    assert row.frozen_state == '{"trail":["before"],"n":5,"note":null}'
    assert row.nested is not None
    assert row.nested.frozen_state == '{"trail":["draft","approve"],"n":5,"note":null}'


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_resume_goes_on_where_the_child_froze(policy: CheckpointPolicy) -> None:
    """E007: its input mapper and earlier nodes ran once."""
    world = World()
    case = Nested(approving, world=world, policy=policy)
    waiting(await case.threads().run("t", Doc()))
    result = await case.threads().resume("t")
    assert done(result).trail == ["before", "Work/draft", "Work/approve", "Work/send", "after"]
    assert world.ran == ["before", "draft", "approve", "send", "after"]
    assert len(case.entered) == 1


async def test_the_stamp_keeps_the_nested_child() -> None:
    """E009."""
    world = World()
    case = Nested(approving, world=world, policy=BOUNDARIES)
    waiting(await case.threads().run("t", Doc()))
    done(await case.threads().resume("t", Answer(overrides={"n": 3})))
    frozen, stamp = await world.rows()
    assert stamp.resumed_at is not None
    assert stamp.nested == frozen.nested
    assert versions(stamp) == versions(frozen)


async def test_a_second_boundary_in_the_child_freezes_again() -> None:
    """E010, E020."""
    world = World()
    child = world.graph("one", "two", "three")
    child.interrupt("one")
    child.interrupt("two")
    case = Nested(child, world=world, policy=BOUNDARIES)
    assert waiting(await case.threads().run("t", Doc())).waiting_at == ("Work", "one")
    assert waiting(await case.threads().resume("t")).waiting_at == ("Work", "two")
    assert await world.log() == [
        "interrupted:Work>Work / interrupted:one>two",
        "interrupted:Work>Work / interrupted:one>two",
        "interrupted:Work>Work / interrupted:two>three",
    ]
    done(await case.threads().resume("t"))
    assert len(case.entered) == 1


@pytest.mark.parametrize("policy", POLICIES)
async def test_nesting_works_at_three_levels(policy: CheckpointPolicy) -> None:
    """E011, E020, D016's paths."""
    world = World()
    threads, _ = three_deep(world, approving(world), policy)
    result = waiting(await threads.run("t", Doc()))
    assert result.waiting_at == ("Work", "Inner", "approve")
    row = await world.last()
    assert told(row) == "interrupted:Work>Work / interrupted:Inner>Inner / interrupted:approve>send"
    assert versions(row) == ["1.1.0", "1.1.0", "1.0.0"]
    assert [level.thread_id for level in row.levels()] == ["t", "Work", "Inner"]
    assert done(await threads.resume("t")).trail[-1] == "Work/Inner/send"
    assert world.ran == ["begin", "first", "draft", "approve", "send"]


async def test_the_subgraph_node_may_be_a_boundary_itself() -> None:
    """E012, P007: a flat row, after the child completed."""
    world = World()
    case = Nested(approving, world=world)
    case.graph.interrupt("Work")
    assert waiting(await case.threads().run("t", Doc())).waiting_at == ("Work", "approve")
    result = waiting(await case.threads().resume("t"))
    assert result.waiting_at == ("Work",)
    row = await world.last()
    assert told(row) == "interrupted:Work>after"
    assert row.nested is None
    assert result.state.trail == ["before", "Work/draft", "Work/approve", "Work/send"]
    done(await case.threads().resume("t"))


async def test_a_stray_boundary_in_a_child_is_harmless() -> None:
    """P007: a boundary that only waits, out of the way, is never met."""
    world = World()
    child = world.graph("one")
    child.edge("one", "never", when=lambda _doc: False)
    world.trailing(child, "two")
    child.edge("one", "two")
    child.interrupt("never")
    case = Nested(child, world=world)
    assert done(await case.threads().run("t", Doc())).trail == ["before", "Work/one", "Work/two", "after"]


async def test_a_freeze_is_no_failure() -> None:
    """E013."""
    world = World()
    graph = world.graph("before", "plan b")
    sub(graph, "Work", approving(world).compile(), retry=Retry(max_retries=3), fallback="plan b")
    graph.edge("plan b", "Work", when=lambda _doc: True)
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    assert world.ran.count("draft") == 1
    assert world.ran.count("plan b") == 1  # on the way in, never as the fallback


async def test_a_retry_of_a_resumed_child_starts_where_it_was_resumed() -> None:
    """E014: nobody is asked twice."""
    world = World()
    child = world.graph("draft", "approve")
    child.interrupt("approve")
    attempts = world.failing(child, "send", Transient("busy"), Transient("busy"))
    child.edge("approve", "send")
    case = Nested(child, world=world, retry=Retry(max_retries=2))
    waiting(await case.threads().run("t", Doc()))
    assert done(await case.threads().resume("t", Answer(overrides={"n": 9}))).n == 9
    assert attempts == [1, 1, 1]
    assert world.ran.count("draft") == world.ran.count("approve") == 1
    assert len(case.entered) == 1


async def test_a_nested_level_of_an_unknown_format_or_a_nest_under_no_subgraph_is_refused() -> None:
    """E016, E017: nothing is written."""
    world = World()
    case = Nested(approving, world=world, policy=BOUNDARIES)
    waiting(await case.threads().run("t", Doc()))
    before = await world.entries()

    other = world.graph("before", "Work", "after")
    message = refused(
        await world.threads(other.compile(checkpoints=BOUNDARIES)).resume("t"), RefusalCode.NESTED
    )
    assert message == "checkpoint nests a child graph under 'Work', which is not a subgraph node"
    assert await world.entries() == before
    done(await case.threads().resume("t"))


@pytest.mark.parametrize("fails", [lambda _doc: 1 // 0, lambda _doc: "no state"])
async def test_a_mapper_that_fails_fails_its_node(fails: Callable[[Doc], Doc]) -> None:
    world, graph = World(), Graph(Doc)
    calls = list[int]()

    def enter(doc: Doc) -> Doc:
        calls.append(1)
        return fails(doc)

    graph.subgraph(
        "Work", world.graph("x").compile(), input=enter, output=lambda doc, _: doc, fallback="plan b"
    )
    world.trailing(graph, "plan b")
    assert done(await world.threads(graph.compile()).run("t", Doc())).trail == ["plan b"]
    assert calls == [1]


async def test_an_output_mapper_that_fails_is_retried_with_the_child() -> None:
    world, graph, calls = World(), Graph(Doc), list[Doc]()

    def leave(doc: Doc, child: Doc) -> None:
        calls.append(child)
        if len(calls) == 1:
            raise Transient("again")
        doc.trail += child.trail

    graph.subgraph(
        "Work",
        world.graph("x").compile(),
        input=lambda _doc: Doc(),
        output=leave,
        retry=Retry(max_retries=1),
    )
    assert done(await world.threads(graph.compile()).run("t", Doc())).trail == ["x"]
    assert world.ran == ["x", "x"]


async def test_a_context_of_a_child_has_its_own_token_and_the_runs_services() -> None:
    """M006's depth, and T001."""
    world, child, seen = World(), Graph(Doc), list[object]()

    @child.node(name="x")
    async def look(_doc: Doc, ctx: NodeContext) -> None:
        seen.append(ctx.service(str))
        ctx.cancellation.fire()

    case = Nested(child, world=world)
    assert done(await case.threads().run("t", Doc(), RunOptions(services={str: "post"}))).trail[-1] == "after"
    assert seen == ["post"]
