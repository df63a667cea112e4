"""Runs under leases on the servers: their logs, their deaths, killed connections, clocks that are off."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from outcrop.engine import Completed, LeaseOptions, RecoverOptions, Refused, RunOptions, SystemClock, Threads
from outcrop.engine.outcome import RefusalCode
from outcrop.stores import Acquired, Status, ThreadQuery, ThreadState, open_store
from outcrop.stores.contract import sample
from support.engine import EVERY_NODE, Doc, Gate, World, gated, told
from support.redis import client

if TYPE_CHECKING:
    from outcrop.engine import CompiledGraph
    from outcrop.stores import Store
    from support.storages import Places, Storage

SERVERS = ("postgres", "redis")
MINUTE = timedelta(minutes=1)
BRIEF = timedelta(milliseconds=300)
LEASED = RunOptions(lease=LeaseOptions("w1", MINUTE))
SWEEP = RecoverOptions(options=LEASED)


def two_nodes() -> CompiledGraph[Doc]:
    return World().graph("A", "B").compile(checkpoints=EVERY_NODE)


async def log(store: Store, thread_id: str = "t") -> list[str]:
    return [told(row.checkpoint) for row in (await store.get_log(thread_id)).entries]


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "encoded"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_durable_run_under_a_lease(kind: str, encoded: bool, places: Places) -> None:
    """D1: also as deltas, with blobs and in groups."""
    async with places.fresh(kind) as place:
        store = await open_store(place.encoded.url if encoded else place.url)
        assert isinstance(await Threads(two_nodes(), store).run("t", Doc(), LEASED), Completed)
        assert await log(store) == ["running:->A", "running:A>B", "completed:B>-"]
        assert await store.get_lease("t") is None
        running = ThreadQuery(states=frozenset({ThreadState.RUNNING}))
        assert (await store.list_threads(running)).threads == ()
        await store.close()


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "encoded"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_dead_thread_is_recovered_once_it_is_free(kind: str, encoded: bool, places: Places) -> None:
    """D2, D3: held by a live lease it is listed and skipped; released, it is recovered, once."""
    async with places.fresh(kind) as place:
        store = await open_store(place.encoded.url if encoded else place.url)
        threads = Threads(two_nodes(), store)
        dead = sample(
            "t",
            Status.RUNNING,
            schema_version="1.6.0",
            suspended_node=None,
            next_node="A",
            frozen_state=Doc().model_dump_json(),
            metadata={"strata.hops": "0"},
        )
        await store.save(dead)
        held = await store.acquire_lease("t", "worker-9", MINUTE)
        assert isinstance(held, Acquired)

        running = await store.list_threads(ThreadQuery(states=frozenset({ThreadState.RUNNING})))
        assert [summary.thread_id for summary in running.threads] == ["t"]
        report = await threads.recover_stale(SWEEP)
        assert report.recovered == []
        assert [skipped.thread_id for skipped in report.skipped] == ["t"]
        assert report.skipped[0].reason.startswith("it is held by 'worker-9' until ")

        await store.release_lease(held.lease)
        report = await threads.recover_stale(SWEEP)
        assert [(one.thread_id, one.recoveries) for one in report.recovered] == [("t", 1)]
        assert (await threads.recover_stale(SWEEP)).recovered == []
        rows = (await store.get_log("t")).entries
        assert [told(row.checkpoint) for row in rows] == [
            "running:->A",
            "running:->A",
            "running:A>B",
            "completed:B>-",
        ]
        assert (rows[1].checkpoint.metadata or {})["strata.recoveries"] == "1"
        assert await store.get_lease("t") is None
        await store.close()


async def kill_connections(place: Storage) -> int:
    """Kill all that the server has to that place, and return how many there were."""
    if place.kind == "postgres":
        administrator = await asyncpg.connect(place.url)
        killed = await administrator.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await administrator.close()
        return len(killed)
    async with client(place.peer[1]) as redis:
        named = [one["id"] for one in await redis.client_list() if one["name"] == place.peer[3]]
        for identity in named:
            await redis.client_kill_filter(_id=identity)
    return len(named)


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_run_outlives_its_connections(kind: str, places: Places) -> None:
    """H4: killed by the server in the middle of the run; the log is whole."""
    async with places.fresh(kind) as place:
        url = place.url if kind == "postgres" else f"{place.url}&client_name={place.peer[3]}"
        graph = World().graph("A")

        @graph.node
        async def kill(doc: Doc) -> None:
            assert await kill_connections(place)
            doc.trail.append("kill")

        World().trailing(graph, "B")
        graph.edge("A", "kill")
        graph.edge("kill", "B")
        store = await open_store(url)
        result = await Threads(graph.compile(checkpoints=EVERY_NODE), store).run("t", Doc(), LEASED)
        assert isinstance(result, Completed)
        assert result.state.trail == ["A", "kill", "B"]
        assert await log(store) == ["running:->A", "running:A>kill", "running:kill>B", "completed:B>-"]
        assert await store.get_lease("t") is None
        await store.close()


class Off(SystemClock):
    """A machine whose wall clock is off."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


@pytest.mark.parametrize("off", [-MINUTE, MINUTE])
@pytest.mark.parametrize("kind", SERVERS)
async def test_leases_go_by_the_servers_clock(kind: str, off: timedelta, places: Places) -> None:
    """A worker that is a minute off keeps its lease past its ttl, and one that is right can't take it.

    A dead worker's lease is over when it is over for the server, for either.
    """
    async with places.fresh(kind) as place:
        wrong_store, right_store = await open_store(place.url), await open_store(place.url)
        gate, graph = Gate(), World().graph("A")
        gated(graph, "B", gate)
        graph.edge("A", "B")
        compiled = graph.compile(checkpoints=EVERY_NODE)
        wrong, right = Threads(compiled, wrong_store, clock=Off(off)), Threads(compiled, right_store)
        options = RunOptions(lease=LeaseOptions("wrong", BRIEF))

        running = asyncio.create_task(wrong.run("t", Doc(), options))
        await gate.reached.wait()
        first = await right_store.get_lease("t")
        assert first is not None
        assert abs(first.expires_at - datetime.now(UTC)) < MINUTE / 2
        while (
            renewed := await right_store.get_lease("t")
        ) is None or renewed.expires_at < first.expires_at + BRIEF:
            refused = await right.recover("t", LEASED)  # a ttl goes by, and more
            assert isinstance(refused, Refused)
            assert refused.code is RefusalCode.HELD
            await asyncio.sleep(0.02)
        gate.opened.set()
        assert isinstance(await running, Completed)

        await wrong_store.save((await wrong_store.get_log("t")).entries[0].checkpoint)  # left running
        for threads, dead in ((wrong, right_store), (right, wrong_store)):
            assert isinstance(await dead.acquire_lease("t", "dead", BRIEF), Acquired)
            while not isinstance(result := await threads.recover("t", LEASED), Completed):
                assert isinstance(result, Refused)
                assert result.code is RefusalCode.HELD
                assert result.held_by is not None
                await asyncio.sleep(0.02)
            await wrong_store.save((await wrong_store.get_log("t")).entries[0].checkpoint)
        await wrong_store.close()
        await right_store.close()
