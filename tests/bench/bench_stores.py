"""What the engine costs on each store over the same round trips by hand, and what group commit gains.

Run it: `compose/services run -- python tests/bench/bench_stores.py [ROUNDS] [KINDS]`. A run is a
ten-node EveryNode run under a lease: one acquisition and eleven saves, the last of which frees the
thread. By hand means the driver's own calls with the same statements or scripts and ready arguments:
no engine, no adapter. Everything is measured in turns; the figures are medians, of runs with one
thread after the other, and of 64 threads at once.

Aims: one after the other at most 1.25 of the floor on Postgres and SQLite, 1.5 on Redis; 64 at once
with group commit on Postgres at least 3 times the saves a second of without, and within 1.5 of the
same batching by hand.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import redis.asyncio as redis

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.bench_engine import Order, ten_nodes
from outcrop.engine import Completed, LeaseOptions, RunOptions, Threads
from outcrop.stores import EMPTY_LOG, MemoryStore, Status, open_store
from outcrop.stores.codec import encode
from outcrop.stores.columns import to_parameters
from outcrop.stores.encoding import Stored
from outcrop.stores.leases import from_milliseconds, system_now, to_milliseconds
from outcrop.stores.postgres.arguments import to_arguments, to_arrays, to_row
from outcrop.stores.postgres.leases import SQL as POSTGRES
from outcrop.stores.record import Lease
from outcrop.stores.redis.keys import PLACES, Keys, score_of
from outcrop.stores.redis.scripts import ACQUIRE, SAVE
from outcrop.stores.save import Save
from outcrop.stores.sqlite.leases import SQL as SQLITE
from support.storages import KINDS, Places, given_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from outcrop.engine import CompiledGraph
    from outcrop.stores import Checkpoint, Store
    from support.storages import Storage

AT_ONCE = 64
RUNS = 8  # of a round, one after the other
TTL = timedelta(seconds=60)
OWNER = "bench"
LEASED = RunOptions(lease=LeaseOptions(OWNER, TTL), expected_sequence=EMPTY_LOG)
AIMS = {"sqlite": 1.25, "postgres": 1.25, "redis": 1.5}
NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Step:
    """One save of a run, to be made for any thread."""

    row: Checkpoint
    expected: int

    def save(self, thread_id: str) -> Save:
        """The save for that thread, fenced by its first lease; the last one frees it."""
        lease = Lease(thread_id, OWNER, 1, from_milliseconds(0))
        row = replace(self.row, thread_id=thread_id)
        return Save(row, self.expected, lease, release=row.status is Status.COMPLETED)


async def steps_of_a_run(graph: CompiledGraph[Order]) -> list[Step]:
    """What a run saves."""
    store = MemoryStore()
    await Threads(graph, store).run("t", Order())
    return [Step(row.checkpoint, row.sequence - 1) for row in (await store.get_log("t")).entries]


async def engine_run(threads: Threads[Order], thread_id: str) -> None:
    """One run through the engine."""
    result = await threads.run(thread_id, Order(), LEASED)
    assert isinstance(result, Completed)


class SqliteByHand:
    """The standard library's driver on a thread."""

    def __init__(self, connection: sqlite3.Connection, executor: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._executor = executor

    @classmethod
    @asynccontextmanager
    async def open(cls, storage: Storage) -> AsyncGenerator[SqliteByHand]:
        """Connect."""
        with ThreadPoolExecutor(1) as executor:
            connection = sqlite3.connect(storage.file, isolation_level=None, check_same_thread=False)
            yield cls(connection, executor)
            connection.close()

    def prepared(self, save: Save) -> Any:
        """Ready arguments."""
        arguments = {"expected": save.expected, "token": save.token, "base": None, "base_token": None}
        return {**to_parameters(save.checkpoint), **arguments}, save.release

    async def acquire(self, thread_id: str) -> None:
        """Take the lease."""
        now = to_milliseconds(system_now())
        arguments = {"thread_id": thread_id, "owner": OWNER, "now": now, "expires_at": now + 60_000}
        await self._call(lambda: self._execute("acquire", arguments | {"expected": EMPTY_LOG}))

    async def save(self, prepared: Any) -> None:
        """Append a row."""
        arguments, is_last = prepared

        def save_last() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            self._execute("save", arguments)
            self._execute("release", arguments)
            self._connection.execute("COMMIT")

        await self._call(save_last if is_last else lambda: self._execute("save", arguments))

    async def save_together(self, prepared: Sequence[Any]) -> None:
        """Append several in one commit."""

        def save_all() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            for arguments, is_last in prepared:
                self._execute("save", arguments)
                if is_last:
                    self._execute("release", arguments)
            self._connection.execute("COMMIT")

        await self._call(save_all)

    def _execute(self, name: str, arguments: dict[str, Any]) -> None:
        if not self._connection.execute(SQLITE[name], arguments).fetchall():
            raise AssertionError(name)

    async def _call(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, work)


class PostgresByHand:
    """asyncpg's pool."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    @asynccontextmanager
    async def open(cls, storage: Storage) -> AsyncGenerator[PostgresByHand]:
        """Connect."""
        async with asyncpg.create_pool(storage.url, min_size=16, max_size=16) as pool:
            yield cls(pool)

    def prepared(self, save: Save) -> Any:
        """Ready arguments."""
        return to_row(save, Stored(save.checkpoint))

    async def acquire(self, thread_id: str) -> None:
        """Take the lease."""
        await self._pool.fetch(POSTGRES["acquire"], thread_id, OWNER, 60_000, EMPTY_LOG)

    async def save(self, prepared: Any) -> None:
        """Append a row."""
        if await self._pool.fetchval(POSTGRES["append"], *to_arguments(prepared, {})) < 0:
            raise AssertionError("a save was refused")

    async def save_together(self, prepared: Sequence[Any]) -> None:
        """Append several in one call."""
        arguments = to_arrays(prepared, [{}] * len(prepared))
        if min(await self._pool.fetchval(POSTGRES["save"], *arguments)) < 0:
            raise AssertionError("a save was refused")


class RedisByHand:
    """redis-py's client."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    @classmethod
    @asynccontextmanager
    async def open(cls, storage: Storage) -> AsyncGenerator[RedisByHand]:
        """Connect."""
        async with redis.Redis.from_url(storage.peer[1]) as client:
            yield cls(client, Keys(storage.peer[3]))

    def prepared(self, save: Save) -> Any:
        """Ready arguments."""
        row, keys = save.checkpoint, self._keys.everything_of(save.checkpoint.thread_id)
        arguments = [encode(row), row.thread_id, score_of(row.updated_at), PLACES[row.state], 0, 0]
        arguments += [save.expected, save.token, int(save.release), "", "", ""]
        return SAVE.sha, len(keys), *keys, *arguments

    async def acquire(self, thread_id: str) -> None:
        """Take the lease."""
        keys = (self._keys.lease(thread_id), self._keys.token(thread_id), self._keys.list(thread_id))
        await self._client.evalsha(ACQUIRE.sha, len(keys), *keys, OWNER, 60_000, EMPTY_LOG)

    async def save(self, prepared: Any) -> None:
        """Append a row."""
        if await self._client.evalsha(*prepared) <= 0:
            raise AssertionError("a save was refused")

    async def save_together(self, prepared: Sequence[Any]) -> None:
        """Append several in one pipeline."""
        pipeline = self._client.pipeline(transaction=False)
        for call in prepared:
            pipeline.evalsha(*call)
        if min(await pipeline.execute()) <= 0:
            raise AssertionError("a save was refused")


BY_HAND: dict[str, Any] = {"sqlite": SqliteByHand, "postgres": PostgresByHand, "redis": RedisByHand}


async def run_by_hand(driver: Any, steps: Sequence[Step], thread_id: str) -> None:
    """The round trips of one run."""
    await driver.acquire(thread_id)
    for step in steps:
        await driver.save(driver.prepared(step.save(thread_id)))


async def batched_by_hand(driver: Any, steps: Sequence[Step], threads: Sequence[str]) -> None:
    """The round trips of many runs, their saves together."""
    await asyncio.gather(*(driver.acquire(thread) for thread in threads))
    for step in steps:
        await driver.save_together([driver.prepared(step.save(thread)) for thread in threads])


def names(number: int) -> list[str]:
    """So many new thread IDs."""
    start = next(NUMBERS)
    return [f"t{start}-{at}" for at in range(number)]


async def seconds(work: Awaitable[object]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def one_by_one(run: Callable[[str], Awaitable[None]]) -> None:
    """Some runs, one after the other."""
    for thread in names(RUNS):
        await run(thread)


async def at_once(run: Callable[[str], Awaitable[None]]) -> None:
    """Many runs at once."""
    await asyncio.gather(*map(run, names(AT_ONCE)))


async def measure(kind: str, places: Places, rounds: int) -> None:
    """Print the figures of one engine."""
    graph = ten_nodes()
    steps = await steps_of_a_run(graph)
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(places.fresh(kind))

        async def opened(url: str) -> Threads[Order]:
            store: Store = await open_store(url)
            stack.push_async_callback(store.close)
            return Threads(graph, store)

        plain = await opened(storage.url)
        grouped = None if kind == "redis" else await opened(f"{storage.url}?group_commit=true")
        driver = await stack.enter_async_context(BY_HAND[kind].open(storage))
        ways: dict[str, Callable[[], Awaitable[None]]] = {
            "engine": lambda: one_by_one(lambda thread: engine_run(plain, thread)),
            "by hand": lambda: one_by_one(lambda thread: run_by_hand(driver, steps, thread)),
            "engine, 64": lambda: at_once(lambda thread: engine_run(plain, thread)),
            "by hand, 64": lambda: at_once(lambda thread: run_by_hand(driver, steps, thread)),
            "batched by hand, 64": lambda: batched_by_hand(driver, steps, names(AT_ONCE)),
        }
        if grouped is not None:
            ways["grouped, 64"] = lambda: at_once(lambda thread: engine_run(grouped, thread))
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, way in ways.items():
                took = await seconds(way())
                if number:  # the first round warms up
                    taken[name].append(took)
    show(kind, {name: statistics.median(times) for name, times in taken.items()}, len(steps))


def show(kind: str, medians: dict[str, float], saves: int) -> None:
    """Print the medians as saves a second, and the ratios with their aims."""
    rates = {name: (AT_ONCE if "64" in name else RUNS) * saves / took for name, took in medians.items()}
    print(f"{kind:9} saves/s  " + "  ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
    one_by_one = medians["engine"] / medians["by hand"]
    print(f"{kind:9} one by one: {one_by_one:.2f} of the floor (aim {AIMS[kind]})")
    many, best, pool = (medians[f"{name}, 64"] for name in ("engine", "batched by hand", "by hand"))
    told = f"{kind:9} 64 at once:"
    if (grouped := medians.get("grouped, 64")) is not None:
        gain = rates["grouped, 64"] / rates["engine"]
        print(f"{told} group commit {gain:.2f} times the saves of one by one (aim on Postgres 3)")
        print(f"{told} group commit {many / grouped:.2f} times the saves of 64 without it")
        print(f"{told} group commit {grouped / best:.2f} of batching by hand (aim 1.5)")
    else:
        print(f"{told} {pool / many:.2f} times the saves of redis-py's pool by hand")
        print(f"{told} {many / best:.2f} of pipelines by hand")


async def main(rounds: int, kinds: Sequence[str]) -> None:
    """Measure the engines one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        places = Places(Path(folder), given_server)
        for kind in kinds:
            await measure(kind, places, rounds)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7, sys.argv[2:] or KINDS))
