"""Answers to threads that wait inside: whom they reach, and what is decided where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.engine import (
    Answer,
    CheckpointPolicy,
    Fatal,
    Graph,
    NodeContext,
    RefusalCode,
    Retry,
    Transient,
)
from outcrop.engine.events import Resumed, RunStarted
from support.engine import BOUNDARIES, Doc, World, told
from support.fan_outs import Watch
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
    from outcrop.stores.record import Checkpoint

POLICIES = list(CheckpointPolicy)


def boundaries(row: Checkpoint) -> list[str | None]:
    """The boundary whose decision each level has, outermost first."""
    return [None if level.decision is None else level.decision.boundary for level in row.levels()]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_bare_answer_goes_to_the_innermost_level(policy: CheckpointPolicy) -> None:
    """E008, E022."""
    world, graph = World(), Graph(Doc)
    finals = list[Doc]()
    graph.subgraph(
        "Work",
        approving(world).compile(),
        input=lambda doc: Doc(n=doc.n),
        output=lambda _doc, child: finals.append(child),
    )
    threads = world.threads(graph.compile(checkpoints=policy))
    waiting(await threads.run("t", Doc(n=1)))
    result = await threads.resume("t", Answer(overrides={"n": 7}, text_overrides={"note": "ok"}))
    assert done(result) == Doc(n=1)
    assert [(doc.n, doc.note) for doc in finals] == [(7, "ok")]


@pytest.mark.parametrize("policy", POLICIES)
async def test_each_level_may_have_its_own_overrides(policy: CheckpointPolicy) -> None:
    """E021: the outermost and a middle one."""
    world = World()
    threads, _ = three_deep(world, approving(world), policy)
    waiting(await threads.run("t", Doc()))
    answer = Answer(
        overrides={"trail": ["innermost"]},
        levels={"": {"note": "outermost"}, "Work": {"trail": ["middle"]}},
    )
    assert done(await threads.resume("t", answer)) == Doc(
        trail=["begin", "Work/middle", "Work/Inner/innermost", "Work/Inner/send"], note="outermost"
    )


async def test_a_level_that_the_row_has_not_is_refused() -> None:
    """E023: naming the levels, and the thread stays as it was."""
    world = World()
    case = Nested(approving, world=world, policy=BOUNDARIES)
    waiting(await case.threads().run("t", Doc()))
    before = await world.entries()
    message = refused(
        await case.threads().resume("t", Answer(levels={"Nope": {"n": 1}})), RefusalCode.INVALID
    )
    assert message == (
        "cannot resume thread 't': a signal was addressed to level [Nope], "
        "but the checkpoint's levels are [], [Work]"
    )
    assert await world.entries() == before
    done(await case.threads().resume("t"))


async def test_the_innermost_level_is_not_to_be_named() -> None:
    """E024: nor the only one of a flat thread."""
    world = World()
    case = Nested(approving, world=world)
    case.graph.interrupt("before")
    waiting(await case.threads().run("t", Doc()))
    for level in ("", "Work"):
        before = await world.entries()
        message = refused(
            await case.threads().resume("t", Answer(levels={level: {"n": 1}})), RefusalCode.INVALID
        )
        assert message == (
            f"cannot resume thread 't': a signal was addressed to level [{level}], "
            "which is the innermost level and already has the innermost signal"
        )
        assert await world.entries() == before
        await case.threads().resume("t")


async def test_overrides_that_do_not_fit_name_their_level() -> None:
    """F004 below: nothing is written, and the thread stays resumable."""
    world = World()
    case = Nested(approving, world=world)
    waiting(await case.threads().run("t", Doc()))
    before = await world.entries()
    message = refused(await case.threads().resume("t", Answer(overrides={"n": "many"})), RefusalCode.STATE)
    assert message.startswith("failed to rehydrate state for thread 't' at level [Work]: ")
    message = refused(await case.threads().resume("t", Answer(levels={"": {"n": "many"}})), RefusalCode.STATE)
    assert message.startswith("failed to rehydrate state for thread 't': ")
    assert await world.entries() == before
    done(await case.threads().resume("t"))


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_failed_nested_thread_goes_on_at_the_failed_node_without_asking_again(
    policy: CheckpointPolicy,
) -> None:
    """E015, E025, E026: rows of failures keep the answer; an answer's overrides reach the child's state."""
    world = World()
    child = world.graph("draft", "approve")
    child.interrupt("approve")
    world.failing(child, "send", Fatal("closed"), Fatal("still closed"))
    child.edge("approve", "send")
    case = Nested(child, world=world, policy=policy)
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    failed(await threads.resume("t", Answer(by="alice")))
    first = await world.last()
    assert told(first) == "failed:Work>Work / failed:send>send"
    assert versions(first) == ["1.3.0", "1.3.0"]
    assert boundaries(first) == [None, "approve"]
    assert metadata(first)["error"] == "subgraph 'Work' failed at 'send' after 1 attempt(s): closed"

    failed(await threads.resume("t", Answer(by="bob")))
    second = await world.last()
    assert told(second) == told(first)
    assert [level.decision for level in second.levels()] == [level.decision for level in first.levels()]
    assert metadata(second)["error"].endswith("still closed")

    result = done(await threads.resume("t", Answer(overrides={"n": 6})))
    assert result.n == 6
    assert result.trail[-2:] == ["Work/send", "after"]
    assert world.ran.count("draft") == world.ran.count("approve") == 1


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_innermost_level_gets_the_decision(policy: CheckpointPolicy) -> None:
    """F007, F008: a fresh child has none, and the outer level gets none from it."""
    world = World()
    case = Nested(approving, world=world, policy=policy)
    case.graph.interrupt("before")
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    waiting(await threads.resume("t", Answer(by="outer")))
    seen = {ctx.node: ctx.decision for ctx in world.contexts}
    assert seen["draft"] is seen["approve"] is None
    done(await threads.resume("t", Answer(by="inner")))
    seen = {ctx.node: ctx.decision for ctx in world.contexts}
    assert seen["send"] is not None
    assert (seen["send"].boundary, seen["send"].reviewer) == ("approve", "inner")
    assert seen["after"] is not None
    assert (seen["after"].boundary, seen["after"].reviewer) == ("before", "outer")


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_outer_level_keeps_its_own_decision_while_its_child_waits(policy: CheckpointPolicy) -> None:
    """F009, F010: a second boundary replaces the first's, whose own frozen row still has the first."""
    world = World()
    child = world.graph("one", "two", "three")
    child.interrupt("one")
    child.interrupt("two")
    case = Nested(child, world=world, policy=policy)
    case.graph.interrupt("before")
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    waiting(await threads.resume("t"))
    row = await world.last()
    assert boundaries(row) == ["before", None]
    assert versions(row) == ["1.3.0", "1.0.0"]
    waiting(await threads.resume("t"))
    row = await world.last()
    assert told(row) == "interrupted:Work>Work / interrupted:two>three"
    assert boundaries(row) == ["before", "one"]
    assert versions(row) == ["1.3.0", "1.3.0"]
    done(await threads.resume("t"))
    decision = world.contexts[-2].decision
    assert decision is not None
    assert decision.boundary == "two"


