"""Cancellations, timeouts and lost leases that strike inside subgraphs and groups."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import (
    Answer,
    Backoff,
    Cancelled,
    CancelReason,
    CancelToken,
    CheckpointPolicy,
    Fatal,
    Graph,
    Jitter,
    NodeContext,
    RefusalCode,
    Retry,
    RunOptions,
    Transient,
)
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, OTHER, Doc, Gate, World, gated, told
from support.fan_outs import Watch, gather, settle
from support.levels import Nested, done, failed, metadata, refused, three_deep, versions, waiting

if TYPE_CHECKING:
    from outcrop.engine import RunResult

POLICIES = list(CheckpointPolicy)


def cancelled(result: RunResult[Doc]) -> Cancelled[Doc]:
    assert isinstance(result, Cancelled), result
    return result


def gate_below(world: World, gate: Gate) -> Graph[Doc]:
    """`first`, a node that waits at the gate, `last`."""
    child = world.graph("first")
    gated(child, "wait", gate)
    world.trailing(child, "last")
    child.edge("first", "wait")
    child.edge("wait", "last")
    return child


@pytest.mark.parametrize("policy", POLICIES)
async def test_cancelled_in_a_child_the_thread_goes_on_there(policy: CheckpointPolicy) -> None:
    """D014, D015: the input mapper and the child's earlier nodes don't run again; once only."""
    world, gate, token = World(), Gate(), CancelToken()
    case = Nested(gate_below(world, gate), world=world, policy=policy)
    threads = case.threads()
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(cancellation=token)))
    await gate.reached.wait()
    token.fire()
    result = cancelled(await run)
    assert (result.node, result.reason) == ("Work", CancelReason.REQUESTED)
    assert result.stopped_at == ("Work", "wait")
    assert result.state == Doc(trail=["before"])
    row = await world.last()
    assert told(row) == "cancelled:Work>Work / cancelled:wait>wait"
    assert [metadata(level) for level in row.levels()] == [{"cancel_reason": "requested"}] * 2
    assert versions(row) == ["1.2.0", "1.2.0"]
    gate.opened.set()
    resumed = done(await threads.resume("t", Answer(overrides={"n": 4})))
    assert resumed == Doc(trail=["before", "Work/first", "Work/wait", "Work/last", "after"], n=4)
    assert world.ran == ["before", "first", "last", "after"]
    assert len(case.entered) == 1
    code = RefusalCode.ALREADY_RESUMED if policy is BOUNDARIES else RefusalCode.COMPLETED
    refused(await threads.resume("t"), code)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_cancellation_reaches_a_grandchild(policy: CheckpointPolicy) -> None:
    """D016."""
    world, gate, token = World(), Gate(), CancelToken()
    threads, _ = three_deep(world, gate_below(world, gate), policy)
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(cancellation=token)))
    await gate.reached.wait()
    token.fire()
    result = cancelled(await run)
    assert result.stopped_at == ("Work", "Inner", "wait")
    assert (await world.last()).waiting_at == result.stopped_at
    gate.opened.set()
    assert done(await threads.resume("t")).trail[-1] == "Work/Inner/last"


async def test_a_deadline_reaches_a_child() -> None:
    world, gate = World(), Gate()
    case = Nested(gate_below(world, gate), world=world)
    deadline = world.clock.now() + timedelta(seconds=5)
    run = asyncio.create_task(case.threads().run("t", Doc(), RunOptions(deadline=deadline)))
    await gate.reached.wait()
    world.clock.advance(5)
    assert cancelled(await run).reason is CancelReason.DEADLINE
    assert [metadata(level) for level in (await world.last()).levels()] == [{"cancel_reason": "deadline"}] * 2


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_subgraph_nodes_timeout_stops_its_child_where_a_resume_goes_on(
    policy: CheckpointPolicy,
) -> None:
    """D017."""
    world, gate = World(), Gate()
    case = Nested(gate_below(world, gate), world=world, policy=policy, timeout=timedelta(seconds=2))
    threads = case.threads()
    run = asyncio.create_task(threads.run("t", Doc()))
    await gate.reached.wait()
    world.clock.advance(2)
    assert failed(await run).message == "node 'Work' timed out after 2000 ms"
    row = await world.last()
    assert told(row) == "failed:Work>Work / cancelled:wait>wait"
    assert versions(row) == ["1.2.0", "1.2.0"]
    assert metadata(row)["error_kind"] == "transient"
    assert row.nested is not None
    assert metadata(row.nested) == {"cancel_reason": "timeout"}
    gate.opened.set()
    assert done(await threads.resume("t")).trail[-1] == "after"
    assert world.ran == ["before", "first", "last", "after"]


async def test_a_timed_out_child_is_retried_from_its_entry() -> None:
    world, gate = World(), Gate()
    case = Nested(
        gate_below(world, gate), world=world, timeout=timedelta(seconds=2), retry=Retry(max_retries=1)
    )
    run = asyncio.create_task(case.threads().run("t", Doc()))
    await gate.reached.wait()
    gate.opened.clear()
    world.clock.advance(2)
    await settle()
    gate.opened.set()
    assert done(await run).trail[-1] == "after"
    assert world.ran == ["before", "first", "first", "last", "after"]
    assert len(case.entered) == 2


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_resume_that_starts_cancelled_keeps_the_overrides_below(policy: CheckpointPolicy) -> None:
    """D018: no node runs, and the answer isn't lost."""
    world = World()
    child = world.graph("approve", "send")
    child.interrupt("approve")
    case = Nested(child, world=world, policy=policy)
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    token = CancelToken()
    token.fire()
    result = await threads.resume(
        "t", Answer(overrides={"n": 8}, levels={"": {"note": "outer"}}), RunOptions(cancellation=token)
    )
    assert cancelled(result).stopped_at == ("Work", "send")
    row = await world.last()
    assert told(row) == "cancelled:Work>Work / cancelled:send>send"
    assert row.nested is not None
    assert row.nested.decision is not None
    assert row.nested.frozen_state == '{"trail":["approve"],"n":8,"note":null}'
    assert "send" not in world.ran
    assert done(await threads.resume("t")) == Doc(
        trail=["before", "Work/approve", "Work/send", "after"], n=8, note="outer"
    )


