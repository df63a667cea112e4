"""The retention driver of a worker: off unless set, counted, and never in the way."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import CancelToken
from outcrop.stores.errors import Unavailable
from outcrop.stores.record import ThreadState
from outcrop.stores.testing import FailingStore
from outcrop.worker.drivers.retention import RetentionDriver
from outcrop.worker.drivers.rounds import Rounds
from outcrop.worker.errors import SettingsInvalid
from outcrop.worker.metrics import Metrics
from outcrop.worker.settings import Settings, load_settings
from support.handling import World
from support.hosting import advance, settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from outcrop.engine.host import RetentionSettings
    from outcrop.stores.memory import MemoryStore


def load(**arguments: object) -> Settings:
    return load_settings(arguments, environment={})


def retention(**arguments: object) -> RetentionSettings:
    settings = load(**{"retention_older_than": "1d", **arguments}).retention
    assert settings is not None
    return settings


class Store(FailingStore):
    """A store that tells of each purge as it begins."""

    def __init__(self, store: MemoryStore, begun: Callable[[], None]) -> None:
        super().__init__(store)
        self._begun = begun

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        self._begun()
        return await super().purge(older_than, states=states, limit=limit)


class Worker:
    """The retention driver of a worker over the threads of a world, in its rounds."""

    def __init__(self, world: World, settings: RetentionSettings, *, draining: bool = False) -> None:
        self.metrics, self.stop = Metrics(), CancelToken()
        self.store = Store(world.store, self.stop.fire if draining else lambda: None)
        driver = RetentionDriver(
            self.store, settings, clock=world.clock, metrics=self.metrics, stop=self.stop
        )
        self._rounds = Rounds(
            "retention", driver.round, interval=settings.interval, clock=world.clock,
            uniform=lambda: 0.5, metrics=self.metrics,
        )  # fmt: skip

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._rounds.run(self.stop))

    def rounds(self, result: str) -> float:
        return self.metrics.value("outcrop_driver_rounds_total", driver="retention", result=result)

    @property
    def purged(self) -> float:
        return self.metrics.value("outcrop_threads_purged_total")


async def completed(world: World, *threads: str) -> None:
    process = world.process()
    for thread in threads:
        await process.handle(world.send(world.run(thread=thread)))


def test_it_is_off_unless_an_age_is_set() -> None:
    assert load().retention is None


def test_its_settings_come_from_all_layers() -> None:
    settings = load_settings(
        {"retention_older_than": "30d"},
        environment={
            "OUTCROP_RETENTION_STATES": "completed, ended,failed",
            "OUTCROP_RETENTION_INTERVAL": "5m",
        },
    ).retention
    assert settings is not None
    assert settings.states == ("completed", "ended", "failed")
    assert (settings.older_than, settings.interval) == (timedelta(days=30), timedelta(minutes=5))
    assert settings.batch_size == 1000
    assert retention().states == (ThreadState.COMPLETED, ThreadState.ENDED)
    assert retention().interval == timedelta(hours=1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"retention_older_than": "299s"}, "retention_older_than must be at least 10 lease_ttls: "),
        ({"retention_older_than": 0}, "retention_older_than"),
        ({"retention_older_than": "99999d"}, "retention_older_than"),
        ({"retention_older_than": "1d", "retention_states": "gone"}, "retention_states"),
        ({"retention_older_than": "1d", "retention_states": ""}, "retention_states"),
        ({"retention_states": "completed,running"}, "retention_states has running"),
        ({"retention_older_than": "1d", "retention_batch_size": 0}, "retention_batch_size"),
        ({"retention_older_than": "1d", "retention_batch_size": 1001}, "retention_batch_size"),
        ({"retention_older_than": "1d", "retention_interval": 0}, "retention_interval"),
    ],
)
def test_what_it_may_not_be_told_refuses_the_start(arguments: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(**arguments)
    assert told in str(caught.value)
    assert caught.value.code == "OUTCROP_WORKER_SETTINGS"


def test_ten_lease_ttls_are_enough() -> None:
    assert load(retention_older_than="300s").retention is not None
    assert load(retention_older_than="10s", lease_ttl="1s").retention is not None


async def test_it_purges_what_is_old_enough_every_interval_and_counts() -> None:
    world = World()
    await completed(world, "t0", "t1", "t2")
    worker = Worker(world, retention(retention_batch_size=2))
    running = worker.start()
    await settle()
    assert (worker.purged, worker.rounds("ok")) == (0, 1)
    await advance(world.clock, timedelta(days=1, hours=1).total_seconds())
    assert worker.purged == 3
    assert await world.store.load("t0") is None
    assert worker.rounds("ok") == 26
    worker.stop.fire()
    await running


async def test_a_failing_round_backs_off_is_told_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    worker = Worker(world, retention(retention_interval="1m"))
    for call in (1, 2):
        worker.store.fail("purge", Unavailable("no route to postgres://u:hunter2@db"), call=call)
    with caplog.at_level(logging.WARNING):
        running = worker.start()
        await advance(world.clock, 6 * 60)
    assert (worker.rounds("failed"), worker.rounds("ok")) == (2, 1)  # at 0, 2 and 6 minutes
    assert "hunter2" not in caplog.text
    worker.stop.fire()
    await running


async def test_two_replicas_purge_each_thread_once() -> None:
    world = World()
    await completed(world, *(f"t{number}" for number in range(10)))
    world.clock.advance(timedelta(days=2).total_seconds())
    workers = [Worker(world, retention(retention_batch_size=3)) for _ in range(2)]
    running = [worker.start() for worker in workers]
    await settle()
    for worker in workers:
        worker.stop.fire()
    await asyncio.gather(*running)
    assert sum(worker.purged for worker in workers) == 10


async def test_the_drain_ends_it_between_two_batches() -> None:
    world = World()
    await completed(world, "t0", "t1", "t2", "t3")
    world.clock.advance(timedelta(days=2).total_seconds())
    worker = Worker(world, retention(retention_batch_size=1), draining=True)
    await worker.start()
    assert worker.purged == 1
