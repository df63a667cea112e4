"""What the wake, recovery and retention drivers do to the threads of a store."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import CancelToken, NodeContext
from outcrop.engine.host import (
    Host,
    HostRefused,
    MemoryRetentionDriver,
    MemoryRetentionSettings,
    RecoveryDriver,
    RecoverySettings,
    RetentionDriver,
    RetentionSettings,
    Task,
    WakeDriver,
    WakeSettings,
)
from outcrop.stores.errors import Unavailable
from outcrop.stores.longterm import Embedding, InProcessLongTermStore, Record, RecordKey
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, OTHER, TTL, Doc, Gate, World, gated
from support.hosting import advance, hosting, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine import Threads
    from outcrop.engine.host import Driver

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def timed(world: World, *, gate: Gate | None = None, delay: timedelta = MINUTE) -> Threads[Doc]:
    """A timer, then `b` (behind the gate, if there is one)."""
    graph = world.graph("a")
    graph.timer("w", delay=delay)
    if gate is None:
        world.trailing(graph, "b")
    else:
        gated(graph, "b", gate)
    graph.edge("a", "w")
    graph.edge("w", "b")
    return world.threads(graph.compile(checkpoints=EVERY_NODE))


async def dead(world: World, *thread_ids: str, **options: Any) -> Threads[Doc]:
    """Threads whose process went away at `b`, and that a new process can bring on."""
    gate, graph = Gate(), world.graph("a", **options)
    gated(graph, "b", gate)
    graph.edge("a", "b")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    for thread_id in thread_ids:
        run = asyncio.create_task(threads.run(thread_id, Doc(), LEASED))
        await gate.reached.wait()
        gate.reached.clear()
        run.cancel()
        await asyncio.wait([run])
    gate.opened.set()
    return threads


async def test_nothing_wakes_until_it_is_due_then_once_within_an_interval() -> None:
    """O1."""
    world = World()
    threads = timed(world)
    await threads.run("t", Doc())
    async with hosting([WakeDriver(threads)], world.clock) as host:
        await advance(world.clock, 59)
        assert world.ran == ["a"]
        assert (host.status[0].name, host.status[0].rounds, host.status[0].threads) == ("wake:Doc", 12, 0)
        await advance(world.clock, 6)
        assert world.ran == ["a", "b"]
        await advance(world.clock, 60)
        assert world.ran == ["a", "b"]
        assert (host.status[0].threads, host.status[0].failures_in_a_row) == (1, 0)
    assert (await world.last()).status == "completed"


async def test_a_wake_round_goes_on_while_its_batches_are_full() -> None:
    """O1."""
    world = World()
    threads = timed(world)
    for number in range(5):
        await threads.run(f"t{number}", Doc())
    world.clock.advance(60)
    async with hosting([WakeDriver(threads, WakeSettings(batch_size=2))], world.clock) as host:
        assert (host.status[0].rounds, host.status[0].threads) == (1, 5)


async def test_full_batches_that_wake_nothing_end_a_round() -> None:
    """O1."""
    world = World()
    threads = timed(world)
    for number in range(2):
        await threads.run(f"t{number}", Doc())
        await world.memory.acquire_lease(f"t{number}", "somebody", timedelta(hours=1))
    world.clock.advance(60)
    driver = WakeDriver(threads, WakeSettings(batch_size=1), runs=LEASED)
    async with hosting([driver], world.clock) as host:
        assert (host.status[0].rounds, host.status[0].threads) == (1, 0)


async def test_a_dead_run_is_recovered() -> None:
    """O2."""
    world = World()
    threads = await dead(world, "t")
    assert await world.log() == ["running:->a", "running:a>b"]
    async with hosting([RecoveryDriver(threads, runs=OTHER)], world.clock) as host:
        assert host.status[0].name == "recovery:Doc"
        await advance(world.clock, 29)
        assert len(await world.log()) == 2
        await advance(world.clock, 1)
        assert await world.log() == ["running:->a", "running:a>b", "running:a>b", "completed:b>-"]
        assert host.status[0].threads == 1


async def test_a_recovery_round_goes_on_while_its_batches_are_full() -> None:
    """O2."""
    world = World()
    threads = await dead(world, "t0", "t1", "t2")
    world.clock.advance(61)
    settings = RecoverySettings(batch_size=2, stale_after=MINUTE)
    async with hosting([RecoveryDriver(threads, settings)], world.clock) as host:
        assert (host.status[0].rounds, host.status[0].threads) == (1, 3)


async def test_old_threads_go_in_batches_of_one_round_recent_and_waiting_ones_stay() -> None:
    """O3."""
    world = World()
    _, threads = world.line("a")
    for number in range(5):
        await threads.run(f"old{number}", Doc())
    await timed(world).run("waiting", Doc())
    world.clock.advance(DAY.total_seconds())
    await threads.run("recent", Doc())
    world.clock.advance(3600)
    driver = RetentionDriver(world.store, RetentionSettings(older_than=DAY, batch_size=2), clock=world.clock)
    async with hosting([driver], world.clock) as host:
        (status,) = host.status
        assert (status.name, status.rounds, status.threads) == ("retention", 1, 5)
        assert world.store.faults.calls["purge"] == 4  # the last one finds nothing
    for thread_id in ("waiting", "recent"):
        assert await world.memory.load(thread_id) is not None
    assert await world.memory.load("old0") is None


async def test_retention_takes_the_states_it_is_told() -> None:
    """O3."""
    world = World()
    _, threads = world.line("a")
    await threads.run("completed", Doc())
    await timed(world).run("waiting", Doc())
    world.clock.advance(2 * DAY.total_seconds())
    settings = RetentionSettings(older_than=DAY, states=("interrupted",))
    async with hosting([RetentionDriver(world.store, settings, clock=world.clock)], world.clock):
        assert await world.memory.load("waiting") is None
        assert await world.memory.load("completed") is not None


async def test_a_stop_between_two_batches_ends_the_round() -> None:
    """O3."""
    world, stop = World(), CancelToken()
    _, threads = world.line("a")
    for number in range(4):
        await threads.run(f"t{number}", Doc())
    world.clock.advance(2 * DAY.total_seconds())
    driver = RetentionDriver(world.store, RetentionSettings(older_than=DAY, batch_size=2), clock=world.clock)
    await driver.round(stop, lambda purged: stop.fire() if purged else None)
    assert await world.memory.load("t0") is None
    assert await world.memory.load("t3") is not None


@pytest.mark.parametrize("which", ["wake", "recovery", "retention"])
async def test_failing_rounds_back_off_and_tell_the_kind_but_not_the_message(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O4: in the first minute at 0, 10 and 30 s."""
    world = World()
    interval = timedelta(seconds=5)
    _, threads = world.line("a")
    drivers: dict[str, Driver] = {
        "wake": WakeDriver(threads, WakeSettings(interval=interval)),
        "recovery": RecoveryDriver(threads, RecoverySettings(interval=interval), runs=LEASED),
        "retention": RetentionDriver(
            world.store, RetentionSettings(interval=interval, older_than=DAY), clock=world.clock
        ),
    }
    method = "purge" if which == "retention" else "list_threads"
    for call in range(1, 4):
        world.store.fail(method, Unavailable("no route to postgres://u:hunter2@db"), call=call)
    with caplog.at_level(logging.WARNING):
        async with hosting([drivers[which]], world.clock) as host:
            await advance(world.clock, 60)
            (status,) = host.status
            assert (status.rounds, status.failures_in_a_row, status.last_failure) == (3, 3, "Unavailable")
            assert world.store.faults.calls[method] == 3
            await advance(world.clock, 10)
            (status,) = host.status
            assert (status.rounds, status.failures_in_a_row, status.last_failure) == (4, 0, None)
    assert "(Unavailable); the next is in 10 s" in caplog.text
    assert "hunter2" not in caplog.text + repr(status)


