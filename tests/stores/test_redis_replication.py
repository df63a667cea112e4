"""A real primary and replica: what a failover loses, and that waiting for the replica keeps it.

The replica follows through a proxy that holds the stream back, as a slow network would; then the
primary is killed and the replica promoted.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import Acquired, NotLatest, Saved, Unavailable
from outcrop.stores.contract import sample
from outcrop.stores.options import RetryOptions
from outcrop.stores.redis import RedisStore
from support.proxy import proxied
from support.redis import RedisProcess, client, redis_process

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from outcrop.stores import Checkpoint
    from support.proxy import Proxy

LONG = timedelta(minutes=5)
WAITING: dict[str, Any] = {"wait_replicas": 1, "wait_timeout": timedelta(seconds=1)}


def numbered(n: int) -> Checkpoint:
    return sample(frozen_state=json.dumps(n))


async def numbers(store: RedisStore) -> list[int]:
    return [json.loads(row.checkpoint.frozen_state) for row in (await store.get_log("t")).entries]


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary, and its replica behind a proxy."""

    primary: RedisProcess
    replica: RedisProcess
    stream: Proxy

    async def fail_over(self) -> str:
        """Lose the primary, and what its replica hasn't got; returns where the store is now."""
        self.primary.kill()
        self.stream.cut()
        async with client(self.replica.url) as redis:
            await redis.replicaof("NO", "ONE")
        return self.replica.url


@asynccontextmanager
async def replicated(folder: Path) -> AsyncGenerator[Pair]:
    async with (
        redis_process(folder, "--repl-diskless-sync-delay", "0") as primary,
        proxied(primary.url) as stream,
        redis_process(folder, "--replicaof", "127.0.0.1", str(stream.port)) as replica,
        client(replica.url) as redis,
    ):
        while (await redis.info("replication"))["master_link_status"] != "up":  # noqa: ASYNC110 - another process has no event
            await asyncio.sleep(0.02)
        yield Pair(primary, replica, stream)


async def test_a_failover_loses_saves_that_were_answered(tmp_path: Path) -> None:
    """Without the option: rows, and with them the fence's tokens."""
    async with replicated(tmp_path) as pair:
        store = await RedisStore.open(pair.primary.url)
        first = await store.acquire_lease("t", "worker-1", LONG)
        assert isinstance(first, Acquired)
        assert await store.save(numbered(0), lease=first.lease, release=True) == Saved(0)
        async with client(pair.primary.url) as redis:
            assert await redis.wait(1, 5000) == 1  # whatever was written so far is there
        pair.stream.stall()
        second = await store.acquire_lease("t", "worker-2", LONG)
        assert isinstance(second, Acquired)
        assert await store.save(numbered(1), lease=second.lease) == Saved(1)
        await store.close()

        survivor = await RedisStore.open(await pair.fail_over())
        assert await numbers(survivor) == [0]
        third = await survivor.acquire_lease("t", "worker-3", LONG)
        assert isinstance(third, Acquired)
        assert third.lease.token == second.lease.token == 2
        assert await survivor.save(numbered(2), lease=second.lease) == Saved(1)  # worker-2 isn't fenced out
        await survivor.close()


async def test_waiting_for_the_replica_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """With it: rows and tokens that can't be on the replica aren't answered, and a lease is given back."""
    async with replicated(tmp_path) as pair:
        store = await RedisStore.open(pair.primary.url, retries=RetryOptions(max_attempts=1), **WAITING)
        answered = list(range(10))
        for n in answered:
            assert await store.save(numbered(n), expected=n - 1) == Saved(n)
        pair.stream.stall()
        message = "the row of thread 't' is saved, but on 0 of 1 replicas"
        with pytest.raises(Unavailable, match=message):
            await store.save(numbered(10), expected=9)
        with pytest.raises(Unavailable, match="the lease of thread 't' reached 0 of 1 replicas"):
            await store.acquire_lease("t", "worker-1", LONG)
        assert await store.get_lease("t") is None
        await store.close()

        survivor = await RedisStore.open(await pair.fail_over())
        assert await numbers(survivor) == answered
        lease = await survivor.acquire_lease("t", "worker-2", LONG)
        assert isinstance(lease, Acquired)
        assert lease.lease.token == 1  # the token that nobody was given
        await survivor.close()


async def test_a_repeated_save_waits_again(tmp_path: Path) -> None:
    """The row is found, and answered only when the replica has it; it is there once."""
    async with replicated(tmp_path) as pair:
        retries = RetryOptions(max_attempts=4, initial_delay=timedelta(milliseconds=1))
        store = await RedisStore.open(pair.primary.url, retries=retries, **WAITING)
        waits = 0

        async def sleep(_: float) -> None:
            nonlocal waits
            waits += 1
            if waits == 2:  # once with the row found, and still not on the replica
                pair.stream.resume()

        store._retries = replace(store._retries, sleep=sleep)
        await store.save(numbered(0))
        for n, expected in ((1, None), (2, 1)):
            waits = 0
            pair.stream.stall()
            assert await store.save(numbered(n), expected=expected) == Saved(n)
            assert waits >= 2
        assert await store.save(numbered(9), expected=0) == NotLatest()
        await store.close()
        survivor = await RedisStore.open(await pair.fail_over())
        assert await numbers(survivor) == [0, 1, 2]
        await survivor.close()


async def test_a_wait_covers_all_saves_at_once(tmp_path: Path) -> None:
    async with replicated(tmp_path) as pair:
        store = await RedisStore.open(pair.primary.url, wait_replicas=1, wait_timeout=LONG)
        rows = [sample(f"t{n}") for n in range(100)]
        answers = await asyncio.gather(*(store.save(row) for row in rows), store.load("t0"))
        assert answers[:-1] == [Saved(0)] * 100
        async with client(pair.primary.url) as redis:
            calls = (await redis.info("commandstats"))["cmdstat_wait"]["calls"]
        assert calls < 10
        await store.close()
        survivor = await RedisStore.open(await pair.fail_over())
        assert None not in [await survivor.load(row.thread_id) for row in rows]
        await survivor.close()
