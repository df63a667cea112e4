"""Section J: running under a lease."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelReason,
    CancelToken,
    CheckpointPolicy,
    Completed,
    Failed,
    Fatal,
    Interrupted,
    LeaseOptions,
    RefusalCode,
    Refused,
    RunOptions,
    Stopped,
    Threads,
)
from outcrop.stores.errors import LeasesUnsupported, Unavailable
from outcrop.stores.port import EMPTY_LOG, Acquired
from outcrop.stores.record import Lease, Status
from support.engine import (
    BOUNDARIES,
    EVERY_NODE,
    LEASED,
    OTHER,
    TTL,
    Doc,
    Gate,
    World,
    gated,
)


def gated_world(policy: CheckpointPolicy = BOUNDARIES) -> tuple[World, Threads[Doc], Gate]:
    """A thread of `a`, then `slow` that waits at a gate, then `b`."""
    world, gate = World(), Gate()
    graph = world.graph("a")
    gated(graph, "slow", gate)
    world.trailing(graph, "b")
    graph.edge("a", "slow")
    graph.edge("slow", "b")
    return world, world.threads(graph.compile(checkpoints=policy)), gate


def asking(world: World, policy: CheckpointPolicy = BOUNDARIES) -> Threads[Doc]:
    graph = world.graph("a", "b")
    graph.interrupt("a")
    return world.threads(graph.compile(checkpoints=policy))


async def take_over(world: World, thread_id: str = "t") -> Lease:
    """Another worker takes the thread, its lease having run out on the store's clock."""
    live = await world.memory.get_lease(thread_id)
    if live is not None:
        await world.memory.release_lease(live)
    taken = await world.memory.acquire_lease(thread_id, "w2", TTL)
    assert isinstance(taken, Acquired)
    return taken.lease


async def test_the_lease_is_held_during_the_run_and_freed_at_its_end() -> None:
    """J001."""
    world, threads, gate = gated_world()
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    held = await world.memory.get_lease("t")
    assert held == Lease("t", "w1", 1, world.clock.now() + TTL)
    gate.opened.set()
    await run
    assert await world.memory.get_lease("t") is None


async def test_a_held_thread_runs_nothing() -> None:
    """J002: not for the same owner's name either."""
    world, threads, gate = gated_world()
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    world.clock.advance(0.5)
    for options in (LEASED, OTHER):
        refused = await threads.run("t", Doc(), options)
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.HELD
        assert refused.message == "thread 't' is held by 'w1' until 2026-01-02T03:04:35Z"
    assert (world.ran, await world.rows()) == (["a"], [])
    gate.opened.set()
    await run


async def test_a_held_thread_takes_no_verb_and_stays_resumable() -> None:
    """J003."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    lease = await take_over(world)
    for refused in (
        await threads.resume("t", Answer(), LEASED),
        await threads.signal("t", "x", None, LEASED),
        await threads.end("t", options=LEASED),
    ):
        assert isinstance(refused, Refused)
        assert refused.code in (RefusalCode.HELD, RefusalCode.NOT_WAITING)
    assert len(await world.rows()) == 1
    await world.memory.release_lease(lease)
    assert isinstance(await threads.resume("t", Answer(), LEASED), Completed)


async def test_a_refused_verb_takes_no_lease() -> None:
    """J004."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc(), LEASED)
    await threads.resume("t", Answer(overrides={"n": "many"}), LEASED)
    await threads.resume("nobody", Answer(), LEASED)
    assert world.store.faults.calls["acquire_lease"] == 1
    assert (await take_over(world)).token == 2


async def test_a_long_run_keeps_its_lease_by_renewing() -> None:
    """J006."""
    world, threads, gate = gated_world()
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    for _ in range(12):
        world.clock.advance(10)
        await asyncio.sleep(0)
    assert world.store.faults.calls["renew_lease"] == 12
    gate.opened.set()
    assert isinstance(await run, Completed)
    assert world.clock.next_due is None


