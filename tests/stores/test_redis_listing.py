"""Listing on Redis: candidates by time, pages that may be short, and rows too large to read for it."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import CorruptRow, InvalidRequest, Saved, Status, ThreadQuery, ThreadState
from outcrop.stores.codec import encode
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.options import DeltaOptions, OffloadOptions
from outcrop.stores.query import decode_cursor, encode_cursor
from support.redis import RedisBinding, client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from outcrop.stores import Checkpoint, ThreadPage, ThreadSummary
    from outcrop.stores.redis import RedisStore

LARGE = '{"metadata":{"x":"y"},"text":"%s","created_at":"no"}' % ('x\\",\\"metadata\\":' * 500)


@pytest.fixture
def binding(redis_server: str) -> RedisBinding:
    return RedisBinding(redis_server)


async def pages(store: RedisStore, query: ThreadQuery) -> AsyncIterator[ThreadPage]:
    for _ in range(1000):
        page = await store.list_threads(query)
        assert len(page.threads) <= query.limit
        yield page
        if page.next_cursor is None:
            return
        query = replace(query, cursor=page.next_cursor)
    raise AssertionError("the cursor never ended")


async def listed(store: RedisStore, query: ThreadQuery | None = None) -> list[ThreadSummary]:
    return [it async for page in pages(store, query or ThreadQuery()) for it in page.threads]


def large(row: Checkpoint) -> Checkpoint:
    """The row with a large state at each level."""
    nested = None if row.nested is None else large(row.nested)
    return replace(row, frozen_state=LARGE, nested=nested)


@pytest.mark.parametrize(
    "options",
    [{}, {"deltas": DeltaOptions(), "offload": OffloadOptions(threshold=1)}],
    ids=["plain", "encoded"],
)
async def test_a_large_row_is_listed_without_its_state(
    options: dict[str, object], binding: RedisBinding
) -> None:
    """What is listed is the same for every shape, and comes from the heads."""
    rows = {name: replace(row, thread_id=name) for name, row in SHAPES.items()}
    async with binding.open(**options) as store, client(binding.url) as redis:
        for row in rows.values():
            await store.save(row)
            await store.save(row)
        small = await listed(store)
        assert len(small) == len(rows)
        for row in rows.values():
            await store.save(large(row))
        if not options:
            assert set(await redis.hkeys(f"{binding.prefix}:outcrop:heads")) == set(rows)
            for name in rows:  # a state can't be read, and isn't
                await redis.lset(f"{binding.prefix}:checkpoints:{name}", -1, "unreadable")
        assert await listed(store) == [replace(summary, sequence=2) for summary in small]


async def test_a_head_counts_only_for_its_row(binding: RedisBinding) -> None:
    """Another engine saves, or purges and begins anew, and knows no heads: they are passed over."""
    async with binding.open() as store, client(binding.url) as redis:
        await store.save(large(sample(metadata={"from": "us"})))
        list_key = f"{binding.prefix}:checkpoints:t"
        await redis.rpush(list_key, encode(large(sample(metadata={"from": "them"}))))
        await store.rebuild_index()
        assert [it.metadata for it in await listed(store)] == [{"from": "them"}]
        await store.save(large(sample(metadata={"from": "us again"})))
        assert [it.metadata for it in await listed(store)] == [{"from": "us again"}]
        await redis.delete(list_key)
        for _ in range(3):
            await redis.rpush(
                list_key, encode(large(sample(metadata={"anew": ""}, created_at="2026-02-01T00:00:00Z")))
            )
        await store.rebuild_index()
        assert [it.metadata for it in await listed(store)] == [{"anew": ""}]


async def test_heads_go_with_their_threads(binding: RedisBinding) -> None:
    """With a small row, a purge, a rebuild, or a listing that finds the list gone."""
    heads = f"{binding.prefix}:outcrop:heads"
    async with binding.open() as store, client(binding.url) as redis:
        for thread_id in ("small", "purged", "gone", "rebuilt", "kept"):
            status = Status.COMPLETED if thread_id == "purged" else Status.FAILED
            await store.save(large(sample(thread_id, status)))
        await store.save(sample("small", Status.FAILED))
        assert set(await redis.hkeys(heads)) == {"purged", "gone", "rebuilt", "kept"}
        assert await store.purge(datetime(2027, 1, 1, tzinfo=UTC), states={ThreadState.COMPLETED}) == 1
        await redis.delete(f"{binding.prefix}:checkpoints:gone")
        assert len(await listed(store)) == 3
        assert set(await redis.hkeys(heads)) == {"rebuilt", "kept"}
        await redis.delete(f"{binding.prefix}:checkpoints:rebuilt")
        await redis.zrem(f"{binding.prefix}:threads", "rebuilt")
        await store.rebuild_index()
        assert set(await redis.hkeys(heads)) == {"kept"}


async def test_a_page_ends_after_ten_candidates_a_place(binding: RedisBinding) -> None:
    """It may be empty, and has a cursor then; following it finds every thread once."""
    async with binding.open() as store:
        for n in range(60):
            metadata = {"wanted": "yes"} if n in {3, 30} else None
            await store.save(sample(f"t{n:02}", created_at=f"2026-01-01T00:00:{n:02}Z", metadata=metadata))
        query = ThreadQuery(metadata={"wanted": "yes"}, limit=2)
        found = [[it.thread_id for it in page.threads] async for page in pages(store, query)]
    assert found[:3] == [[], ["t30"], ["t03"]]
    assert not any(found[3:])


async def test_ids_of_one_second_are_in_the_order_of_their_bytes(binding: RedisBinding) -> None:
    """Whatever the server's locale, in one set or merged from several, a page at a time."""
    names = ["a", "B", "b", "Z", "_", "é", "日", "🚀", "~", "ab", "a-b", "A", "0", "00", ":", "*"]
    statuses = itertools.cycle([Status.FAILED, Status.ENDED, Status.COMPLETED])
    order = random.Random(1).sample(names, len(names))
    wanted = sorted(names, key=str.encode, reverse=True)
    states = frozenset({ThreadState.FAILED, ThreadState.ENDED, ThreadState.COMPLETED})
    async with binding.open() as store:
        for name, status in zip(order, statuses, strict=False):
            await store.save(sample(name, status))
        for limit in (1, 2, 5, 100):
            for query in (ThreadQuery(limit=limit), ThreadQuery(limit=limit, states=states)):
                assert [it.thread_id for it in await listed(store, query)] == wanted


