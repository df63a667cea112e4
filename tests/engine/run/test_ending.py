"""Section H: ending threads, and cancelling what a dead run left behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelReason,
    CancelToken,
    Fatal,
    Interrupted,
    RefusalCode,
    Refused,
    RunOptions,
    Threads,
)
from outcrop.engine.failpoints import armed
from outcrop.stores.record import Status, Wait, WaitKind
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, OTHER, TTL, Crash, Doc, World, crashing

ONLY = "only a waiting, failed or cancelled thread can be ended"


def asking(world: World, **identity: Any) -> Threads[Doc]:
    graph = world.graph("a", "b", **identity)
    graph.interrupt("a")
    return world.threads(graph.compile())


async def crashed(world: World, node: int = 2) -> Threads[Doc]:
    """A durable thread `t` of `a`, `b`, `c` whose process died in its n-th node."""
    _, threads = world.line("a", "b", "c")
    with armed(crashing("node.before", node)), pytest.raises(Crash):
        await threads.run("t", Doc(), RunOptions(metadata={"tenant": "acme"}))
    return threads


async def test_ending_a_waiting_thread() -> None:
    """H001."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc(), RunOptions(metadata={"tenant": "acme", "team": "x"}))
    world.clock.advance(5)
    result = await threads.end("t", by="alice", options=RunOptions(metadata={"team": "y"}))
    assert result == Cancelled(
        thread_id="t", reason=CancelReason.ENDED, node="a", state=Doc(trail=["a"]), stopped_at=("a",),
        sequence=1,
    )  # fmt: skip
    row = await world.last()
    assert await world.log() == ["interrupted:a>b", "ended:a>-"]
    assert (row.schema_version, row.created_at) == ("1.4.0", "2026-01-02T03:04:10Z")
    assert row.metadata == {
        "tenant": "acme", "team": "y", "strata.end_reason": "requested", "strata.ended_by": "alice",
    }  # fmt: skip
    assert world.ran == ["a"]