@pytest.mark.parametrize(("failures", "is_lost"), [(2, False), (3, True)])
async def test_a_ttl_of_failed_renewals_loses_the_lease(failures: int, is_lost: bool) -> None:
    """J007."""
    world, threads, gate = gated_world()
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    for call in range(failures):
        world.store.fail("renew_lease", Unavailable("gone"), call=call + 1)
    for _ in range(3):
        world.clock.advance(10)
        await asyncio.sleep(0)
    gate.opened.set()
    result = await run
    assert isinstance(result, Cancelled if is_lost else Completed)
    if is_lost:
        assert (result.reason, await world.rows()) == (CancelReason.LEASE_LOST, [])  # type: ignore[union-attr]  # cancelled


async def test_a_success_resets_the_tolerance() -> None:
    """J007."""
    world, threads, gate = gated_world()
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    for call in (1, 2, 4, 5):
        world.store.fail("renew_lease", Unavailable("gone"), call=call)
    for _ in range(6):
        world.clock.advance(10)
        await asyncio.sleep(0)
    gate.opened.set()
    assert isinstance(await run, Completed)


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_takeover_stops_the_run_at_the_next_renewal(policy: CheckpointPolicy) -> None:
    """J008."""
    world, threads, gate = gated_world(policy)
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    before = await world.log()
    await take_over(world)
    world.clock.advance(10)
    result = await run
    assert result == Cancelled(
        thread_id="t", reason=CancelReason.LEASE_LOST, node="slow", state=Doc(trail=["a"]),
        stopped_at=("slow",), sequence=None,
    )  # fmt: skip
    assert await world.log() == before
    live = await world.memory.get_lease("t")
    assert live is not None
    assert live.owner == "w2"


@pytest.mark.parametrize(
    "ending", ["interrupted", "failed", "cancelled", "completed", "running", "no way on", "no json"]
)
async def test_a_fenced_row_is_a_lost_lease(ending: str) -> None:
    """J009, I030: nothing is written, whatever the row would have been."""
    world, token, gate = World(), CancelToken(), Gate()
    graph = world.graph()

    @graph.node(name="x")
    async def work(doc: Doc) -> None:
        await gate()
        doc.n = 1
        if ending == "failed":
            raise Fatal("no")
        if ending == "cancelled":
            token.fire()
            await asyncio.sleep(0)

        if ending == "no json":
            doc.note = "\ud800"

    if ending == "interrupted":
        graph.interrupt("x")
    if ending == "no way on":
        graph.edge("x", "x", when=lambda _doc: False)
    if ending == "running":
        world.trailing(graph, "y")
        graph.edge("x", "y")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    options = RunOptions(lease=LEASED.lease, cancellation=token)
    run = asyncio.create_task(threads.run("t", Doc(), options))
    await gate.reached.wait()
    await take_over(world)
    gate.opened.set()
    result = await run
    assert result == Cancelled(
        thread_id="t", reason=CancelReason.LEASE_LOST, node="x", state=Doc(), stopped_at=("x",),
        sequence=None,
    )  # fmt: skip
    assert await world.log() == ["running:->x"]


async def test_a_run_that_completes_without_a_row_still_says_that_its_lease_is_lost() -> None:
    """8: not even completed."""
    world, gate = World(), Gate()
    graph = world.graph()
    gated(graph, "x", gate)
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc(), LEASED))
    await gate.reached.wait()
    world.clock._move(31)  # the process was stopped: no timer gets to fire
    gate.opened.set()
    result = await run
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.LEASE_LOST


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_fenced_stamp_runs_nothing(policy: CheckpointPolicy) -> None:
    """J010."""
    world = World()
    threads = asking(world, policy)
    await threads.run("t", Doc())
    rows, acquire = len(await world.rows()), world.store.acquire_lease

    async def taken_over(*args: Any, **options: Any) -> Any:
        answer = await acquire(*args, **options)
        await take_over(world)
        return answer

    world.store.acquire_lease = taken_over  # type: ignore[method-assign]  # another got it in between
    resumed = await threads.resume("t", Answer(), LEASED)
    assert isinstance(resumed, Cancelled)
    assert (resumed.reason, resumed.node) == (CancelReason.LEASE_LOST, "b")
    live = await world.memory.get_lease("t")
    assert live is not None
    await world.memory.release_lease(live)
    ended = await threads.end("t", options=LEASED)
    assert isinstance(ended, Cancelled)
    assert ended.reason is CancelReason.LEASE_LOST
    assert (len(await world.rows()), world.ran) == (rows, ["a"])