async def test_every_retry_of_a_resumed_child_sees_the_same_decision() -> None:
    """F011."""
    world = World()
    child = world.graph("approve")
    child.interrupt("approve")
    world.failing(child, "send", Transient("a"), Transient("b"))
    child.edge("approve", "send")
    case = Nested(child, world=world, retry=Retry(max_retries=2))
    waiting(await case.threads().run("t", Doc()))
    done(await case.threads().resume("t", Answer(by="alice", overrides={"n": 1})))
    decisions = [ctx.decision for ctx in world.contexts if ctx.node == "send"]
    assert len(decisions) == 3
    assert decisions[0] is not None
    assert decisions[0] == decisions[1] == decisions[2]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_rejection_in_a_child_routes_inside_the_child(policy: CheckpointPolicy) -> None:
    """F016, F021."""
    world, watch = World(), Watch()
    child = world.graph("approve", "send")
    world.trailing(child, "revise")
    child.interrupt("approve", on_reject="revise")
    case = Nested(child, world=world, policy=policy)
    threads = case.threads(telemetry=watch)
    waiting(await threads.run("t", Doc()))
    watch.events.clear()
    result = await threads.resume("t", Answer(approved=False, by="bob"))
    assert done(result).trail == ["before", "Work/approve", "Work/revise", "after"]
    started, resumed = (
        next(event.kind for event in watch.events if isinstance(event.kind, kind))
        for kind in (RunStarted, Resumed)
    )
    assert isinstance(started, RunStarted)
    assert started.node == "Work"
    assert isinstance(resumed, Resumed)
    assert resumed.waiting_at == ("Work", "approve")
    assert (resumed.is_approved, resumed.reviewer, resumed.rejected_to) == (False, "bob", "revise")


async def test_a_boundary_subgraph_node_takes_its_own_reject_route_once_its_child_is_through() -> None:
    """F017: rejecting the child's boundary before goes the child's way."""
    world = World()
    graph = world.graph("before")
    sub(graph, "Work", approving(world).compile())
    world.trailing(graph, "after")
    world.trailing(graph, "rejected")
    graph.edge("before", "Work")
    graph.edge("Work", "after")
    graph.interrupt("Work", on_reject="rejected")
    threads = world.threads(graph.compile())
    waiting(await threads.run("t", Doc()))
    assert waiting(await threads.resume("t", Answer(approved=False))).waiting_at == ("Work",)
    assert done(await threads.resume("t", Answer(approved=False))).trail[-1] == "rejected"


async def test_a_decision_at_the_parents_boundary_is_told_to_nobody_below() -> None:
    """F007: every node below a later subgraph node starts undecided."""
    world, seen = World(), list[object]()
    inner = Graph(Doc)

    @inner.node(name="look")
    async def look(_doc: Doc, ctx: NodeContext) -> None:
        seen.append(ctx.decision)

    threads, outer = three_deep(world, inner)
    outer.interrupt("begin")
    threads = world.threads(outer.compile())
    waiting(await threads.run("t", Doc()))
    done(await threads.resume("t"))
    assert seen == [None]
