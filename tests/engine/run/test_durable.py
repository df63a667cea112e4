"""Section I: durable runs and recovery."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    CancelToken,
    Completed,
    Failed,
    Fatal,
    Graph,
    Interrupted,
    NodeContext,
    RecoverOptions,
    RefusalCode,
    Refused,
    Retry,
    RunOptions,
    Skipped,
    Stopped,
    Threads,
    Transient,
)
from outcrop.engine.failpoints import armed
from outcrop.engine.metadata import recoveries_of
from support.engine import (
    BOUNDARIES,
    EVERY_NODE,
    LEASED,
    OTHER,
    TTL,
    Crash,
    Doc,
    Gate,
    World,
    crashing,
    gated,
)


async def crashed(
    world: World, *names: str, node: int = 2, thread_id: str = "t", **identity: Any
) -> Threads[Doc]:
    """A thread whose process died when its n-th node was about to run."""
    _, threads = world.line(*names, **identity)
    with armed(crashing("node.before", node)), pytest.raises(Crash):
        await threads.run(thread_id, Doc(), RunOptions(metadata={"tenant": "acme"}))
    return threads


async def test_three_nodes_leave_four_rows() -> None:
    """I001."""
    world = World()
    _, threads = world.line("A", "B", "C")
    result = await threads.run("t", Doc())
    assert isinstance(result, Completed)
    assert result.sequence == 3
    rows = await world.rows()
    assert await world.log() == ["running:->A", "running:A>B", "running:B>C", "completed:C>-"]
    assert ["".join(json.loads(row.frozen_state)["trail"]) for row in rows] == ["", "A", "AB", "ABC"]
    assert [row.metadata for row in rows] == [{"strata.hops": str(n)} for n in range(4)]
    assert [row.schema_version for row in rows] == ["1.7.0"] * 3 + ["1.0.0"]
    assert all(row.resumed_at is None for row in rows)
    assert [ctx.idempotency_key for ctx in world.contexts] == ["t/A#1", "t/B#2", "t/C#3"]


async def test_boundaries_leave_no_rows_and_keys_end_with_the_run() -> None:
    """I002, I033."""
    world = World()
    _, threads = world.line("A", "B", policy=BOUNDARIES)
    result = await threads.run("t", Doc(), RunOptions(run_id="run-1"))
    assert isinstance(result, Completed)
    assert result.sequence is None
    assert await world.rows() == []
    assert [ctx.idempotency_key for ctx in world.contexts] == ["t/A#1@run-1", "t/B#2@run-1"]


async def test_a_boundary_leaves_its_row_only() -> None:
    """I006, 6.3's example."""
    world = World()
    graph = world.graph("A", "B", "C")
    graph.interrupt("A")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    assert ((await world.last()).metadata or {})["strata.hops"] == "1"
    await threads.resume("t")
    assert await world.log() == [
        "running:->A", "interrupted:A>B", "running:A>B", "running:B>C", "completed:C>-",
    ]  # fmt: skip
    assert all(row.resumed_at is None for row in await world.rows())
    assert [ctx.idempotency_key for ctx in world.contexts] == ["t/A#1", "t/B#2", "t/C#3"]


async def test_a_routing_gap_leaves_a_failed_row_and_can_be_resumed() -> None:
    """I008."""
    world = World()
    graph = world.graph("A")
    world.trailing(graph, "B")
    graph.edge("A", "B", when=lambda doc: doc.n > 0)
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    result = await threads.run("t", Doc())
    assert isinstance(result, Failed)
    assert result.sequence == 1
    row = await world.last()
    assert await world.log() == ["running:->A", "failed:A>A"]
    assert row.metadata == {
        "strata.hops": "0",
        "error": "no outgoing edge condition matched for node 'A'",
        "error_kind": "fatal",
    }
    assert json.loads(row.frozen_state)["trail"] == []
    assert isinstance(await threads.resume("t", Answer(overrides={"n": 1})), Completed)
    assert (await world.log())[2:] == ["running:A>A", "running:A>B", "completed:B>-"]


async def test_a_panic_leaves_a_failed_row_and_still_propagates() -> None:
    """I009."""

    class Panic(BaseException):
        pass

    world = World()
    graph = world.graph("A")

    @graph.node(retry=Retry(max_retries=3), fallback="A")
    async def panics(_doc: Doc) -> None:
        raise Panic("out of memory")

    graph.edge("A", panics)
    with pytest.raises(Panic):
        await world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc(), LEASED)
    assert (await world.log())[-1] == "failed:panics>panics"
    assert (await world.last()).metadata == {
        "strata.hops": "1", "error": "Panic: out of memory", "error_kind": "fatal",
    }  # fmt: skip
    assert await world.memory.get_lease("t") is None