async def test_a_store_without_leases_refuses_leased_runs_only() -> None:
    """J012."""
    world = World()
    _, threads = world.line("a")
    world.store.fail("acquire_lease", LeasesUnsupported())
    refused = await threads.run("t", Doc(), LEASED)
    assert refused == Refused(
        thread_id="t", code=RefusalCode.STORE, message="this checkpoint store has no leases"
    )
    assert isinstance(await threads.run("t", Doc()), Completed)


async def test_a_recovery_needs_no_leases() -> None:
    """7.2: a store without leases skips the check for a live one."""
    world = World()
    _, threads = world.line("a", "b")
    await threads.run("t", Doc(), RunOptions(stop=_fired()))
    world.store.fail("get_lease", LeasesUnsupported())
    assert isinstance(await threads.recover("t"), Completed)


def _fired() -> CancelToken:
    token = CancelToken()
    token.fire()
    return token


@pytest.mark.parametrize(
    ("lease", "message"),
    [
        (LeaseOptions(" ", TTL), "a run's lease needs an owner"),
        (LeaseOptions("w", timedelta()), "a run's lease ttl must be at least 1 millisecond"),
    ],
)
async def test_bad_lease_options_refuse_every_verb(lease: LeaseOptions, message: str) -> None:
    """J013."""
    world = World()
    threads = asking(world)
    options = RunOptions(lease=lease)
    for refused in (
        await threads.run("t", Doc(), options),
        await threads.resume("t", Answer(), options),
        await threads.end("t", options=options),
        await threads.cancel("t", options),
        await threads.recover("t", options),
    ):
        assert refused == Refused(thread_id="t", code=RefusalCode.INVALID, message=message)
    assert world.store.faults.calls.total() == 0


async def test_a_process_that_was_stopped_for_a_ttl_finds_out_before_it_saves() -> None:
    """worker.md 5 (SIGSTOP): its own monotonic clock tells, whatever the renewer has noticed."""
    world, threads, gate = gated_world(EVERY_NODE)

    async def hangs(*_: Any) -> Any:
        await asyncio.Event().wait()

    world.store.renew_lease = hangs  # type: ignore[method-assign, assignment]  # a renewal that never comes back
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    saves = world.store.faults.calls["save"]
    world.clock.advance(30)
    gate.opened.set()
    result = await run
    assert isinstance(result, Cancelled)
    assert (result.reason, result.node) == (CancelReason.LEASE_LOST, "slow")
    assert world.store.faults.calls["save"] == saves
    assert world.store.faults.calls["release_lease"] == 0


async def test_a_stopped_process_starts_no_other_node() -> None:
    """worker.md 5: the clock is looked at before each node too, and before each retry."""
    world = World()
    graph = world.graph("a")
    world.trailing(graph, "b")

    def while_stopped(_doc: Doc) -> bool:
        world.clock._move(31)  # and no timer gets to fire
        return True

    graph.edge("a", "b", when=while_stopped)
    threads = world.threads(graph.compile())
    result = await threads.run("t", Doc(), LEASED)
    assert isinstance(result, Cancelled)
    assert (result.reason, result.node, world.ran) == (CancelReason.LEASE_LOST, "b", ["a"])


async def test_a_dropped_run_stops_renewing_and_leaves_its_lease() -> None:
    """8: dropping isn't releasing."""
    world, threads, gate = gated_world()
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    await gate.reached.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await world.memory.get_lease("t") is not None
    assert world.clock.next_due is None


