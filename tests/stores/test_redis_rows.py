"""The keys of a Redis prefix: elements, index sets, leases, expiry, exactly as every engine keeps them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import Acquired, CorruptRow, Held, InvalidRequest, Saved, Status, ThreadQuery, ThreadState
from outcrop.stores.codec import encode
from outcrop.stores.contract import SHAPES, sample
from support.redis import RedisBinding, client

if TYPE_CHECKING:
    from outcrop.stores import Lease
    from outcrop.stores.redis import RedisStore

LONG = timedelta(minutes=5)
TTL = timedelta(minutes=10)


@pytest.fixture
def binding(redis_server: str) -> RedisBinding:
    return RedisBinding(redis_server)


async def acquired(store: RedisStore, owner: str = "worker-1", thread_id: str = "t") -> Lease:
    answer = await store.acquire_lease(thread_id, owner, LONG)
    assert isinstance(answer, Acquired)
    return answer.lease


async def test_an_element_is_the_whole_row(binding: RedisBinding) -> None:
    """G2: exactly the wire JSON, a nested child inside it, one element a save."""
    async with binding.open() as store:
        for sequence, row in enumerate(SHAPES.values()):
            assert await store.save(row) == Saved(sequence)
    assert await binding.elements() == [encode(row) for row in SHAPES.values()]


async def test_a_pushed_row_is_loadable(binding: RedisBinding) -> None:
    """G2, G6: by any writer, in any key order; listings wait for a rebuild."""
    row = SHAPES["nested wait"]
    backwards = dict(reversed(json.loads(encode(row)).items()))
    async with binding.open() as store, client(binding.url) as redis:
        await redis.rpush(f"{binding.prefix}:checkpoints:t", json.dumps(backwards, indent=2))
        loaded = await store.load("t")
        assert loaded is not None
        assert (loaded.sequence, loaded.checkpoint) == (0, row)
        assert (await store.list_threads(ThreadQuery())).threads == ()
        assert await store.rebuild_index() == 1
        (summary,) = (await store.list_threads(ThreadQuery())).threads
        assert (summary.thread_id, summary.waiting_at) == ("t", row.waiting_at)


async def test_the_index_sets(binding: RedisBinding) -> None:
    """G3: members and scores of every set, by state; a waking thread's score is its updated_at."""
    waking = replace(SHAPES["nested wait"], thread_id="waking")
    rows = [
        waking,
        sample("event", Status.INTERRUPTED, wait=SHAPES["event wait"].wait),
        sample("failed", Status.FAILED, created_at="2026-01-01T00:00:00Z"),
        sample("cancelled", Status.CANCELLED),
        sample("resumed", Status.INTERRUPTED, resumed_at="2026-01-05T06:07:08Z", wait=waking.innermost.wait),
        sample("completed"),
        sample("ended", Status.ENDED),
        sample("running", Status.RUNNING),
    ]
    async with binding.open() as store:
        for row in rows:
            await store.save(sample(row.thread_id, Status.FAILED, created_at="2025-01-01T00:00:00Z"))
            await store.save(row)
    usual = 20260102030405
    sets = {
        "threads:waking": {"waking": usual},
        "threads:interrupted": {"waking": usual, "event": usual},
        "threads:failed": {"failed": 20260101000000},
        "threads:cancelled": {"cancelled": usual},
        "threads:resumed": {"resumed": 20260105060708},
        "threads:completed": {"completed": usual},
        "threads:ended": {"ended": usual},
        "threads:running": {"running": usual},
    }
    every = {
        thread: score
        for name, threads in sets.items()
        if name != "threads:waking"
        for thread, score in threads.items()
    }
    assert await binding.sets() == sets | {"threads": every}


