"""The drivers and the local timers: what they find, what they send, how often, and their rounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine.cancellation import CancelToken
from outcrop.stores import ThreadPage, UnreadableThread
from outcrop.stores.record import GraphIdentity
from outcrop.topics.codec import decode_command
from outcrop.topics.messages import OutcomeStatus, Recover, Wake
from outcrop.worker.drivers.dispatch import Dispatch, Sighting
from outcrop.worker.drivers.recovery import RecoveryDriver
from outcrop.worker.drivers.rounds import Rounds
from outcrop.worker.drivers.wake import WakeDriver
from outcrop.worker.due import DueTimers
from outcrop.worker.errors import PublishFailed, Undelivered
from outcrop.worker.metrics import Metrics
from support.handling import TOPIC, TTL, World
from support.log import MemoryBroker, MemoryOutbox
from support.rows import checkpoint, row, timer

if TYPE_CHECKING:
    from outcrop.topics.messages import AnyCommand


class Drivers:
    """Both drivers of one process of a world."""

    def __init__(self, world: World, owns: Any = lambda _thread: True) -> None:
        self.world = world
        self.broker = MemoryBroker()
        self.outbox = MemoryOutbox(self.broker)
        self.metrics = Metrics()
        self.process = world.process()
        self.wakes, self.recovers = self._dispatch(Wake, owns), self._dispatch(Recover, owns)
        self.wake = WakeDriver(world.store, self.process.registry, self.wakes, clock=world.clock)
        self.recovery = RecoveryDriver(
            world.store, self.process.registry, self.recovers, max_recoveries=3, metrics=self.metrics
        )

    def _dispatch(self, kind: type[Wake | Recover], owns: Any) -> Dispatch:
        return Dispatch(
            kind, self.outbox, topic=TOPIC, owns=owns, clock=self.world.clock,
            again_after=timedelta(seconds=30), metrics=self.metrics,
        )  # fmt: skip

    @property
    def sent(self) -> list[AnyCommand]:
        """What was produced, as the workers will read it."""
        return [decode_command(each.key, each.value, each.headers) for each in self.broker.published]

    @property
    def sightings(self) -> list[tuple[str, str, int]]:
        commands = (each for each in self.sent if isinstance(each, Wake | Recover))
        return [(each.type.value, each.thread_id, each.sequence) for each in commands]


@pytest.mark.parametrize("kind", ["wake", "recovery"])
async def test_a_row_that_cannot_be_read_keeps_nobody_from_the_others_and_is_told_once(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    drivers = Drivers(world)
    await world.store.save(checkpoint("interrupted", wait=timer("2020-01-01T00:00:00Z")))
    await world.store.save(checkpoint("running", thread_id="dead"))
    listed = world.store.list_threads
    unreadable = UnreadableThread(thread_id="broken", sequence=3, updated_at="", reason="a strange wait")

    async def with_another(query: Any) -> ThreadPage:
        return replace(await listed(query), unreadable=(unreadable,))

    world.store.list_threads = with_another  # type: ignore[method-assign]  # as another engine's row would
    for _ in range(2):
        await getattr(drivers, kind).round()
    assert drivers.sightings == [("wake", "t", 0) if kind == "wake" else ("recover", "dead", 0)]
    told = [record for record in caplog.records if record.getMessage() == "row_unreadable"]
    assert [vars(record)["fields"]["thread"] for record in told] == ["broken"]


async def test_due_threads_get_a_wake_that_fires_them() -> None:
    world = World()
    drivers = Drivers(world)
    await drivers.process.outcome(world.send(world.run("timer")))
    await drivers.wake.round()
    assert drivers.sightings == []
    world.clock.advance(300)
    await drivers.wake.round()
    assert drivers.sightings == [("wake", "t", 2)]
    fired = await drivers.process.outcome(world.send(drivers.sent[0]))
    assert fired.status is OutcomeStatus.COMPLETED
    assert drivers.metrics.value("outcrop_driver_commands_total", driver="wake") == 1


async def test_dead_threads_get_a_recover_that_continues_them() -> None:
    world = World()
    drivers = Drivers(world)
    world.hooks.crashes["b"] = 1
    await drivers.process.crash(world.send(world.run()))
    await drivers.recovery.round()
    assert drivers.sightings == [("recover", "t", 1)]
    recovered = await drivers.process.outcome(world.send(drivers.sent[0]))
    assert (recovered.status, recovered.command_type.value) == (OutcomeStatus.COMPLETED, "recover")


async def test_a_running_thread_under_a_live_lease_is_not_dead() -> None:
    world = World()
    drivers = Drivers(world)
    world.hooks.crashes["b"] = 1
    await drivers.process.crash(world.send(world.run()))
    await world.store.acquire_lease("t", "w9", TTL)
    await drivers.recovery.round()
    assert drivers.sightings == []


async def test_a_thread_recovered_too_often_is_reported_not_recovered() -> None:
    world = World()
    drivers = Drivers(world)
    await world.store.save(checkpoint(marks={"strata.recoveries": "3"}))
    await drivers.recovery.round()
    assert drivers.sightings == []
    assert drivers.metrics.value("outcrop_recoveries_exhausted") == 1


@pytest.mark.parametrize("driver", ["wake", "recovery"])
async def test_only_threads_of_owned_partitions_and_served_graphs(driver: str) -> None:
    world = World()
    drivers = Drivers(world, owns=lambda thread: thread != "theirs")
    row_of: dict[str, Any] = (
        {"status": "interrupted", "wait": timer("2026-01-01T00:00:00Z")} if driver == "wake" else {}
    )
    for thread in ("ours", "theirs"):
        await world.store.save(checkpoint(thread_id=thread, **row_of))
    await world.store.save(checkpoint(thread_id="strange", graph=GraphIdentity("strange"), **row_of))
    await getattr(drivers, driver).round()
    assert [thread for _, thread, _ in drivers.sightings] == ["ours"]


async def test_what_was_sent_is_sent_again_only_after_a_while() -> None:
    world = World()
    dispatch = Drivers(world)
    for _ in range(3):
        await dispatch.wakes.send([Sighting("t", 2), Sighting("t", 2)])
    assert len(dispatch.sent) == 1
    await dispatch.wakes.send([Sighting("t", 3)])
    assert len(dispatch.sent) == 2
    world.clock.advance(30)
    await dispatch.wakes.send([Sighting("t", 2)])
    assert len(dispatch.sent) == 3


async def test_what_could_not_be_sent_is_sent_in_the_next_round() -> None:
    drivers = Drivers(World())
    drivers.outbox.refuse = lambda record: Undelivered(record, "no broker", permanent=False)
    with pytest.raises(PublishFailed):
        await drivers.wakes.send([Sighting("t", 2)])
    drivers.outbox.refuse = lambda _: None
    await drivers.wakes.send([Sighting("t", 2)])
    assert len(drivers.sent) == 1


async def test_more_threads_than_a_page_are_all_found() -> None:
    world = World()
    drivers = Drivers(world)
    for number in range(1001):
        await world.store.save(checkpoint(thread_id=f"t{number}"))
    await drivers.recovery.round()
    assert len(drivers.sent) == 1001


async def test_a_local_timer_sends_its_wake_on_the_second() -> None:
    world = World()
    drivers = Drivers(world)
    timers = DueTimers(drivers.wakes, world.clock)
    timers.add(row(2, "interrupted", wait=timer("2026-01-02T03:09:05Z")))
    world.clock.advance(299.9)
    await world.settle()
    assert drivers.sent == []
    world.clock.advance(0.1)
    await world.settle()
    assert drivers.sightings == [("wake", "t", 2)]


async def test_a_thread_that_stopped_again_is_woken_for_its_latest_row_only() -> None:
    world = World()
    drivers = Drivers(world)
    timers = DueTimers(drivers.wakes, world.clock)
    for sequence in (2, 4, 2):
        timers.add(row(sequence, "interrupted", wait=timer("2026-01-02T03:04:10Z")))
    world.clock.advance(10)
    await world.settle()
    assert drivers.sightings == [("wake", "t", 4)]


async def test_local_timers_are_bounded_and_can_be_closed() -> None:
    world = World()
    drivers = Drivers(world)
    timers = DueTimers(drivers.wakes, world.clock, limit=1)
    for thread in ("t", "u"):
        timers.add(row(2, "interrupted", thread_id=thread, wait=timer("2026-01-02T03:04:10Z")))
    world.clock.advance(10)
    await world.settle()
    assert [thread for _, thread, _ in drivers.sightings] == ["t"]
    timers.add(row(3, "interrupted", wait=timer("2026-01-02T03:04:20Z")))
    await timers.close()
    world.clock.advance(20)
    await world.settle()
    assert len(drivers.sent) == 1


async def test_a_wake_that_could_not_be_sent_is_left_to_the_driver() -> None:
    world = World()
    drivers = Drivers(world)
    drivers.outbox.refuse = lambda record: Undelivered(record, "no broker", permanent=False)
    timers = DueTimers(drivers.wakes, world.clock)
    timers.add(row(2, "interrupted", wait=timer("2026-01-02T03:04:10Z")))
    world.clock.advance(10)
    await timers.close()
    drivers.outbox.refuse = lambda _: None
    await drivers.wakes.send([Sighting("t", 2)])
    assert len(drivers.sent) == 1


class Round:
    """A round that fails as told, and when each was."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.failing = False
        self.at: list[float] = []

    async def once(self) -> None:
        self.at.append(self.world.clock.monotonic())
        if self.failing:
            raise RuntimeError("the store is down")