async def test_a_running_thread_takes_no_resume_and_no_signal() -> None:
    """I011."""
    world = World()
    threads = await crashed(world, "a", "b")
    for refused in (await threads.resume("t"), await threads.signal("t", "paid")):
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.RUNNING
        assert refused.message == (
            "thread 't' is running: only a waiting, failed or cancelled thread can be resumed"
        )
    assert len(await world.rows()) == 2


async def test_a_recovery_runs_the_node_in_flight_again() -> None:
    """I013."""
    world = World()
    threads = await crashed(world, "a", "b", "c")
    result = await threads.recover("t")
    assert isinstance(result, Completed)
    assert result.state.trail == ["a", "b", "c"]
    assert await world.log() == [
        "running:->a", "running:a>b", "running:a>b", "running:b>c", "completed:c>-",
    ]  # fmt: skip
    assert [(ctx.idempotency_key, ctx.is_recovery) for ctx in world.contexts] == [
        ("t/a#1", False), ("t/b#2", True), ("t/c#3", False),
    ]  # fmt: skip
    assert [(row.metadata or {}).get("strata.recoveries") for row in await world.rows()] == [
        None, None, "1", None, None,
    ]  # fmt: skip
    assert all((row.metadata or {})["tenant"] == "acme" for row in await world.rows())
    assert all(ctx.metadata == {"tenant": "acme"} for ctx in world.contexts)


async def test_a_recovery_of_the_first_node_has_its_key() -> None:
    """7.5."""
    world = World()
    threads = await crashed(world, "a", node=1)
    await threads.recover("t")
    assert await world.log() == ["running:->a", "running:->a", "completed:a>-"]
    assert [ctx.idempotency_key for ctx in world.contexts] == ["t/a#1"]


async def test_every_attempt_and_the_fallback_know_of_the_recovery() -> None:
    """7.4: until a node of the level commits."""
    world = World()
    graph = world.graph("a")
    world.failing(graph, "b", Transient("1"), Transient("2"), retry=Retry(max_retries=1), fallback="c")
    world.trailing(graph, "c")
    world.trailing(graph, "d")
    graph.edge("a", "b")
    graph.edge("c", "d")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    with armed(crashing("node.before", 2)), pytest.raises(Crash):
        await threads.run("t", Doc())
    await threads.recover("t")
    assert [(ctx.node, ctx.is_recovery) for ctx in world.contexts[1:]] == [
        ("b", True), ("b", True), ("c", True), ("d", False),
    ]  # fmt: skip


async def test_a_crash_after_approval_keeps_the_decision_and_overrides() -> None:
    """I014."""
    world = World()
    graph = world.graph("a", "b", "c")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads.resume("t", Answer(by="alice", overrides={"n": 5}))
    result = await threads.recover("t")
    assert isinstance(result, Completed)
    assert result.state.n == 5
    told = [(ctx.is_recovery, ctx.decision is not None and ctx.decision.reviewer) for ctx in world.contexts]
    assert told == [(False, False), (True, "alice"), (False, "alice")]


async def test_a_waiting_thread_needs_no_recovery() -> None:
    """I018."""
    world = World()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    refused = await threads.recover("t")
    assert isinstance(refused, Refused)
    assert refused.message == "thread 't' is not running: its latest checkpoint is interrupted"
    assert isinstance(await threads.resume("t"), Completed)


async def test_what_cannot_be_recovered() -> None:
    """I020."""
    world = World()
    threads = await crashed(world, "a", "b", id="ours", version="1")
    _, boundaries = world.line("a", "b", policy=BOUNDARIES, id="ours", version="1")
    refused = await boundaries.recover("t")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.NOT_DURABLE
    _, other = world.line("a", "b", id="other", version="1")
    refused = await other.recover("t")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.IDENTITY
    refused = await threads.recover("nobody")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.NO_THREAD
    assert len(await world.rows()) == 2


