"""The demonstration from its first process to its last: the only part that knows all the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop.stores import ThreadQuery, ThreadState
from outcrop.stores.sqlite import SqliteStore
from outcrop.topics import EmbeddedBroker
from outcrop.topics.client import ThreadsClient
from outcrop.worker.cli.exits import Exit, UsageError
from outcrop.worker.cli.terminal import Screen

from .driver import Shop
from .plan import plan_orders
from .processes import DemoFailed, Processes, WorkerProcess
from .report import Facts, Payment, problems, recoveries_in, report_document, report_rows
from .view import Moment, make_view

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from outcrop.stores import Store

    from .plan import PlannedOrder
    from .view import View

_LIMIT_SECONDS = 180.0
_FRAME_SECONDS = 0.2
_KILL_AFTER_SHARE = 0.1
_KILL_IN_FLIGHT = 3
_KILL_WITHIN_SECONDS = 3.0

_NEXT = """\
This was a demonstration: its broker kept everything in memory and guarantees nothing. Next:
  outcrop dev outcrop.worker.demo.orders:graph     the same orders, sent by you
  outcrop dev MODULE:NAME                          your own graphs
  outcrop topics create --bootstrap HOST:PORT      the topics on a real Kafka
  outcrop worker MODULE:NAME --bootstrap HOST:PORT and workers that use it"""


@dataclass(frozen=True, slots=True)
class Options:
    """What `outcrop demo` was asked for."""

    threads: int
    workers: int
    seed: int
    keep: bool
    as_json: bool


async def demonstrate(options: Options) -> Exit:
    """Run it all, show it, and judge it; nothing is left behind unless `keep` says so."""
    if options.workers < 2:  # noqa: PLR2004 - one is killed, one must go on
        raise UsageError("the demonstration kills a worker: --workers must be at least 2")
    folder = Path(tempfile.mkdtemp(prefix="outcrop-demo-"))
    screen = Screen(as_json=options.as_json)
    _end_on_sigterm()
    try:
        facts = await _Demonstration(options, folder).run()
    finally:
        if options.keep:
            screen.note(f"kept: {folder} (threads.db, payments.jsonl, the workers' logs)")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if screen.as_json:
        screen.document(report_document(facts))
    else:
        _tell(facts, screen)
    return Exit.FAILED if problems(facts) else Exit.OK


def _tell(facts: Facts, screen: Screen) -> None:
    screen.table(("WHAT", "HOW MANY"), report_rows(facts))
    broken = problems(facts)
    for problem in broken:
        screen.line(f"NOT AS PROMISED: {problem}")
    screen.line()
    if not broken:
        screen.line("Every thread is at its planned end, and every payment was applied exactly once.")
    for line in _NEXT.splitlines():
        screen.line(line)


class _Demonstration:
    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._orders: Sequence[PlannedOrder] = plan_orders(options.threads, options.seed)
        self._start = time.monotonic()
        self._news = "starting the broker, the payment service and the workers"
        self._workers: list[WorkerProcess] = []
        self._killed_in_flight = 0

    async def run(self) -> Facts:
        store_file = self._folder / "threads.db"
        async with contextlib.AsyncExitStack() as stack:
            store = await SqliteStore.open(store_file)
            stack.push_async_callback(store.close)
            broker = stack.enter_context(EmbeddedBroker())
            client = await stack.enter_async_context(ThreadsClient(broker.bootstrap, auto_create=True))
            processes = await stack.enter_async_context(Processes(self._folder))
            payments = await processes.start_payments(self._folder / "payments.jsonl")
            for number in range(1, self._options.workers + 1):
                self._workers.append(
                    await processes.start_worker(
                        f"worker-{number}", bootstrap=broker.bootstrap, store=store_file, payments=payments
                    )
                )
            shop = Shop(client, self._orders, clock=self._seconds)
            with make_view(as_json=self._options.as_json) as view:
                await self._play(shop, store, view)
            return await self._facts(shop, store)

    def _seconds(self) -> float:
        return time.monotonic() - self._start

    async def _play(self, shop: Shop, store: Store, view: View) -> None:
        showing = asyncio.create_task(self._show(shop, view))
        killing = asyncio.create_task(self._kill_one(shop, store))
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                await self._unless_workers_fail(shop)
        except TimeoutError:
            raise DemoFailed(
                f"{shop.progress.finished} of {self._options.threads} threads were at their end after "
                f"{_LIMIT_SECONDS:g} s; look at the logs with --keep"
            ) from None
        finally:
            for task in (showing, killing):
                task.cancel()
            await asyncio.gather(showing, killing, return_exceptions=True)
        self._draw(shop, view)

    async def _unless_workers_fail(self, shop: Shop) -> None:
        serving = asyncio.create_task(shop.serve())
        try:
            while not serving.done():
                await asyncio.wait([serving], timeout=1.0)
                for worker in self._workers:
                    if not worker.killed and worker.process.returncode is not None:
                        raise DemoFailed(self._last_words(worker))
            await serving
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    def _last_words(self, worker: WorkerProcess) -> str:
        log = (self._folder / f"{worker.name}.log").read_text(errors="replace").strip()
        last = log.splitlines()[-1] if log else "it said nothing"
        return f"{worker.name} ended with exit code {worker.process.returncode}: {last}"

    async def _show(self, shop: Shop, view: View) -> None:
        while True:
            self._draw(shop, view)
            await asyncio.sleep(_FRAME_SECONDS)

    def _draw(self, shop: Shop, view: View) -> None:
        workers = tuple(worker.view() for worker in self._workers)
        view.show(Moment(self._seconds(), shop.progress, workers, self._news))

    async def _kill_one(self, shop: Shop, store: Store) -> None:
        """Kill the last worker while runs are in flight on it; the other ones must finish them."""
        progress = shop.progress
        while progress.outcomes < self._options.threads * _KILL_AFTER_SHARE:
            self._news = f"{self._options.workers} workers share the threads; one of them will be killed"
            await asyncio.sleep(0.05)
        victim = self._workers[-1]
        in_flight = await self._catch(victim, store)
        victim.kill()
        self._killed_in_flight = in_flight
        self._news = (
            f"{victim.name} was killed with {in_flight} runs in flight; the others go on, and take over its "
            "threads when the broker has missed it for about 30 s"
        )

    async def _catch(self, victim: WorkerProcess, store: Store) -> int:
        """Wait for some runs in flight on the worker, for one run later on, at last for none."""
        began = self._seconds()
        for wanted, until in ((_KILL_IN_FLIGHT, _KILL_WITHIN_SECONDS), (1, 2 * _KILL_WITHIN_SECONDS)):
            while self._seconds() < began + until:
                in_flight = [owner async for owner in _owners(store)].count(victim.name)
                if in_flight >= wanted:
                    return in_flight
                await asyncio.sleep(0.02)
        return 0

    async def _facts(self, shop: Shop, store: Store) -> Facts:
        threads = [thread async for thread in _threads(store)]
        results: dict[str, str] = {}
        recoveries = 0
        for thread_id, _ in threads:
            log = (await store.get_log(thread_id, limit=1000)).entries
            results[thread_id] = str(json.loads(log[-1].checkpoint.frozen_state)["result"])
            recoveries += recoveries_in(log)
        progress = shop.progress
        return Facts(
            orders=self._orders,
            states=dict(threads),
            results=results,
            journal=_journal(self._folder / "payments.jsonl"),
            recoveries=recoveries,
            killed_in_flight=self._killed_in_flight,
            latencies=progress.latencies,
            outcomes=progress.outcomes,
            repeats=progress.repeats,
            refusals=progress.refusals,
            seconds=self._seconds(),
        )


def _end_on_sigterm() -> None:
    """Let SIGTERM end it as Ctrl-C does, with everything cleaned up."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _owners(store: Store) -> AsyncIterator[str]:
    """The owners of the live leases of threads that run."""
    running = await store.list_threads(ThreadQuery(states=frozenset({ThreadState.RUNNING}), limit=100))
    for thread in running.threads:
        lease = await store.get_lease(thread.thread_id)
        if lease is not None:
            yield lease.owner


async def _threads(store: Store) -> AsyncIterator[tuple[str, ThreadState]]:
    query = ThreadQuery(limit=1000)
    while True:
        page = await store.list_threads(query)
        for thread in page.threads:
            yield thread.thread_id, thread.state
        if page.next_cursor is None:
            return
        query = ThreadQuery(limit=1000, cursor=page.next_cursor)


def _journal(file: Path) -> list[Payment]:
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Payment(str(entry["key"]), bool(entry["applied"])) for entry in entries]
