"""Calls whose callers give up, several calls at once, and what a store that is open to read refuses."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import (
    Acquired,
    Checkpoint,
    Lease,
    Saved,
    StoreError,
    ThreadState,
    Unavailable,
    open_store,
)
from outcrop.stores.calls import Calls, all_of
from outcrop.stores.contract import sample
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.options import OffloadOptions, RetryOptions
from outcrop.stores.redis.pipeline import Pipeline
from support.proxy import proxied
from support.redis import RedisBinding, fresh_prefix, redis_process
from support.storages import KINDS, Places

if TYPE_CHECKING:
    from pathlib import Path

LONG = timedelta(minutes=5)
ONE_TRY = RetryOptions(max_attempts=1)


def numbered(n: int) -> Checkpoint:
    return sample(frozen_state=json.dumps({"n": n, "evidence": "e" * 80}))


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def given_up(task: asyncio.Task[object]) -> None:
    """Cancel a caller that is waiting."""
    await asyncio.sleep(0.05)  # until its call is on the wire
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_call_goes_on_when_its_caller_gives_up() -> None:
    calls, gate, ended = Calls(), asyncio.Event(), asyncio.Event()

    async def call() -> None:
        await gate.wait()
        ended.set()
        raise StoreError("nobody asks any more")  # nor does the loop complain

    task = asyncio.create_task(calls.whole(call()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    closing = asyncio.create_task(calls.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert ended.is_set()


async def test_several_calls_all_end_before_a_failure_is_told() -> None:
    gate, ended = asyncio.Event(), asyncio.Event()

    async def failing(why: str) -> None:
        raise StoreError(why)

    async def slow() -> None:
        await gate.wait()
        ended.set()

    task = asyncio.create_task(all_of([slow(), failing("first"), failing("second")]))
    await asyncio.sleep(0.01)
    assert not task.done()
    gate.set()
    with pytest.raises(StoreError, match="first"):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("failure", [StoreError("no"), asyncio.CancelledError()])
async def test_what_fails_while_it_opens_is_closed(failure: BaseException) -> None:
    closed: list[bool] = []

    class Opened:
        async def close(self) -> None:
            closed.append(True)

    async with closed_on_failure(Opened()):
        pass
    assert closed == []
    with pytest.raises(type(failure)):
        async with closed_on_failure(Opened()):
            raise failure
    assert closed == [True]


@pytest.mark.parametrize("engine", KINDS)
async def test_renewals_of_a_store_that_is_open_to_read_write_nothing(engine: str, places: Places) -> None:
    async with places.fresh(engine) as place:
        writer = await open_store(place.url)
        acquired = await writer.acquire_lease("t", "worker", LONG)
        assert isinstance(acquired, Acquired)
        reader = await open_store(place.url, read_only=True)
        async with reader.renewals() as leases:
            assert await leases.get_lease("t") == await writer.get_lease("t")
            for call in (
                leases.renew_lease(acquired.lease, 2 * LONG),
                leases.release_lease(acquired.lease),
                leases.acquire_lease("u", "worker", LONG),
            ):
                with pytest.raises(StoreError, match=r"read.?only|reading only"):
                    await call
        assert await writer.get_lease("t") == acquired.lease
        assert await writer.get_lease("u") is None
        await reader.close()
        await writer.close()


async def test_the_next_save_does_not_overtake_one_whose_caller_gave_up(redis_server: str) -> None:
    """Its bytes are held up on the wire, and come before the next one's all the same."""
    async with proxied(redis_server) as proxy:
        binding = RedisBinding(proxy.url(redis_server), retries=ONE_TRY)
        async with binding.open() as store:
            assert await store.save(numbered(0)) == Saved(0)
            proxy.stall(new_ones=False)
            await given_up(asyncio.create_task(store.save(numbered(1))))
            following = asyncio.create_task(store.save(numbered(2)))
            await asyncio.sleep(0.05)
            proxy.resume()
            assert await following == Saved(2)
            page = await store.get_log("t")
            assert [json.loads(row.checkpoint.frozen_state)["n"] for row in page.entries] == [0, 1, 2]


async def test_a_purge_is_carried_through_when_its_caller_gives_up(redis_server: str, tmp_path: Path) -> None:
    """The thread's blobs outside go with it, and closing waits for that."""
    async with proxied(redis_server) as proxy:
        binding = RedisBinding(proxy.url(redis_server), offload=OffloadOptions(threshold=64, folder=tmp_path))
        async with binding.open() as store:
            assert await store.save(numbered(0)) == Saved(0)
            assert files(tmp_path)
            proxy.stall(new_ones=False)
            purge = store.purge(datetime(2026, 2, 1, tzinfo=UTC), states={ThreadState.COMPLETED})
            await given_up(asyncio.create_task(purge))
            proxy.resume()
        assert not files(tmp_path)