async def test_a_live_lease_refuses_a_recovery() -> None:
    """I021."""
    world = World()
    threads = await crashed(world, "a", "b")
    await world.memory.acquire_lease("t", "w9", TTL)
    for options in (RunOptions(), OTHER):
        refused = await threads.recover("t", options)
        assert isinstance(refused, Refused)
        assert refused.message == "thread 't' is held by 'w9' until 2026-01-02T03:04:35Z"
    world.clock.advance(30)
    assert isinstance(await threads.recover("t", OTHER), Completed)
    assert await world.memory.get_lease("t") is None


async def test_of_two_recoveries_one_runs() -> None:
    """I022."""
    world = World()
    threads = await crashed(world, "a", "b")
    load = world.store.load

    async def slow(thread_id: str) -> Any:
        row = await load(thread_id)
        await asyncio.sleep(0)
        return row

    world.store.load = slow  # type: ignore[method-assign]  # both have loaded the same row
    results = await asyncio.gather(threads.recover("t"), threads.recover("t"))
    (refused,) = [result for result in results if isinstance(result, Refused)]
    assert refused.message == (
        "thread 't' changed before it could be recovered: "
        "its run went on, or another recovery got there first"
    )
    assert world.ran == ["a", "b"]


async def test_a_sweep_skips_live_leases_and_recovers_expired_ones() -> None:
    """I023."""
    world = World()
    threads = await crashed(world, "a", "b")
    await world.memory.acquire_lease("t", "w9", TTL)
    report = await threads.recover_stale(RecoverOptions(options=OTHER))
    assert report.skipped == [Skipped("t", "it is held by 'w9' until 2026-01-02T03:04:35Z")]
    world.clock.advance(30)
    report = await threads.recover_stale(RecoverOptions(options=OTHER))
    (recovered,) = report.recovered
    assert (recovered.thread_id, recovered.at, recovered.recoveries) == ("t", ("b",), 1)
    assert isinstance(recovered.result, Completed)


async def test_a_sweep_without_a_lease_needs_an_age() -> None:
    """I024."""
    world = World()
    threads = await crashed(world, "a", "b")
    report = await threads.recover_stale()
    assert report.refusal is not None
    assert report.refusal.startswith(
        "recover_stale needs RecoverOptions.stale_after when its runs have no lease"
    )
    options = RecoverOptions(stale_after=timedelta(minutes=1))
    world.clock.advance(60)
    assert (await threads.recover_stale(options)).recovered == []
    world.clock.advance(1)
    assert len((await threads.recover_stale(options)).recovered) == 1


async def test_a_sweeps_stop_token_lets_the_recovery_in_flight_finish() -> None:
    """I025."""
    world, stop, gate = World(), CancelToken(), Gate()
    graph = world.graph("a")
    gated(graph, "b", gate)
    graph.edge("a", "b")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    for thread_id in ("t", "u"):
        with armed(crashing("node.before", 2)), pytest.raises(Crash):
            await threads.run(thread_id, Doc())
    options = RecoverOptions(options=OTHER, stop=stop)
    sweep = asyncio.create_task(threads.recover_stale(options))
    await gate.reached.wait()
    stop.fire()
    gate.opened.set()
    assert [type(one.result) for one in (await sweep).recovered] == [Completed]
    assert (await threads.recover_stale(options)).recovered == []
    assert len((await threads.recover_stale(RecoverOptions(options=OTHER))).recovered) == 1


async def test_a_sweep_filters_and_its_limit_counts_recovered_threads() -> None:
    """I026."""
    world = World()
    for number in range(3):
        threads = await crashed(world, "a", "b", thread_id=f"t{number}", id="ours")
    await crashed(world, "a", "b", thread_id="x", id="theirs")
    await world.memory.acquire_lease("t2", "w9", TTL)
    none = await threads.recover_stale(RecoverOptions(options=OTHER, metadata={"tenant": "other"}))
    assert (none.recovered, none.skipped) == ([], [])
    report = await threads.recover_stale(RecoverOptions(options=OTHER, limit=1))
    assert [one.thread_id for one in report.recovered] == ["t1"]
    assert [one.thread_id for one in report.skipped] == ["t2"]
    assert (await world.last("x")).status == "running"


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (RecoverOptions(options=OTHER, max_recoveries=0), "max_recoveries must be at least 1"),
        (RecoverOptions(options=OTHER, limit=0), "a driver's limit must be between 1 and 1000, not 0"),
    ],
)
async def test_a_sweep_with_bad_options_is_refused(options: RecoverOptions, refusal: str) -> None:
    """7.3."""
    _, threads = World().line("a")
    assert (await threads.recover_stale(options)).refusal == refusal