async def test_a_thread_that_stops_waiting_leaves_its_set(binding: RedisBinding) -> None:
    async with binding.open() as store:
        await store.save(SHAPES["timer"])
        assert "threads:waking" in await binding.sets()
        await store.save(sample())
    assert (await binding.sets()).keys() == {"threads", "threads:completed"}


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", ""])
async def test_a_bad_time_is_refused(text: str, binding: RedisBinding) -> None:
    """Hazard 1: its score would sort the thread wrongly for ever."""
    async with binding.open() as store:
        with pytest.raises(InvalidRequest, match=f"bad timestamp '{text}' in the log: "):
            await store.save(sample(created_at=text))
        assert await store.load("t") is None


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05.999Z", "2026-01-02T05:04:05+02:00"])
async def test_another_shape_of_time_gets_the_right_score(text: str, binding: RedisBinding) -> None:
    async with binding.open() as store:
        await store.save(sample(created_at=text))
    assert (await binding.sets())["threads"] == {"t": 20260102030405}


async def test_a_lease_is_a_hash_that_expires(binding: RedisBinding) -> None:
    """C16: with owner and token; the counter has no expiry; a release deletes the hash only."""
    async with binding.open() as store, client(binding.url) as redis:
        lease = await acquired(store)
        key, counter = f"{binding.prefix}:leases:t", f"{binding.prefix}:lease-tokens:t"
        assert await redis.hgetall(key) == {"owner": "worker-1", "token": "1"}
        assert LONG.total_seconds() * 1000 - 5000 < await redis.pttl(key) <= LONG.total_seconds() * 1000
        assert (await redis.get(counter), await redis.pttl(counter)) == ("1", -1)
        assert lease.expires_at == datetime.fromtimestamp(await redis.pexpiretime(key) / 1000, UTC)
        await store.release_lease(lease)
        assert not await redis.exists(key)
        assert await redis.get(counter) == "1"


async def test_a_lease_set_by_hand_holds(binding: RedisBinding) -> None:
    """C16: another writer's, even without a ttl; after it is deleted, the count goes on."""
    async with binding.open() as store, client(binding.url) as redis:
        await store.release_lease(await acquired(store))
        key = f"{binding.prefix}:leases:t"
        await redis.hset(key, mapping={"owner": "by hand", "token": "7"})
        held = await store.acquire_lease("t", "worker-1", LONG)
        assert isinstance(held, Held)
        assert (held.lease.owner, held.lease.token, held.lease.expires_at.year) == ("by hand", 7, 9999)
        assert await store.get_lease("t") == held.lease
        await redis.delete(key)
        assert (await acquired(store)).token == 2
        await redis.delete(key)
        await redis.hset(key, mapping={"owner": "by hand"})
        with pytest.raises(CorruptRow, match="the lease of thread 't' has no token"):
            await store.get_lease("t")


async def test_finished_threads_expire(binding: RedisBinding) -> None:
    """G9: not while it waits; again for good when it goes on; under a lease the counter too."""
    keys = [f"{binding.prefix}:{part}:t" for part in ("checkpoints", "lease-tokens")]
    milliseconds = TTL.total_seconds() * 1000

    async def expiries() -> list[bool]:
        async with client(binding.url) as redis:
            left = [await redis.pttl(key) for key in keys]
        assert all(it < 0 or milliseconds - 10_000 < it <= milliseconds for it in left)
        return [it >= 0 for it in left]

    async with binding.open(finished_thread_ttl=TTL) as store:
        lease = await acquired(store)
        await store.save(sample(status=Status.INTERRUPTED))
        assert await expiries() == [False, False]
        await store.save(sample())
        assert await expiries() == [True, False]
        await store.save(sample(status=Status.RUNNING))
        assert await expiries() == [False, False]
        await store.save(sample(status=Status.ENDED), lease=lease)
        assert await expiries() == [True, True]
        await store.save(sample(status=Status.RUNNING))
        assert await expiries() == [False, True]  # a save without a lease leaves the counter alone
        await store.save(sample(status=Status.RUNNING), lease=lease)
        assert await expiries() == [False, False]
        await store.save(sample(status=Status.ENDED), lease=lease)
    async with binding.open() as store:
        await store.save(sample())  # finished again, without the option: untouched
        assert await expiries() == [True, True]


async def test_without_the_option_nothing_expires(binding: RedisBinding) -> None:
    """G9."""
    async with binding.open() as store, client(binding.url) as redis:
        await store.save(sample(), lease=await acquired(store))
        for key in await binding.keys() - {"leases:t"}:
            assert await redis.ttl(f"{binding.prefix}:{key}") == -1, key