async def test_stopping_ends_a_waiting_driver_at_once() -> None:
    """O5."""
    world, stop = World(), CancelToken()
    running = asyncio.create_task(Host([WakeDriver(timed(world))], clock=world.clock).run(stop))
    await settle()
    stop.fire()
    await asyncio.wait_for(running, 1)


async def test_stopping_lets_the_run_in_flight_finish_and_starts_no_other() -> None:
    """O5."""
    world, stop, gate = World(), CancelToken(), Gate()
    threads = timed(world, gate=gate)
    for thread_id in ("t", "u"):
        await threads.run(thread_id, Doc())
    world.clock.advance(60)
    host = Host([WakeDriver(threads, WakeSettings(batch_size=1))], clock=world.clock)
    running = asyncio.create_task(host.run(stop))
    await gate.reached.wait()
    stop.fire()
    await settle()
    assert not running.done()
    gate.opened.set()
    await running
    states = sorted([(await world.last(thread)).status.value for thread in ("t", "u")])
    assert states == ["completed", "interrupted"]
    assert host.status[0].threads == 1


async def test_two_hosts_on_one_store_wake_a_thread_once() -> None:
    """O6."""
    world = World()
    both = [timed(world), timed(world)]
    for number in range(10):
        await both[0].run(f"t{number}", Doc())
    world.clock.advance(60)
    stop = CancelToken()
    hosts = [Host([WakeDriver(threads)], clock=world.clock) for threads in both]
    running = [asyncio.create_task(host.run(stop)) for host in hosts]
    await settle()
    stop.fire()
    await asyncio.gather(*running)
    assert sorted(world.ran) == ["a"] * 10 + ["b"] * 10
    assert sum(host.status[0].threads for host in hosts) == 10


