"""Renewal on a thread of its own: a node that blocks the loop can't lose its lease (section J)."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from outcrop.engine import (
    Cancelled,
    CancelReason,
    Completed,
    Graph,
    LeaseOptions,
    RunOptions,
    ThreadRenewer,
    Threads,
)
from outcrop.stores.errors import Unavailable
from outcrop.stores.memory import MemoryStore
from outcrop.stores.port import Acquired
from support.engine import BOUNDARIES, Doc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from outcrop.stores.port import LeaseStore
    from outcrop.stores.record import Lease

TTL = timedelta(milliseconds=150)


class Watched(MemoryStore):
    """A store that tells of its renewals."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed = threading.Semaphore(0)
        self.threads = set[str]()
        self.error: Exception | None = None
        self.is_hanging = False
        self.open = 0
        self.closed = threading.Event()

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
        self.threads.add(threading.current_thread().name)
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        answer = await super().renew_lease(lease, ttl)
        self.renewed.release()
        return answer

    @asynccontextmanager
    async def renewals(self) -> AsyncGenerator[LeaseStore]:
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1
            self.closed.set()


def options() -> RunOptions:
    return RunOptions(lease=LeaseOptions("w1", TTL))


async def test_a_node_that_blocks_the_loop_keeps_its_lease() -> None:
    """The issue: renewal off the user's event loop."""
    store, renewer, graph = Watched(), ThreadRenewer(), Graph(Doc)

    @graph.node(inline=True)
    def block(doc: Doc) -> None:
        for _ in range(4):  # each renewal is another third of the ttl
            assert store.renewed.acquire(timeout=10)
        doc.n = 1

    threads = Threads(graph.compile(checkpoints=BOUNDARIES), store, renewer=renewer)
    assert isinstance(await threads.run("t", Doc(), options()), Completed)
    assert store.threads == {"outcrop-leases"}
    assert await store.get_lease("t") is None
    await asyncio.to_thread(store.closed.wait, 10)
    assert store.open == 0
    renewer.close()


async def waiting_run(store: MemoryStore, renewer: ThreadRenewer) -> tuple[asyncio.Task[Any], asyncio.Event]:
    """A run that waits in its node until it is cut or told to go on."""
    graph, reached, opened = Graph(Doc), asyncio.Event(), asyncio.Event()

    @graph.node
    async def wait(_doc: Doc) -> None:
        reached.set()
        await opened.wait()

    run = asyncio.create_task(Threads(graph.compile(), store, renewer=renewer).run("t", Doc(), options()))
    await reached.wait()
    return run, opened


async def test_a_takeover_is_noticed_by_the_next_renewal() -> None:
    """J008."""
    store, renewer = Watched(), ThreadRenewer()
    run, _ = await waiting_run(store, renewer)
    live = await store.get_lease("t")
    assert live is not None
    await store.release_lease(live)
    assert isinstance(await store.acquire_lease("t", "w2", TTL), Acquired)
    result = await run
    assert isinstance(result, Cancelled)
    assert result.reason is CancelReason.LEASE_LOST
    renewer.close()


async def test_a_ttl_of_errors_or_of_silence_loses_the_lease() -> None:
    """J007: a store that hangs is no better than one that fails."""
    for fault in ("error", "silence"):
        store, renewer = Watched(), ThreadRenewer()
        run, _ = await waiting_run(store, renewer)
        started = time.monotonic()
        if fault == "error":
            store.error = Unavailable("gone")
        else:
            store.is_hanging = True
        result = await run
        assert isinstance(result, Cancelled)
        assert result.reason is CancelReason.LEASE_LOST
        assert time.monotonic() - started > TTL.total_seconds() / 2
        renewer.close()


async def test_nothing_renews_after_the_run_and_short_runs_never_do() -> None:
    """J006: holding and stopping a lease needs no renewal, and no store connection of its own."""
    store, renewer = Watched(), ThreadRenewer()
    for _ in range(20):
        run, opened = await waiting_run(store, renewer)
        opened.set()
        await run
    lease = await store.acquire_lease("t", "w3", TTL)
    assert isinstance(lease, Acquired)
    assert lease.lease.token == 21
    renewer.close()
    assert store.threads == set()
    assert store.open == 0


async def test_giving_up_on_a_stop_leaves_the_renewer_working() -> None:
    """A run dropped while its lease was being released once ended all renewing of the process."""
    store, renewer = Watched(), ThreadRenewer()
    held = await store.acquire_lease("t", "w1", TTL)
    assert isinstance(held, Acquired)
    begun, going_on = threading.Event(), threading.Event()

    class Slow(Watched):
        async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
            begun.set()
            await asyncio.to_thread(going_on.wait, 10)
            return await store.renew_lease(lease, ttl)

    patient = timedelta(seconds=0.3)
    renewal = renewer.hold(Slow(), held.lease, patient, since=time.monotonic() + 20, on_lost=lambda: None)
    assert await asyncio.to_thread(begun.wait, 10)
    stopping = asyncio.create_task(renewal.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled()
    going_on.set()
    assert await asyncio.to_thread(store.renewed.acquire, timeout=10)
    renewer.hold(store, held.lease, patient, since=time.monotonic() + 20, on_lost=lambda: None)
    assert await asyncio.to_thread(store.renewed.acquire, timeout=10)
    renewer.close()


async def test_a_renewing_side_that_times_out_loses_nothing_before_its_ttl() -> None:
    store, renewer = Watched(), ThreadRenewer()
    failures = [TimeoutError("connecting took too long")]

    class Late(Watched):
        @asynccontextmanager
        async def renewals(self) -> AsyncGenerator[LeaseStore]:
            if failures:
                raise failures.pop()
            yield store

    held = await store.acquire_lease("t", "w1", TTL)
    assert isinstance(held, Acquired)
    lost = list[str]()
    renewer.hold(Late(), held.lease, TTL, since=time.monotonic() + 20, on_lost=lambda: lost.append("lost"))
    assert await asyncio.to_thread(store.renewed.acquire, timeout=10)
    renewer.close()
    assert (failures, lost) == ([], [])


async def test_one_thread_serves_every_run_and_closing_is_idempotent() -> None:
    store, renewer = Watched(), ThreadRenewer()
    run, opened = await waiting_run(store, renewer)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("outcrop-leases") >= 1
    opened.set()
    await run
    renewer.close()
    renewer.close()
    again, opened = await waiting_run(store, renewer)
    opened.set()
    assert isinstance(await again, Completed)