async def test_rounds_start_at_once_double_their_wait_on_failure_and_stop() -> None:
    world, stop = World(), CancelToken()
    each, metrics = Round(world), Metrics()
    rounds = Rounds(
        "wake",
        each.once,
        interval=timedelta(seconds=5),
        clock=world.clock,
        uniform=lambda: 0.5,
        metrics=metrics,
    )
    running = asyncio.ensure_future(rounds.run(stop))
    await _advance(world, 11)
    assert each.at == pytest.approx([0, 5, 10])
    each.failing = True
    await _advance(world, 2000)
    waits = [after - before for before, after in zip(each.at[3:], each.at[4:], strict=False)]
    assert waits[:8] == pytest.approx([10, 20, 40, 80, 160, 300, 300, 300])
    each.failing = False
    await _advance(world, 301)
    assert each.at[-1] - each.at[-2] == pytest.approx(5)
    stop.fire()
    await running
    assert metrics.value("outcrop_driver_rounds_total", driver="wake", result="failed") > 0


@pytest.mark.parametrize(("drawn", "expected"), [(0.0, 27.0), (0.999999, 33.0)])
async def test_jitter_spreads_rounds_by_a_tenth(drawn: float, expected: float) -> None:
    world, stop = World(), CancelToken()
    each = Round(world)
    interval = timedelta(seconds=30)
    rounds = Rounds(
        "recovery", each.once, interval=interval, clock=world.clock, uniform=lambda: drawn, metrics=Metrics()
    )
    running = asyncio.ensure_future(rounds.run(stop))
    await _advance(world, 40)
    stop.fire()
    await running
    assert each.at[1] == pytest.approx(expected, abs=0.001)


async def _advance(world: World, seconds: float) -> None:
    until = world.clock.monotonic() + seconds
    while world.clock.monotonic() < until:
        await world.settle()
        due = world.clock.next_due
        world.clock.advance(min(until - world.clock.monotonic(), due if due is not None else seconds))
    await world.settle()