async def test_a_groups_timeout_covers_all_of_it() -> None:
    """D013: its message names the group as the node."""
    world = World()
    graph, gate = world.graph("before"), Gate()
    group = graph.group("Checks", reduce=gather, timeout=timedelta(seconds=3))

    @group.branch
    async def quick(doc: Doc) -> None:
        doc.trail.append("quick")

    @group.branch
    async def slow(_doc: Doc) -> None:
        await gate()

    graph.edge("before", "Checks")
    run = asyncio.create_task(world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc()))
    await gate.reached.wait()
    world.clock.advance(3)
    result = failed(await run)
    assert result.message == "node 'Checks' timed out after 3000 ms"
    assert told(await world.last()) == "failed:Checks>Checks"


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_parent_backs_off_by_its_childs_hint_and_rows_say_it_at_every_level(
    policy: CheckpointPolicy,
) -> None:
    """C023, C024."""
    world, watch, child = World(), Watch(), Graph(Doc)
    hints = [Transient("busy", retry_after=1.5), Transient("busy", retry_after=2.5)]
    world.failing(child, "shaky", *hints)
    backoff = Backoff(initial=0.1, max=60.0, jitter=Jitter.NONE)
    case = Nested(child, world=world, policy=policy, retry=Retry(max_retries=1, backoff=backoff))
    run = asyncio.create_task(case.threads(telemetry=watch).run("t", Doc()))
    await settle()
    assert world.clock.next_due == 1.5
    world.clock.advance(1.5)
    failed(await run)
    levels = (await world.last()).levels()
    assert [(level.metadata or {})["strata.retry_after_ms"] for level in levels] == ["2500"] * 2


async def test_without_a_hint_no_row_says_one() -> None:
    """C024."""
    world, child = World(), Graph(Doc)
    world.failing(child, "broken", Fatal("no"))
    failed(await Nested(child, world=world).threads().run("t", Doc()))
    row = await world.last()
    assert all("strata.retry_after_ms" not in (level.metadata or {}) for level in row.levels())


async def test_a_lease_lost_below_stops_the_child() -> None:
    """J011: and writes nothing."""
    world, gate = World(), Gate()
    case = Nested(gate_below(world, gate), world=world)
    threads = case.threads()
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    before = await world.entries()
    lease = await world.memory.get_lease("t")
    assert lease is not None
    await world.memory.release_lease(lease)
    assert OTHER.lease is not None
    await world.memory.acquire_lease("t", OTHER.lease.owner, OTHER.lease.ttl)
    world.clock.advance(10)
    result = cancelled(await run)
    assert result.reason is CancelReason.LEASE_LOST
    assert result.stopped_at == ("Work", "wait")
    assert result.sequence is None
    assert await world.entries() == before


async def test_firing_a_childs_own_token_stops_nothing() -> None:
    """D022 below."""
    world, child = World(), Graph(Doc)

    @child.node(name="x")
    async def fire(_doc: Doc, ctx: NodeContext) -> None:
        ctx.cancellation.fire()

    assert done(await Nested(child, world=world).threads().run("t", Doc())).trail == ["before", "after"]