async def test_a_lease_on_too_few_replicas_is_given_back_when_its_caller_gives_up(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as server:
        binding = RedisBinding(
            server.url, retries=ONE_TRY, wait_replicas=1, wait_timeout=timedelta(milliseconds=300)
        )
        async with binding.open() as store:
            await given_up(asyncio.create_task(store.acquire_lease("t", "worker", LONG)))
        async with RedisBinding(server.url).open() as other:
            assert await other._pipeline.call("EXISTS", f"{binding.prefix}:leases:t") == 0
            assert await other._pipeline.call("GET", f"{binding.prefix}:lease-tokens:t") == b"1"


async def test_an_acquisition_that_could_not_be_given_back_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H9: its lease stands, so another attempt would only meet that one."""
    async with redis_process(tmp_path) as server:
        binding = RedisBinding(server.url, wait_replicas=1, wait_timeout=timedelta(milliseconds=10))
        async with binding.open() as store:

            async def unavailable(_: Lease) -> bool:
                raise Unavailable("surely not done")

            monkeypatch.setattr(store, "_release", unavailable)
            with pytest.raises(Unavailable, match=r"couldn't be given back: it ends with its ttl$"):
                await store.acquire_lease("t", "worker", LONG)
            lease = await store.get_lease("t")
            assert lease is not None
            assert lease.token == 1


async def test_a_purge_that_fails_at_one_thread_ends_the_others_first(
    redis_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    binding = RedisBinding(redis_server)
    async with binding.open() as store:
        for thread in ("a", "b", "c"):
            await store.save(sample(thread))
        gate = asyncio.Event()
        purged: list[str] = []
        answers = iter([StoreError("no room"), 1, 1])

        async def purge_thread(thread_id: str, *_: object) -> bool:
            answer = next(answers)
            if isinstance(answer, StoreError):
                raise answer
            await gate.wait()
            purged.append(thread_id)
            return True

        monkeypatch.setattr(store, "_purge_thread", purge_thread)
        purging = asyncio.create_task(
            store.purge(datetime(2026, 2, 1, tzinfo=UTC), states={ThreadState.COMPLETED})
        )
        await asyncio.sleep(0.05)
        assert not purging.done()
        gate.set()
        with pytest.raises(StoreError, match="no room"):
            await purging
        assert purged == ["b", "c"]


async def test_a_fault_of_the_driver_fails_the_calls_on_the_wire_alone(
    redis_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait go on over a new connection."""
    monkeypatch.setattr("outcrop.stores.redis.pipeline._MOST_CALLS", 1)
    pipeline, key = Pipeline(redis_server), fresh_prefix()
    await pipeline.call("PING")
    read = pipeline._connection.read_response

    async def faulty() -> object:
        monkeypatch.setattr(pipeline._connection, "read_response", read)
        raise ValueError("a secret")

    monkeypatch.setattr(pipeline._connection, "read_response", faulty)
    calls = (pipeline.call("INCR", key) for _ in range(3))
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert str(first) == "the connection to the Redis server broke: ValueError"
    assert isinstance(first, Unavailable)
    assert others == [2, 3]
    await pipeline.call("DEL", key)
    await pipeline.close()


async def test_calls_that_were_not_sent_when_the_loop_ends_are_never_sent(
    redis_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outcrop.stores.redis.pipeline._MOST_CALLS", 1)
    async with proxied(redis_server) as proxy:
        pipeline, key = Pipeline(proxy.url(redis_server)), fresh_prefix()
        await pipeline.call("PING")
        proxy.stall(new_ones=False)
        calls = [asyncio.create_task(pipeline.call("INCR", key)) for _ in range(3)]
        await asyncio.sleep(0.05)
        sender = pipeline._sender
        assert sender is not None
        sender.cancel()  # as a loop does that ends
        sent, *waiting = await asyncio.gather(*calls, return_exceptions=True)
        assert str(sent) == "the connection to the Redis server broke: CancelledError"
        for answer in waiting:
            assert str(answer) == "the call wasn't sent: the Redis store's event loop ends"
        proxy.resume()
        assert int(await pipeline.call("INCR", key)) <= 2
        await pipeline.call("DEL", key)
        await pipeline.close()