async def test_a_caller_that_lost_the_thread_leaves_no_row_and_frees_the_lease() -> None:
    """worker.md 8: a lost partition's runs stop as on a lost lease."""
    world, threads, gate = gated_world()
    token = CancelToken()
    run = asyncio.create_task(threads.run("t", Doc(), RunOptions(lease=LEASED.lease, cancellation=token)))
    await gate.reached.wait()
    token.fire(CancelReason.LEASE_LOST)
    result = await run
    assert isinstance(result, Cancelled)
    assert (result.reason, await world.rows()) == (CancelReason.LEASE_LOST, [])
    assert await world.memory.get_lease("t") is None


async def test_a_failing_release_changes_nothing() -> None:
    """8: errors are ignored; the lease expires by itself."""
    world = World()
    _, threads = world.line("a", "b")
    world.store.fail("release_lease", Unavailable("gone"))
    assert isinstance(await threads.run("t", Doc(), RunOptions(lease=LEASED.lease, stop=_fired())), Stopped)
    assert await world.memory.get_lease("t") is not None


async def test_a_run_costs_its_saves_and_one_round_trip_to_start() -> None:
    """The last save frees the thread: nothing is asked of the store after it."""
    world = World()
    _, threads = world.line("a", "b", "c")
    options = RunOptions(lease=LEASED.lease, expected_sequence=EMPTY_LOG)
    assert isinstance(await threads.run("t", Doc(), options), Completed)
    assert world.store.faults.calls == {"acquire_lease": 1, "save": 4}
    assert await world.memory.get_lease("t") is None


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_resume_costs_a_load_of_the_row_and_one_of_its_notes_more(policy: CheckpointPolicy) -> None:
    world = World()
    threads = asking(world, policy)
    await threads.run("t", Doc(), LEASED)
    world.store.faults.calls.clear()
    await threads.resume("t", Answer(), LEASED)
    calls = dict(world.store.faults.calls)
    released = {} if policy is EVERY_NODE else {"release_lease": 1}  # its last row is the stamp
    reads = {"load": 1, "get_notes": 1}
    assert calls == reads | {"acquire_lease": 1, "save": 2 if policy is EVERY_NODE else 1} | released
    assert await world.memory.get_lease("t") is None


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_renewal_beside_the_last_save_does_not_keep_the_thread(is_over: bool) -> None:
    """It may reach the store after the save and take the thread again."""
    world = World()
    threads = asking(world)
    save, renew, late = world.store.save, world.store.renew_lease, asyncio.Event()

    async def renewed(*args: Any) -> Any:
        await late.wait()
        return await renew(*args)

    async def during_a_renewal(*args: Any, **options: Any) -> Any:
        world.clock.advance(TTL.total_seconds() / 3)
        await asyncio.sleep(0)
        answer = await save(*args, **options)
        late.set()
        if is_over:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return answer

    world.store.renew_lease = renewed  # type: ignore[method-assign, assignment]  # slower than the save
    world.store.save = during_a_renewal  # type: ignore[method-assign]  # a renewal is due meanwhile
    assert isinstance(await threads.run("t", Doc(), LEASED), Interrupted)
    assert world.store.faults.calls["renew_lease"] == 1
    assert await world.memory.get_lease("t") is None
    assert world.clock.next_due is None


async def test_a_last_save_whose_answer_was_lost_is_found_though_another_took_the_thread() -> None:
    """The thread was free from that save on."""
    world = World()
    threads = asking(world)
    save = world.store.save

    async def taken_meanwhile(*args: Any, **options: Any) -> Any:
        try:
            return await save(*args, **options)
        except Unavailable:
            assert isinstance(await world.memory.acquire_lease("t", "w2", TTL), Acquired)
            raise

    world.store.fail("save", Unavailable("gone"), after=True)
    world.store.save = taken_meanwhile  # type: ignore[method-assign]  # after the row got there
    options = RunOptions(lease=LEASED.lease, expected_sequence=EMPTY_LOG)
    result = await driven(world, asyncio.create_task(threads.run("t", Doc(), options)))
    assert isinstance(result, Interrupted)
    assert result.sequence == 0


