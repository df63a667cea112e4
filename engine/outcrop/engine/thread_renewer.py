"""Lease renewal on a thread of its own, for every run of the process.

Owns one daemon thread with its own event loop, started by the first lease, and a heap of
due renewals. Holding and stopping a lease take a lock and no thread switch: most runs end
before their first renewal is due. Each store's `renewals()` is open while a lease of it is
in the heap.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING

from .clock import SystemClock
from .leases import Hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from outcrop.stores.port import LeaseStore
    from outcrop.stores.record import Lease

    from .leases import Renewal


@cache
def shared_renewer() -> ThreadRenewer:
    """The process's own renewer, which every `Threads` uses unless given another."""
    return ThreadRenewer()


class ThreadRenewer:
    """Renews leases on its own thread; see `LeaseRenewer`."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._due: list[tuple[float, int, _ThreadRenewal]] = []
        self._in_flight: set[_ThreadRenewal] = set()
        self._wakes_at = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wake = asyncio.Event()
        self._closed = False

    def hold(
        self, leases: LeaseStore, lease: Lease, ttl: timedelta, *, since: float, on_lost: Callable[[], None]
    ) -> Renewal:
        """Renew the lease until it is stopped; `since` is on `time.monotonic`."""
        renewal = _ThreadRenewal(
            Hold(leases, lease, ttl, since, on_lost), asyncio.get_running_loop(), self._lock
        )
        self._schedule(renewal)
        return renewal

    def close(self) -> None:
        """End the thread; leases still held are renewed no more. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._ring()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _schedule(self, renewal: _ThreadRenewal) -> None:
        due = self._clock.monotonic() + renewal.hold.interval
        with self._lock:
            if self._closed:
                return
            heapq.heappush(self._due, (due, next(self._order), renewal))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="outcrop-leases", daemon=True)
                self._thread.start()
            elif due < self._wakes_at:
                self._ring()

    def _ring(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    def _serve(self) -> None:
        asyncio.run(self._renew_all())

    async def _renew_all(self) -> None:
        sources = _Sources()
        self._loop = asyncio.get_running_loop()
        async with sources, asyncio.TaskGroup() as renewing:
            while not self._closed:
                with self._lock:
                    for renewal in self._take_due():
                        renewing.create_task(self._renew(renewal, sources))
                    held = {renewal for _, _, renewal in self._due} | self._in_flight
                    self._wakes_at = self._due[0][0] if self._due else math.inf
                    self._wake.clear()
                await sources.keep_only({id(renewal.hold.leases) for renewal in held})
                await self._rest()

    def _take_due(self) -> list[_ThreadRenewal]:
        now, taken = self._clock.monotonic(), list[_ThreadRenewal]()
        while self._due and self._due[0][0] <= now:
            renewal = heapq.heappop(self._due)[2]
            if renewal.begin():
                self._in_flight.add(renewal)
                taken.append(renewal)
        return taken

    async def _rest(self) -> None:
        delay = None if self._wakes_at == math.inf else max(self._wakes_at - self._clock.monotonic(), 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._wake.wait()

    async def _renew(self, renewal: _ThreadRenewal, sources: _Sources) -> None:
        hold = renewal.hold
        patience = asyncio.timeout(hold.renewed_at + hold.ttl.total_seconds() - self._clock.monotonic())
        try:
            async with patience:
                kept = await hold.renew(await sources.of(hold.leases), self._clock)
        except Exception:  # noqa: BLE001 - the store hangs, or its renewing side can't be opened now
            kept = not patience.expired() and hold.may_stand(self._clock.monotonic())
        finally:
            renewal.end()
        if kept:
            self._schedule(renewal)
        else:
            renewal.lose()
        self._in_flight.discard(renewal)


class _ThreadRenewal:
    """One lease in the heap; its flags change under the renewer's lock."""

    def __init__(self, hold: Hold, loop: asyncio.AbstractEventLoop, lock: threading.Lock) -> None:
        self.hold = hold
        self._loop = loop
        self._lock = lock
        self._stopped = False
        self._in_flight: Future[None] | None = None

    @property
    def renewed_at(self) -> float:
        return self.hold.renewed_at

    def drop(self) -> None:
        self._stopped = True

    async def stop(self) -> None:
        with self._lock:
            self._stopped = True
            in_flight = self._in_flight
        if in_flight is not None:
            await asyncio.wrap_future(in_flight)

    def begin(self) -> bool:
        """Note that a renewal starts, the lock being held; False when the lease was stopped."""
        if not self._stopped:
            self._in_flight = Future()
            # As a running one, it can't be cancelled by whoever stops waiting for it.
            self._in_flight.set_running_or_notify_cancel()
        return not self._stopped

    def end(self) -> None:
        with self._lock:
            in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            in_flight.set_result(None)

    def lose(self) -> None:
        with suppress(RuntimeError):  # its loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.hold.on_lost()


class _Sources:
    """The stores' renewing sides, each opened once, on this thread's loop."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[LeaseStore, AsyncExitStack, LeaseStore]] = {}
        self._opening = asyncio.Lock()

    async def of(self, leases: LeaseStore) -> LeaseStore:
        async with self._opening:
            found = self._open.get(id(leases))
            if found is None:
                stack = AsyncExitStack()
                found = (leases, stack, await stack.enter_async_context(leases.renewals()))
                self._open[id(leases)] = found
            return found[2]

    async def keep_only(self, wanted: set[int]) -> None:
        for key in self._open.keys() - wanted:
            _, stack, _ = self._open.pop(key)
            with suppress(Exception):
                await stack.aclose()

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        await self.keep_only(set())
