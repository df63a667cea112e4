"""Sections E (one level) and F: boundaries, answers and decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    CancelToken,
    CheckpointPolicy,
    Completed,
    Fatal,
    Graph,
    Interrupted,
    RefusalCode,
    Refused,
    RunOptions,
    Threads,
)
from outcrop.stores.record import Checkpoint, Decision, Status
from support.engine import BOUNDARIES, EVERY_NODE, Doc, World


def approval(world: World, policy: CheckpointPolicy = BOUNDARIES, **boundary: Any) -> Threads[Doc]:
    """`draft`, then `approve` (a boundary), then `publish`; rejections may go to `revise`."""
    graph = world.graph("draft", "approve", "publish")
    if "revise" in boundary.values():
        world.trailing(graph, "revise")
    graph.interrupt("approve", **boundary)
    return world.threads(graph.compile(checkpoints=policy))


async def test_a_boundary_freezes_the_thread() -> None:
    """E001, E006, E020, 5.1: no wait without a timeout."""
    world = World()
    result = await approval(world).run("t", Doc())
    assert result == Interrupted(
        thread_id="t", suspended_node="approve", next_node="publish", waiting_at=("approve",), wait=None,
        state=Doc(trail=["draft", "approve"]), sequence=0,
    )  # fmt: skip
    row = await world.last()
    assert await world.log() == ["interrupted:approve>publish"]
    assert (row.resumed_at, row.nested, row.wait, row.schema_version) == (None, None, None, "1.0.0")


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_an_answer_lays_its_overrides_and_goes_on(policy: CheckpointPolicy) -> None:
    """E002, F001, F002."""
    world = World()
    threads = approval(world, policy)
    await threads.run("t", Doc())
    answer = Answer(overrides={"n": 7, "trail": []}, text_overrides={"note": "5"})
    result = await threads.resume("t", answer)
    assert isinstance(result, Completed)
    assert result.state == Doc(trail=["publish"], n=7, note="5")


async def test_overrides_keep_their_json_types() -> None:
    """F001: int, bool, null, object."""
    world, graph = World(), Graph(dict[str, Any])
    graph.interrupt("ask")
    graph.node(name="end")(lambda state: state)
    graph.edge("ask", "end")
    threads = world.threads(graph.compile())
    await threads.run("t", {"kept": 1})
    typed: dict[str, Any] = {"i": 1, "b": True, "s": "x", "z": None, "o": {"k": [1]}}
    result = await threads.resume("t", Answer(overrides=typed))
    assert isinstance(result, Completed)
    assert result.state == {"kept": 1, **typed}


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_resuming_nothing_or_twice_is_refused(policy: CheckpointPolicy) -> None:
    """E003."""
    world = World()
    threads = approval(world, policy)
    missing = await threads.resume("t")
    assert missing == Refused(
        thread_id="t", code=RefusalCode.NO_THREAD, message="no checkpoint found for thread 't'"
    )
    await threads.run("t", Doc())
    await threads.resume("t")
    twice = await threads.resume("t")
    assert isinstance(twice, Refused)
    assert twice.code is (RefusalCode.ALREADY_RESUMED if policy is BOUNDARIES else RefusalCode.COMPLETED)


@pytest.mark.parametrize("version", ["1.8.0", "1.0.1", "2.0.0"])
async def test_an_unknown_schema_version_is_refused(version: str) -> None:
    """E016."""
    world = World()
    threads = approval(world)
    await threads.run("t", Doc())
    await world.memory.save(replace(await world.last(), schema_version=version))
    refused = await threads.resume("t")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SCHEMA_VERSION
    assert refused.message == f"checkpoint for thread 't' has unsupported schema_version '{version}'"
    assert len(await world.rows()) == 2


def nested_row(row: Checkpoint, status: Status) -> Checkpoint:
    """The row with a child of another engine nested in it."""
    child = replace(row, thread_id="approve", suspended_node="inner", status=status)
    return replace(row, status=status, nested=child, schema_version="1.1.0")


async def test_a_nested_row_is_refused_whole() -> None:
    """E017."""
    world = World()
    threads = approval(world)
    await threads.run("t", Doc())
    await world.memory.save(nested_row(await world.last(), Status.INTERRUPTED))
    refused = await threads.resume("t")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.NESTED
    assert refused.message == ("checkpoint nests a child graph under 'approve', which is not a subgraph node")


async def test_a_key_in_both_override_maps_is_refused_before_anything() -> None:
    """F003."""
    world = World()
    threads = approval(world)
    await threads.run("t", Doc())
    refused = await threads.resume("t", Answer(overrides={"n": 1}, text_overrides={"n": "1"}))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.INVALID
    assert refused.message == (
        "cannot resume thread 't': override 'n' is set as both a string and a typed value"
    )
    assert len(await world.rows()) == 1


@pytest.mark.parametrize("override", ["many", float("nan")])
async def test_an_override_that_does_not_fit_leaves_the_thread_resumable(override: Any) -> None:
    """F004."""
    world = World()
    threads = approval(world)
    await threads.run("t", Doc())
    refused = await threads.resume("t", Answer(overrides={"n": override}))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.STATE
    assert refused.message.startswith("failed to rehydrate state for thread 't': ")
    assert isinstance(await threads.resume("t"), Completed)


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_every_node_after_the_boundary_sees_the_decision(policy: CheckpointPolicy) -> None:
    """F005, F006, I014."""
    world = World()
    graph = world.graph("draft", "approve", "publish", "tell")
    graph.interrupt("approve")
    threads = world.threads(graph.compile(checkpoints=policy))
    await threads.run("t", Doc())
    assert [ctx.decision for ctx in world.contexts] == [None, None]
    world.clock.advance(60)
    answer = Answer(by="alice", overrides={"n": 2, "note": "b"})
    await threads.resume("t", answer)
    decision = Decision("approve", True, "alice", {"n": 2, "note": "b"}, "2026-01-02T03:05:05Z")
    assert [ctx.decision for ctx in world.contexts[2:]] == [decision, decision]
    if policy is EVERY_NODE:
        assert [row.decision for row in (await world.rows())[3:]] == [decision] * 3


async def test_a_second_boundary_replaces_the_decision() -> None:
    """F010, E010."""
    world = World()
    graph = world.graph("first", "second", "end")
    graph.interrupt("first")
    graph.interrupt("second")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    assert isinstance(await threads.resume("t", Answer(by="one")), Interrupted)
    row = await world.last()
    assert row.decision is not None
    assert (row.decision.boundary, row.decision.reviewer, row.schema_version) == ("first", "one", "1.3.0")
    await threads.resume("t", Answer(by="two"))
    assert world.contexts[-1].decision is not None
    assert (world.contexts[-1].decision.boundary, world.contexts[-1].decision.reviewer) == ("second", "two")


async def test_a_failure_after_approval_keeps_the_approver() -> None:
    """F012: the operator who retries is not the approver."""
    world = World()
    graph = world.graph("approve")
    world.failing(graph, "publish", Fatal("no"))
    graph.edge("approve", "publish")
    graph.interrupt("approve")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    await threads.resume("t", Answer(by="alice"))
    failed = await world.last()
    assert failed.decision is not None
    assert (failed.status, failed.schema_version, failed.decision.reviewer) == ("failed", "1.3.0", "alice")
    await threads.resume("t", Answer(by="operator"))
    assert world.contexts[-1].decision == failed.decision


async def test_a_cancellation_after_approval_carries_the_decision() -> None:
    """F013."""
    world, token = World(), CancelToken()
    threads = approval(world)
    await threads.run("t", Doc())
    token.fire()
    await threads.resume("t", Answer(by="alice"), RunOptions(cancellation=token))
    row = await world.last()
    assert row.decision is not None
    assert (row.status, row.decision.reviewer, row.schema_version) == ("cancelled", "alice", "1.3.0")


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_rejection_takes_its_route_with_its_overrides(policy: CheckpointPolicy) -> None:
    """F014, F015, I010."""
    world = World()
    threads = approval(world, policy, on_reject="revise")
    await threads.run("t", Doc())
    result = await threads.resume("t", Answer(approved=False, by="bob", overrides={"n": 3}))
    assert isinstance(result, Completed)
    assert (result.state.trail, result.state.n) == (["draft", "approve", "revise"], 3)
    if policy is EVERY_NODE:
        claim = (await world.rows())[3]
        assert (await world.log())[2:4] == ["interrupted:approve>publish", "running:approve>revise"]
        assert json.loads(claim.frozen_state)["n"] == 3
        assert claim.decision is not None
        assert (claim.decision.is_approved, claim.wait, claim.resumed_at) == (False, None, None)
        assert claim.metadata == {"strata.hops": "2"}


async def test_a_rejection_without_a_route_goes_on() -> None:
    """F014."""
    world = World()
    threads = approval(world)
    await threads.run("t", Doc())
    assert isinstance(await threads.resume("t", Answer(approved=False)), Completed)
    assert world.ran[-1] == "publish"


async def test_reject_and_revise_comes_back_to_the_boundary() -> None:
    """F019."""
    world = World()
    graph = world.graph("draft", "publish")
    graph = world.graph()
    for name in ("draft", "approve", "publish", "revise"):
        world.trailing(graph, name)
    graph.edge("draft", "approve")
    graph.edge("approve", "publish")
    graph.edge("revise", "approve")
    graph.interrupt("approve", on_reject="revise")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    again = await threads.resume("t", Answer(approved=False))
    assert isinstance(again, Interrupted)
    result = await threads.resume("t")
    assert isinstance(result, Completed)
    assert result.state.trail == ["draft", "approve", "revise", "approve", "publish"]


async def test_a_boundary_without_edges_can_only_be_rejected() -> None:
    """F020."""
    world = World()
    graph = world.graph("ask")
    world.trailing(graph, "rejected")
    graph.interrupt("ask", on_reject="rejected")
    threads = world.threads(graph.compile())
    result = await threads.run("t", Doc())
    assert isinstance(result, Interrupted)
    assert result.next_node is None
    refused = await threads.resume("t")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.NO_NEXT_NODE
    assert refused.message == "checkpoint for thread 't' has no next_node to resume from"
    assert isinstance(await threads.resume("t", Answer(approved=False)), Completed)


async def test_an_answer_meant_for_another_boundary_is_refused() -> None:
    """worker.md 6: `boundary` says which one the caller has seen."""
    world = World()
    threads = approval(world)
    await threads.run("t", Doc())
    stale = await threads.resume("t", boundary="elsewhere")
    assert isinstance(stale, Refused)
    assert stale.code is RefusalCode.STALE
    assert isinstance(await threads.resume("t", boundary="approve"), Completed)


async def test_an_answer_to_a_boundary_does_not_retry_a_failure() -> None:
    world = World()
    graph = world.graph()
    world.failing(graph, "a", Fatal("no"))
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    refused = await threads.resume("t", boundary="a")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.NOT_WAITING


async def test_a_no_match_at_a_boundary_fails_without_a_row() -> None:
    """5.1."""
    world = World()
    graph = world.graph("ask")
    world.trailing(graph, "never")
    graph.edge("ask", "never", when=lambda _doc: False)
    graph.interrupt("ask")
    await world.threads(graph.compile()).run("t", Doc())
    assert await world.rows() == []


async def test_a_thread_whose_node_is_gone_fails_and_stays_resumable() -> None:
    """2.2: NodeNotFound; under EveryNode the claim doesn't stay `running`."""
    world = World()
    threads = approval(world, EVERY_NODE)
    await threads.run("t", Doc())
    changed = world.threads(world.graph("draft").compile(checkpoints=EVERY_NODE))
    result = await changed.resume("t")
    assert getattr(result, "message", "") == "node 'publish' not found"
    assert (await world.log())[-1] == "failed:publish>publish"
    assert isinstance(await threads.resume("t"), Completed)


async def test_a_timeouts_wait_is_on_the_row() -> None:
    """5.1: the due time is rounded up to a whole second."""
    world = World()
    world.clock.advance(0.9)
    threads = approval(world, timeout=timedelta(minutes=30))
    await threads.run("t", Doc())
    row = await world.last()
    assert row.wait is not None
    assert (row.wait.kind, row.wait.event_type, row.wait.wake_at) == ("human", None, "2026-01-02T03:34:06Z")
    assert row.schema_version == "1.5.0"