def refused(world: World) -> Sequence[tuple[Driver, str]]:
    """Drivers that lack something, and what is said of each."""
    _, durable = world.line("a")
    _, plain = world.line("a", policy=BOUNDARIES)
    zero = timedelta()
    return [
        (
            WakeDriver(durable, WakeSettings(interval=zero)),
            "the wake driver's interval must be more than zero",
        ),
        (
            WakeDriver(durable, WakeSettings(batch_size=0)),
            "the wake driver's batch_size must be between 1 and 1000",
        ),
        (
            RecoveryDriver(durable, RecoverySettings(batch_size=1001), runs=LEASED),
            "the recovery driver's batch_size must be between 1 and 1000",
        ),
        (
            RecoveryDriver(plain, runs=LEASED),
            "the recovery driver for Doc needs a graph compiled with CheckpointPolicy::EveryNode: ",
        ),
        (RecoveryDriver(durable), "the recovery driver needs a lease in its run config or a stale_after: "),
        (
            RecoveryDriver(durable, RecoverySettings(stale_after=zero)),
            "the recovery driver needs a lease in its run config or a stale_after: ",
        ),
        (RecoveryDriver(durable, RecoverySettings(max_recoveries=0), runs=LEASED), "max_recoveries must be"),
        (RetentionDriver(world.store), "the retention driver needs an older_than: "),
        (
            RetentionDriver(world.store, RetentionSettings.model_construct(older_than=-DAY)),
            "the retention driver needs an older_than: ",
        ),
        (
            RetentionDriver(world.store, RetentionSettings(interval=zero, older_than=DAY)),
            "the retention driver's interval must be more than zero",
        ),
        (
            RetentionDriver(world.store, RetentionSettings(older_than=DAY, states=("completed", "gone"))),
            "the retention driver doesn't know the thread state 'gone'",
        ),
        (
            RetentionDriver(world.store, RetentionSettings(older_than=99_999 * DAY)),
            "the retention driver's older_than must be at most 36500 days",
        ),
        (Task("import", _nothing, zero), "the import driver's interval must be more than zero"),
    ]