async def test_a_short_expiry_is_refused(redis_server: str) -> None:
    """G9."""
    binding = RedisBinding(redis_server, finished_thread_ttl=timedelta(microseconds=999))
    with pytest.raises(InvalidRequest, match="a finished-thread ttl must be at least a millisecond"):
        async with binding.open():
            pass


async def test_an_expired_thread_leaves_the_listing(binding: RedisBinding) -> None:
    """G10: out of every set, when a listing meets it."""
    async with binding.open(finished_thread_ttl=timedelta(milliseconds=1)) as store:
        await store.save(sample("gone"))
        await store.save(sample("kept", Status.FAILED))
        await asyncio.sleep(0.05)
        page = await store.list_threads(ThreadQuery())
    assert [thread.thread_id for thread in page.threads] == ["kept"]
    assert (await binding.sets()).keys() == {"threads", "threads:failed"}


async def test_a_purge_leaves_nothing(binding: RedisBinding) -> None:
    """I6: no list, counter, lease, blob or set entry; a held and a newer thread stay whole."""
    async with binding.open() as store, client(binding.url) as redis:
        for thread_id in ("old", "held"):
            await store.save(sample(thread_id, created_at="2026-01-01T00:00:00Z"))
        await store.release_lease(await acquired(store, thread_id="old"))
        await redis.hset(f"{binding.prefix}:blobs:old", "sha256:0", "null")
        await acquired(store, thread_id="held")
        assert await store.purge(datetime(2026, 2, 1, tzinfo=UTC), states={ThreadState.COMPLETED}) == 1
    assert await binding.keys() == {
        *("checkpoints:held", "leases:held", "lease-tokens:held"),
        *("threads", "threads:completed", "threads:indexed"),
    }
    assert (await binding.sets())["threads"].keys() == {"held"}


async def test_a_purge_looks_at_the_row(binding: RedisBinding) -> None:
    """A row that another writer pushed without indexing it keeps its thread."""
    async with binding.open() as store, client(binding.url) as redis:
        await store.save(sample(created_at="2026-01-01T00:00:00Z"))
        await redis.rpush(
            f"{binding.prefix}:checkpoints:t", encode(sample(created_at="2026-03-01T00:00:00Z"))
        )
        assert await store.purge(datetime(2026, 2, 1, tzinfo=UTC), states={ThreadState.COMPLETED}) == 0
        assert await store.load("t") is not None


async def test_prefixes_are_apart(redis_server: str) -> None:
    """G7: one may begin like another, and hold what a pattern would take for a wildcard."""
    one, other = RedisBinding(redis_server), RedisBinding(redis_server)
    other.prefix = f"{one.prefix}[*]?\\"
    async with one.open() as first, other.open() as second:
        await first.save(sample(metadata={"in": "one"}))
        await second.save(sample("u"))
        await second.save(sample("v:w*"))
        assert await first.rebuild_index() == 1
        assert await second.rebuild_index() == 2
        assert [it.thread_id for it in (await first.list_threads(ThreadQuery())).threads] == ["t"]
        assert [it.thread_id for it in (await second.list_threads(ThreadQuery())).threads] == ["v:w*", "u"]
        assert await second.load("t") is None


async def test_concurrent_writers_lose_nothing(binding: RedisBinding) -> None:
    """G8: eight stores, one thread: every row once, each writer's in its order."""

    async def write(writer: int) -> None:
        async with binding.open() as store:
            for n in range(25):
                await store.save(sample(frozen_state=f"[{writer},{n}]"))

    await asyncio.gather(*map(write, range(8)))
    states = [json.loads(element)["frozen_state"] for element in await binding.elements()]
    assert len(states) == 200
    for writer in range(8):
        assert [n for it, n in states if it == writer] == list(range(25))


async def test_a_broken_row_is_named(binding: RedisBinding) -> None:
    async with binding.open() as store, client(binding.url) as redis:
        await redis.rpush(f"{binding.prefix}:checkpoints:t", "{}")
        for call in (store.load("t"), store.get_log("t")):
            with pytest.raises(CorruptRow) as refusal:
                await call
            assert refusal.value.__notes__ == ["in checkpoint 't' #0"]
