"""The drivers' rounds on real stores, each driver over a connection of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import CancelToken, Graph, LeaseOptions, ManualClock, RunOptions, Threads
from outcrop.engine.host import (
    RecoveryDriver,
    RecoverySettings,
    RetentionDriver,
    RetentionSettings,
    WakeDriver,
    WakeSettings,
)
from outcrop.stores.url import open_store
from support.engine import EVERY_NODE, Doc
from support.storages import KINDS, Places

if TYPE_CHECKING:
    from outcrop.engine import CompiledGraph
    from outcrop.engine.host import Driver
    from outcrop.stores.port import Store

DAY = timedelta(days=1)
THREADS = [f"t{number}" for number in range(6)]


class Replicas:
    """Two processes of one program: a clock, and what their nodes did."""

    def __init__(self, stores: list[Store]) -> None:
        self.clock = ManualClock()
        self.ran: Counter[str] = Counter()
        self.stores = stores
        self.threads = [Threads(self._graph(), store, clock=self.clock) for store in stores]

    def _graph(self) -> CompiledGraph[Doc]:
        graph = Graph(Doc)

        @graph.node
        async def first(doc: Doc) -> None:
            self.ran["first"] += 1
            doc.trail.append("first")

        graph.timer("pause", delay=timedelta(minutes=1))

        @graph.node
        async def second(doc: Doc) -> None:
            self.ran["second"] += 1
            doc.trail.append("second")

        graph.edge("first", "pause")
        graph.edge("pause", "second")
        return graph.compile(checkpoints=EVERY_NODE)

    async def round(self, *drivers: Driver) -> int:
        """One round of all these drivers at once; how many threads they dealt with."""
        dealt = list[int]()
        await asyncio.gather(*(driver.round(CancelToken(), dealt.append) for driver in drivers))
        return sum(dealt)

    async def statuses(self) -> set[str]:
        """What the threads say now."""
        rows = [await self.stores[0].load(thread) for thread in THREADS]
        return {"none" if row is None else str(row.checkpoint.status) for row in rows}


@pytest.mark.parametrize("kind", KINDS)
async def test_two_replicas_wake_recover_and_purge_each_thread_once(kind: str, places: Places) -> None:
    """O1, O2, O3, O6 on each engine."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(places.fresh(kind))
        stores = [await open_store(place.url) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        replicas = Replicas(stores)
        stop = CancelToken()
        stop.fire()  # a run that is told to stop leaves its thread as a dead one does: running, unheld
        for thread in THREADS:
            await replicas.threads[0].run(thread, Doc(), RunOptions(stop=stop))
        assert await replicas.statuses() == {"running"}
        replicas.clock.advance(2)

        stale = RecoverySettings(stale_after=timedelta(seconds=1), batch_size=4)
        runs = [RunOptions(lease=LeaseOptions(name, timedelta(minutes=1))) for name in ("w1", "w2")]
        pairs = zip(replicas.threads, runs, strict=True)
        recoveries = [RecoveryDriver(each, stale, runs=run) for each, run in pairs]
        assert await replicas.round(*recoveries) == len(THREADS)
        assert await replicas.statuses() == {"interrupted"}
        assert replicas.ran["first"] == len(THREADS)

        replicas.clock.advance(60)
        wakes = [WakeDriver(each, WakeSettings(batch_size=4)) for each in replicas.threads]
        assert await replicas.round(*wakes) == len(THREADS)
        assert await replicas.statuses() == {"completed"}
        assert replicas.ran["second"] == len(THREADS)

        replicas.clock.advance(DAY.total_seconds())
        settings = RetentionSettings(older_than=timedelta(hours=1), batch_size=2)
        purges = [RetentionDriver(store, settings, clock=replicas.clock) for store in stores]
        assert await replicas.round(*purges) == len(THREADS)
        assert await replicas.statuses() == {"none"}