async def test_ending_a_failed_thread_keeps_the_decision_and_drops_the_failure() -> None:
    """H003."""
    world = World()
    graph = world.graph("a")
    world.failing(graph, "b", Fatal("no"))
    graph.edge("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    await threads.resume("t", Answer(by="alice"))
    await threads.end("t")
    row = await world.last()
    assert row.decision is not None
    assert row.decision.reviewer == "alice"
    assert row.metadata == {"strata.end_reason": "requested"}


async def test_ending_a_cancelled_thread_drops_its_reason() -> None:
    """H004."""
    world, token = World(), CancelToken()
    token.fire()
    _, threads = world.line("a", policy=BOUNDARIES)
    await threads.run("t", Doc(), RunOptions(cancellation=token))
    await threads.end("t")
    assert (await world.last()).metadata == {"strata.end_reason": "requested"}


async def test_ending_twice_tells_the_same_and_takes_no_lease() -> None:
    """H005, J005."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    first = await threads.end("t", options=LEASED)
    second = await threads.end("t", options=LEASED)
    assert first == second
    assert len(await world.rows()) == 2
    assert world.store.faults.calls["acquire_lease"] == 1


async def test_an_ended_thread_cannot_be_resumed() -> None:
    """H006."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    await threads.end("t")
    refused = await threads.resume("t")
    assert refused == Refused(
        thread_id="t",
        code=RefusalCode.ENDED,
        message="thread 't' was ended: an ended thread can't be resumed",
    )


async def test_what_cannot_be_ended() -> None:
    """H007."""
    world = World()
    threads = asking(world)
    missing = await threads.end("t")
    assert isinstance(missing, Refused)
    assert missing.message == "no checkpoint found for thread 't'"
    await threads.run("t", Doc())
    await threads.resume("t")
    resumed = await threads.end("t")
    assert isinstance(resumed, Refused)
    assert resumed.message == (
        f"thread 't' was resumed at 2026-01-02T03:04:05Z and may still be running: {ONLY}"
    )
    _, durable = world.line("a")
    await durable.run("done", Doc())
    completed = await durable.end("done")
    assert isinstance(completed, Refused)
    assert completed.message == f"thread 'done' has completed: {ONLY}"


async def test_an_end_races_with_a_resume_and_with_another_end() -> None:
    """H008: it looks again, up to three times."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    load, racers = world.store.load, [threads.resume("t")]

    async def raced(thread_id: str) -> Any:
        row = await load(thread_id)
        if racers:
            await racers.pop()
        return row

    world.store.load = raced  # type: ignore[method-assign]  # somebody gets in between
    refused = await threads.end("t")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.ALREADY_RESUMED
    await threads.run("u", Doc())
    racers.append(threads.end("u", by="first"))
    assert isinstance(await threads.end("u", by="second"), Cancelled)
    assert ((await world.last("u")).metadata or {})["strata.ended_by"] == "first"
    assert len(await world.rows("u")) == 2


async def test_an_end_that_keeps_losing_gives_up() -> None:
    """7.1."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    load = world.store.load

    async def moved(thread_id: str) -> Any:
        row = await load(thread_id)
        await world.memory.save(row.checkpoint)  # type: ignore[union-attr]  # there is one
        return row

    world.store.load = moved  # type: ignore[method-assign]  # somebody gets in between
    refused = await threads.end("t")
    assert refused == Refused(
        thread_id="t",
        code=RefusalCode.LOST_RACE,
        message="thread 't' kept changing while it was being ended",
    )
    assert world.store.faults.calls["load"] == 3


async def test_ending_a_dead_running_thread() -> None:
    """I029: at the node that was to run, with the state before it."""
    world = World()
    threads = await crashed(world)
    result = await threads.end("t")
    assert isinstance(result, Cancelled)
    assert (result.node, result.state.trail, result.stopped_at) == ("b", ["a"], ("b",))
    assert await world.log() == ["running:->a", "running:a>b", "ended:b>-"]
    refused = await threads.recover("t")
    assert isinstance(refused, Refused)
    assert refused.message == "thread 't' is not running: its latest checkpoint is ended"


async def test_a_running_thread_under_a_live_lease_is_not_ended() -> None:
    """I029."""
    world = World()
    threads = await crashed(world)
    await world.memory.acquire_lease("t", "w9", TTL)
    for options in (RunOptions(), OTHER):
        refused = await threads.end("t", options=options)
        assert isinstance(refused, Refused)
        assert (refused.code, refused.message) == (
            RefusalCode.HELD,
            "thread 't' is held by 'w9' until 2026-01-02T03:04:35Z",
        )
        assert refused.held_by is not None
        assert refused.held_by.owner == "w9"


async def test_every_level_of_another_engines_row_ends() -> None:
    """H002, G016: rows that nest are ended whole, without their graphs."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    row = await world.last()
    child = replace(
        row, thread_id="a", suspended_node="inner", next_node="next",
        wait=Wait(WaitKind.TIMER, None, "2026-01-02T03:04:06Z"),
    )  # fmt: skip
    await world.memory.save(replace(row, nested=child, schema_version="1.5.0"))
    result = await threads.end("t")
    assert isinstance(result, Cancelled)
    assert result.stopped_at == ("a", "inner")
    ended = await world.last()
    assert await world.log() == [
        "interrupted:a>b", "interrupted:a>b / interrupted:inner>next", "ended:a>- / ended:inner>-",
    ]  # fmt: skip
    assert ended.nested is not None
    assert (ended.nested.wait, ended.nested.metadata) == (None, {"strata.end_reason": "requested"})


async def test_cancelling_a_dead_running_thread() -> None:
    """worker.md 6: the row a live run would have left; it can be resumed."""
    world = World()
    threads = await crashed(world)
    result = await threads.cancel("t", LEASED)
    assert result == Cancelled(
        thread_id="t", reason=CancelReason.REQUESTED, node="b", state=Doc(trail=["a"]),
        stopped_at=("b",), sequence=2,
    )  # fmt: skip
    assert await world.log() == ["running:->a", "running:a>b", "cancelled:b>b"]
    assert (await world.last()).metadata == {
        "tenant": "acme", "strata.hops": "1", "cancel_reason": "requested",
    }  # fmt: skip
    await threads.resume("t")
    assert (await world.log())[-1] == "completed:c>-"


async def test_cancelling_anything_else_is_refused() -> None:
    world = World()
    threads = asking(world)
    assert getattr(await threads.cancel("t"), "code", None) is RefusalCode.NO_THREAD
    await threads.run("t", Doc())
    refused = await threads.cancel("t")
    assert refused == Refused(
        thread_id="t",
        code=RefusalCode.NOT_RUNNING,
        message="thread 't' is not running: its latest checkpoint is interrupted",
    )
    held = World()
    threads = await crashed(held)
    await held.memory.acquire_lease("t", "w9", TTL)
    assert getattr(await threads.cancel("t"), "code", None) is RefusalCode.HELD
    assert getattr(await threads.cancel("t", OTHER), "code", None) is RefusalCode.HELD


async def test_a_cancel_that_loses_its_race_writes_nothing() -> None:
    world = World()
    threads = await crashed(world)
    load = world.store.load

    async def moved(thread_id: str) -> Any:
        row = await load(thread_id)
        await world.memory.save(replace(row.checkpoint, suspended_node="b", next_node="c"))  # type: ignore[union-attr]  # there is one
        return row

    world.store.load = moved  # type: ignore[method-assign]  # the run went on
    assert getattr(await threads.cancel("t"), "code", None) is RefusalCode.LOST_RACE
    assert (await world.last()).status is Status.RUNNING


async def test_an_end_is_not_cut_short() -> None:
    """7.1: no token, no deadline."""
    world, token = World(), CancelToken()
    threads = asking(world)
    await threads.run("t", Doc())
    token.fire()
    options = RunOptions(cancellation=token, deadline=world.clock.now())
    result = await threads.end("t", options=options)
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.ENDED


async def test_concurrent_verbs_on_one_row_have_one_winner() -> None:
    """I012, H008."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    load = world.store.load

    async def slow(thread_id: str) -> Any:
        row = await load(thread_id)
        await asyncio.sleep(0)
        return row

    world.store.load = slow  # type: ignore[method-assign]  # all of them load the same row
    results = await asyncio.gather(*(threads.resume("t") for _ in range(3)))
    refused = [result for result in results if isinstance(result, Refused)]
    assert len(refused) == 2
    assert {result.message for result in refused} == {
        "checkpoint for thread 't' changed before it could be resumed: another resume or end got there first"
    }
    assert not any(isinstance(result, Interrupted) for result in results)