async def _nothing(stop: CancelToken) -> None:
    """A task's work."""


@pytest.mark.parametrize("number", range(13))
async def test_what_a_driver_lacks_refuses_the_start(number: int) -> None:
    """O7."""
    world, started = World(), list[str]()

    async def note(stop: CancelToken) -> None:
        started.append("ran")

    driver, told = refused(world)[number]
    host = Host([Task("first", note), driver], clock=world.clock)
    with pytest.raises(HostRefused) as caught:
        await host.run(CancelToken())
    assert str(caught.value).startswith(told)
    assert caught.value.code == "OUTCROP_HOST_REFUSED"
    assert started == []
    assert host.status[0].rounds == 0


async def test_a_woken_thread_runs_with_the_drivers_options() -> None:
    world, owners = World(), list[str | None]()
    graph = world.graph("a")
    graph.timer("w", delay=MINUTE)

    @graph.node(name="b")
    async def look(doc: Doc, ctx: NodeContext) -> None:
        lease = await world.memory.get_lease("t")
        owners.append(None if lease is None else lease.owner)

    graph.edge("a", "w")
    graph.edge("w", "b")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    world.clock.advance(TTL.total_seconds() * 2)
    async with hosting([WakeDriver(threads, runs=LEASED)], world.clock):
        assert owners == ["w1"]


def record(name: str, tenant: str) -> Record:
    """A record of nothing much."""
    return Record(namespace="notes", tenant=tenant, id=name, embedding=Embedding("m", [1.0, 0.0]))


@pytest.mark.parametrize(("tenant", "left"), [(None, ["young"]), ("acme", ["old2", "old3", "old4", "young"])])
async def test_old_records_go_in_batches_per_tenant(tenant: str | None, left: list[str]) -> None:
    """O12."""
    world = World()
    store = InProcessLongTermStore(dimensions=2, clock=world.clock.now)
    for number in range(5):
        await store.upsert(record(f"old{number}", "acme" if number < 2 else "other"))
    world.clock.advance(2 * DAY.total_seconds())
    await store.upsert(record("young", "acme"))
    settings = MemoryRetentionSettings(older_than=DAY, batch_size=1, tenant=tenant)
    driver = MemoryRetentionDriver(store, settings, clock=world.clock)
    async with hosting([driver], world.clock) as host:
        (status,) = host.status
        assert (status.name, status.rounds, status.threads) == ("memory-retention", 1, 6 - len(left))
    names = [f"old{number}" for number in range(5)] + ["young"]
    tenants = ["acme", "acme", "other", "other", "other", "acme"]
    keys = [RecordKey(namespace="notes", tenant=of, id=name) for name, of in zip(names, tenants, strict=True)]
    assert [key.id for key in keys if await store.get(key) is not None] == left


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "the memory retention driver needs an older_than: "),
        ({"older_than": 0}, "the memory retention driver needs an older_than: "),
        (
            {"older_than": "1d", "interval": 0},
            "the memory retention driver's interval must be more than zero",
        ),
        ({"older_than": "1d", "batch_size": 0}, "the memory retention driver's batch_size must be between 1"),
        ({"older_than": "1d", "namespace": ""}, "the memory retention driver: the namespace is empty"),
        ({"older_than": "1d", "tenant": "x" * 257}, "the memory retention driver: the tenant is longer than"),
    ],
)
async def test_what_memory_retention_lacks_refuses_the_start(settings: dict[str, object], told: str) -> None:
    """O12."""
    driver = MemoryRetentionDriver(
        InProcessLongTermStore(dimensions=2), MemoryRetentionSettings.of(settings), clock=World().clock
    )
    with pytest.raises(HostRefused) as caught:
        await Host([driver]).run(CancelToken())
    assert str(caught.value).startswith(told)