@pytest.mark.parametrize("after", [False, True])
async def test_a_save_of_unknown_result_is_asked_again(after: bool) -> None:
    """worker.md 5: whether it happened or not, the row is there once."""
    world = World()
    _, threads = world.line("a", "b")
    world.store.fail("save", Unavailable("gone"), call=2, after=after)
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    result = await driven(world, run)
    assert isinstance(result, Completed)
    assert await world.log() == ["running:->a", "running:a>b", "completed:b>-"]
    assert world.ran == ["a", "b"]


async def driven(world: World, run: asyncio.Task[Any]) -> Any:
    """Let the run go on, moving time whenever it waits for that."""
    while not run.done():
        await asyncio.sleep(0)
        if not run.done() and (due := world.clock.next_due) is not None and due <= 1:
            world.clock.advance(due)
    return run.result()


async def test_a_store_that_stays_away_loses_the_lease() -> None:
    """worker.md 10: saves are tried until the lease could have expired."""
    world = World()
    _, threads = world.line("a", "b")
    started = world.clock.monotonic()
    for call in range(2, 60):
        world.store.fail("save", Unavailable("gone"), call=call)
    for call in range(1, 9):
        world.store.fail("renew_lease", Unavailable("gone"), call=call)
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    while not run.done():
        await asyncio.sleep(0)
        if not run.done() and (due := world.clock.next_due) is not None:
            world.clock.advance(due)
    result = run.result()
    assert isinstance(result, Cancelled)
    assert (result.reason, result.state) == (CancelReason.LEASE_LOST, Doc())
    assert 29 <= world.clock.monotonic() - started <= 31
    assert await world.log() == ["running:->a"]


async def test_somebody_elses_row_after_an_unknown_answer_is_a_lost_thread() -> None:
    """worker.md 5: the row after the expected one isn't ours."""
    world = World()
    _, threads = world.line("a", "b")
    save = world.store.save

    async def other_row(row: Any, **kwargs: Any) -> Any:
        if row.status is Status.RUNNING and row.suspended_node == "a" and not done:
            done.append(True)
            await world.memory.save((await world.rows())[0])
            raise Unavailable("gone")
        return await save(row, **kwargs)

    done = list[bool]()
    world.store.save = other_row  # type: ignore[method-assign, assignment]  # an unleased writer in between
    result = await driven(world, asyncio.create_task(threads.run("t", Doc(), LEASED)))
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.LEASE_LOST
    assert await world.log() == ["running:->a", "running:->a"]


async def test_a_failure_that_finds_another_row_under_its_lease_is_a_lost_thread() -> None:
    """Somebody wrote without a lease: what this run came to is nobody's outcome."""
    world, gate = World(), Gate()
    graph = world.graph()
    gated(graph, "x", gate)
    graph.edge("x", "x", when=lambda _doc: False)
    run = asyncio.create_task(world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc(), LEASED))
    await gate.reached.wait()
    await world.memory.save(await world.last())
    gate.opened.set()
    result = await run
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.LEASE_LOST


async def test_without_a_lease_a_failed_save_fails_the_run_at_once() -> None:
    """worker.md 5, 6.3: the failed row may still be written."""
    world = World()
    _, threads = world.line("a", "b")
    world.store.fail("save", Unavailable("gone"), call=2)
    result = await threads.run("t", Doc())
    assert isinstance(result, Failed)
    assert (result.kind, result.message, result.sequence) == ("execution_aborted", "gone", 1)
    assert await world.log() == ["running:->a", "failed:a>a"]
    world.store.fail("save", Unavailable("gone"), call=2, after=True)
    result = await threads.run("u", Doc())
    assert isinstance(result, Failed)
    assert result.sequence is None
    assert await world.log("u") == ["running:->a", "running:a>b"]


async def test_an_unleased_run_that_is_overtaken_fails_and_touches_nothing() -> None:
    """Every save names the sequence it follows, leased or not."""
    world, threads, gate = gated_world(EVERY_NODE)
    run = asyncio.create_task(threads.run("t", Doc()))
    await gate.reached.wait()
    await world.memory.save(await world.last())
    gate.opened.set()
    result = await run
    assert isinstance(result, Failed)
    assert result.message == "thread 't' changed while it ran: another run or an end got there first"
    assert await world.log() == ["running:->a", "running:a>slow", "running:a>slow"]