async def test_recoveries_are_counted_until_a_node_commits() -> None:
    """I027, I028."""
    world = World()
    threads = await crashed(world, "a", "b")
    for _ in range(2):
        with armed(crashing("node.before", 1)), pytest.raises(Crash):
            await threads.recover("t")
    limited = RecoverOptions(options=OTHER, max_recoveries=2)
    report = await threads.recover_stale(limited)
    assert report.skipped == [Skipped("t", "it was recovered 2 time(s) without a node completing")]
    assert isinstance(await threads.recover("t"), Completed)
    assert [recoveries_of(row) for row in await world.rows()] == [0, 0, 1, 2, 3, 0]


async def test_a_failing_recovery_leaves_no_count() -> None:
    """6.3: removed from the failing row."""
    world = World()
    graph = world.graph("a")
    world.trailing(graph, "b")
    graph.edge("a", "b", when=lambda doc: doc.n > 0)
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads.run("t", Doc())
    await threads.recover("t")
    assert (await world.log())[-1] == "failed:a>a"
    assert "strata.recoveries" not in ((await world.last()).metadata or {})


async def test_loops_number_every_visit() -> None:
    """7.5: the third visit is another execution."""
    world, keys = World(), list[str]()
    graph = Graph(Doc)

    @graph.node
    async def visit(doc: Doc, ctx: NodeContext) -> None:
        doc.n += 1
        keys.append(ctx.idempotency_key)

    graph.edge(visit, visit, when=lambda doc: doc.n < 3)
    world.trailing(graph, "end")
    graph.edge(visit, "end")
    await world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc())
    assert keys == ["t/visit#1", "t/visit#2", "t/visit#3"]


async def test_a_run_can_be_stopped_after_its_next_commit() -> None:
    """The issue's handover: the row stays `running`, the lease is free, another goes on."""
    world, stop, gate = World(), CancelToken(), Gate()
    graph = Graph(Doc)
    gated(graph, "a", gate)
    world.trailing(graph, "b")
    graph.edge("a", "b")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(lease=LEASED.lease, stop=stop)))
    await gate.reached.wait()
    stop.fire()
    gate.opened.set()
    assert await run == Stopped(thread_id="t", next_node="b", state=Doc(trail=["a"]), sequence=1)
    assert await world.log() == ["running:->a", "running:a>b"]
    assert await world.memory.get_lease("t") is None
    assert isinstance(await threads.recover("t", OTHER), Completed)
    assert world.ran == ["b"]


async def test_a_fresh_run_stops_before_its_first_node() -> None:
    world, stop = World(), CancelToken()
    stop.fire()
    _, threads = world.line("a")
    result = await threads.run("t", Doc(), RunOptions(stop=stop))
    assert result == Stopped(thread_id="t", next_node="a", state=Doc(), sequence=0)
    assert world.ran == []


async def test_a_recovery_runs_its_node_before_it_stops() -> None:
    """protocol-flaws F14: a handover never adds to the count of recoveries."""
    world, stop = World(), CancelToken()
    threads = await crashed(world, "a", "b", "c")
    stop.fire()
    result = await threads.recover("t", RunOptions(stop=stop))
    assert isinstance(result, Stopped)
    assert (result.next_node, world.ran) == ("c", ["a", "b"])
    assert recoveries_of(await world.last()) == 0


async def test_waiting_and_completing_win_over_stopping_and_boundaries_dont_stop() -> None:
    world, stop = World(), CancelToken()
    stop.fire()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    assert isinstance(await threads.recover("t"), Refused)
    await threads.resume("t", Answer(), RunOptions(stop=stop))
    assert (await world.log())[-1] == "completed:b>-"
    _, boundaries = world.line("a", "b", policy=BOUNDARIES)
    assert isinstance(await boundaries.run("u", Doc(), RunOptions(stop=stop)), Completed)


async def test_a_failed_thread_that_fails_again_leaves_one_row_each() -> None:
    """I007, I010."""
    world = World()
    graph = world.graph()
    world.failing(graph, "a", Fatal("1"), Fatal("2"))
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    await threads.resume("t")
    assert await world.log() == ["running:->a", "failed:a>a", "running:a>a", "failed:a>a"]
    assert not isinstance(await threads.resume("t"), Interrupted)
