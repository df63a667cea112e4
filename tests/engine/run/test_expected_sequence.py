"""Verbs that name the row they follow: `expected_sequence`, and runs that must be the first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    CancelToken,
    CheckpointPolicy,
    Completed,
    Failed,
    Interrupted,
    RefusalCode,
    Refused,
    RunOptions,
    Threads,
)
from outcrop.stores.errors import CorruptRow, Unavailable
from outcrop.stores.port import EMPTY_LOG
from support.engine import BOUNDARIES, LEASED, TTL, Doc, World


def asking(world: World, policy: CheckpointPolicy = BOUNDARIES) -> Threads[Doc]:
    graph = world.graph("a", "b")
    graph.interrupt("a")
    return world.threads(graph.compile(checkpoints=policy))


def first(**options: Any) -> RunOptions:
    return RunOptions(expected_sequence=EMPTY_LOG, **options)


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
@pytest.mark.parametrize("lease", [None, LEASED.lease])
async def test_a_run_can_be_made_the_threads_first(policy: CheckpointPolicy, lease: Any) -> None:
    """protocol-flaws F6."""
    world = World()
    threads = asking(world, policy)
    assert isinstance(await threads.run("t", Doc(), first(lease=lease)), Interrupted)
    rows, ran = await world.log(), list(world.ran)
    refused = await threads.run("t", Doc(), first(lease=lease))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.EXISTS
    assert (await world.log(), world.ran) == (rows, ran)
    assert await world.memory.get_lease("t") is None


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_run_can_follow_a_row_that_it_names(policy: CheckpointPolicy) -> None:
    world = World()
    threads = asking(world, policy)
    await threads.run("t", Doc())
    latest = (await world.entries())[-1].sequence
    stale = await threads.run("t", Doc(), RunOptions(expected_sequence=latest + 1))
    assert isinstance(stale, Refused)
    assert stale.code is RefusalCode.STALE
    result = await threads.run("t", Doc(), RunOptions(expected_sequence=latest))
    assert isinstance(result, Interrupted)


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_of_two_first_runs_one_runs(policy: CheckpointPolicy) -> None:
    """Under leases the log is looked at by whoever holds the thread."""
    world = World()
    threads = asking(world, policy)
    results = await asyncio.gather(*(threads.run("t", Doc(), first(lease=LEASED.lease)) for _ in range(3)))
    assert [isinstance(result, Interrupted) for result in results].count(True) == 1
    assert {result.code for result in results if isinstance(result, Refused)} <= {
        RefusalCode.HELD,
        RefusalCode.EXISTS,
    }


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_the_log_is_looked_at_under_the_lease(policy: CheckpointPolicy) -> None:
    """protocol-flaws F6: whoever had the thread until now may have run it whole."""
    world, other = World(), World()
    threads = asking(world, policy)
    await asking(other, policy).run("t", Doc())
    row, acquire = await other.last(), world.store.acquire_lease

    async def after_another(*args: Any, **options: Any) -> Any:
        await world.memory.save(row)
        return await acquire(*args, **options)

    world.store.acquire_lease = after_another  # type: ignore[method-assign]  # it was held until now
    refused = await threads.run("t", Doc(), first(lease=LEASED.lease))
    assert isinstance(refused, Refused)
    assert (refused.code, world.ran, len(await world.rows())) == (RefusalCode.EXISTS, [], 1)
    assert await world.memory.get_lease("t") is None  # who is refused has taken nothing


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_first_save_of_unknown_result_is_asked_again(policy: CheckpointPolicy) -> None:
    """protocol-flaws F7: the row is there once, and the run isn't refused by itself."""
    world = World()
    threads = asking(world, policy)
    world.store.fail("save", Unavailable("gone"), after=True)
    run = asyncio.create_task(threads.run("t", Doc(), first(lease=LEASED.lease)))
    while not run.done():
        await asyncio.sleep(0)
        if not run.done() and (due := world.clock.next_due) is not None and due <= 1:
            world.clock.advance(due)
    assert isinstance(run.result(), Interrupted)
    assert (await world.log()).count("interrupted:a>b") == 1


async def test_every_other_verb_refuses_another_latest_row() -> None:
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    options = RunOptions(expected_sequence=4)
    for refused in (
        await threads.resume("t", Answer(), options),
        await threads.signal("t", "x", None, options),
        await threads.wake("t", options),
        await threads.end("t", options=options),
        await threads.cancel("t", options),
    ):
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.STALE
    options = RunOptions(expected_sequence=0)
    assert isinstance(await threads.resume("t", Answer(), options), Completed)


@pytest.mark.parametrize("error", [Unavailable("gone"), CorruptRow("bad row"), ValueError("a bug")])
async def test_a_store_that_fails_to_load_refuses_every_verb(error: Exception) -> None:
    """A verb tells what its store said, and raises nothing."""
    world = World()
    _, threads = world.line("a")
    verbs = (threads.resume, threads.wake, threads.end, threads.cancel, threads.recover)
    for verb in verbs:
        world.store.fail("load", error)
        refused = await verb("t")
        assert refused == Refused(thread_id="t", code=RefusalCode.STORE, message=str(error))


async def test_a_first_save_that_fails_without_a_lease_fails_the_run() -> None:
    world = World()
    _, threads = world.line("a")
    world.store.fail("save", Unavailable("gone"))
    result = await threads.run("t", Doc())
    assert isinstance(result, Failed)
    assert (result.message, result.sequence, world.ran) == ("gone", None, [])


async def test_a_failed_lease_lookup_refuses_a_verb_on_a_running_thread() -> None:
    world = World()
    _, threads = world.line("a", "b")
    stop = CancelToken()
    stop.fire()
    await threads.run("t", Doc(), RunOptions(stop=stop))
    world.store.fail("get_lease", Unavailable("gone"))
    assert getattr(await threads.recover("t"), "code", None) is RefusalCode.STORE
    await world.memory.acquire_lease("t", "w9", TTL)
    assert getattr(await threads.recover("t"), "code", None) is RefusalCode.HELD