async def test_a_listing_goes_on_when_its_last_thread_moved(binding: RedisBinding) -> None:
    """Or went: the start is where it would be."""
    async with binding.open() as store:
        for name in "abcdef":
            await store.save(sample(name))
        page = await store.list_threads(ThreadQuery(limit=3))
        assert [it.thread_id for it in page.threads] == ["f", "e", "d"]
        assert await store.save(sample("d", created_at="2026-06-01T00:00:00Z")) == Saved(1)
        rest = await listed(store, ThreadQuery(limit=3, cursor=page.next_cursor))
        assert [it.thread_id for it in rest] == ["c", "b", "a"]


async def test_cursors_are_those_of_every_engine(binding: RedisBinding) -> None:
    async with binding.open() as store:
        for day in (1, 2, 3):
            await store.save(sample(f"t{day}", created_at=f"2026-01-0{day}T00:00:00Z"))
        page = await store.list_threads(ThreadQuery(limit=1))
        assert page.next_cursor is not None
        assert decode_cursor(page.next_cursor) == ("2026-01-03T00:00:00Z", "t3")
        elsewhere = encode_cursor("2026-01-02T12:00:00Z", "anything")
        assert [it.thread_id for it in await listed(store, ThreadQuery(cursor=elsewhere))] == ["t2", "t1"]
        before = ThreadQuery(cursor=elsewhere, updated_before=datetime(2026, 1, 2, tzinfo=UTC))
        assert [it.thread_id for it in await listed(store, before)] == ["t1"]
        for bad in (encode_cursor("yesterday", "t"), encode_cursor("2026-01-02T12:00:00.5Z", "t")):
            with pytest.raises(InvalidRequest, match="is not a thread listing cursor"):
                await store.list_threads(ThreadQuery(cursor=bad))


async def test_a_bad_score_is_told(binding: RedisBinding) -> None:
    async with binding.open() as store, client(binding.url) as redis:
        for name in ("a", "b"):
            await store.save(sample(name))
        await redis.zadd(f"{binding.prefix}:threads", {"b": 2026010203040550})
        assert [it.thread_id for it in await listed(store)] == ["b", "a"]
        with pytest.raises(CorruptRow, match="bad index score '2026010203040550'"):
            await store.list_threads(ThreadQuery(limit=1))
