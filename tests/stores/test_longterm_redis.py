"""The long-term memory in Redis: its keys, its index, and what it refuses to open."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import redis.asyncio

from outcrop.stores import InvalidRequest, NewerSchema, StoreError
from outcrop.stores.longterm import Embedding, Hnsw, Listing, Search
from outcrop.stores.longterm.redis import RedisLongTermStore
from support.longterm import HandClock, query_engine_server, record


async def opened(prefix: str, dimensions: int = 4, **options: Any) -> RedisLongTermStore:
    return await RedisLongTermStore.open(
        query_engine_server(), dimensions=dimensions, prefix=prefix, clock=HandClock(), **options
    )


async def raw(*command: Any, url: str | None = None) -> Any:
    async with redis.asyncio.from_url(url or query_engine_server(), protocol=2) as client:
        return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # the driver's


@pytest.fixture
def prefix() -> str:
    return f"t{uuid4().hex}"


async def keys(prefix: str, url: str | None = None) -> list[bytes]:
    return sorted(await raw("KEYS", f"{prefix}:*", url=url))


async def test_the_keys_are_the_formats(prefix: str) -> None:
    """N3."""
    store = await opened(prefix)
    await store.upsert(
        replace(
            record("a:1%", 0.125, -0.5, 0.25, 0.75, namespace="n", tenant="t"),
            content={"b": 1, "a": 2},
            text="x",
            metadata={"k": "v", "a": "b"},
        )
    )
    await store.close()
    record_key = f"{prefix}:memory:records:n:t:a%3A1%25"
    assert await keys(prefix) == sorted(
        key.encode()
        for key in (
            record_key,
            f"{prefix}:memory:ids:n:t",
            f"{prefix}:memory:schema",
            f"{prefix}:memory:updated",
        )
    )
    assert await raw("HGETALL", record_key) == {
        b"namespace": b"n",
        b"tenant": b"t",
        b"id": b"a:1%",
        b"model": b"m",
        b"embedding": bytes.fromhex("0000003e000000bf0000803e0000403f"),
        b"content": b'{"a":2,"b":1}',
        b"text": b"x",
        b"metadata": b'{"a":"b","k":"v"}',
        b"created_at": b"2026-11-30T12:00:00Z",
        b"updated_at": b"2026-11-30T12:00:00Z",
        b"_scope": b"x6ex74x6d",
        b"_id": b"x613a3125",
        b"_meta": b"x61x62,x6bx76",
    }
    assert await raw("ZRANGE", f"{prefix}:memory:ids:n:t", 0, -1, "WITHSCORES") == [b"a:1%", b"0"]
    updated = await raw("ZRANGE", f"{prefix}:memory:updated", 0, -1, "WITHSCORES")
    assert updated == [record_key.encode(), b"20261130120000"]
    assert await raw("HGETALL", f"{prefix}:memory:schema") == {b"version": b"1", b"dimensions": b"4"}


@pytest.mark.parametrize("kind", [None, Hnsw(m=8, ef_construction=32)])
async def test_the_index_is_the_formats(prefix: str, kind: Hnsw | None) -> None:
    """N3."""
    await (await opened(prefix, hnsw=kind)).close()
    told = await raw("FT.INFO", f"{prefix}:memory:idx")
    info = dict(zip(told[::2], told[1::2], strict=True)) if isinstance(told, list) else told
    text = repr(info)
    for part in ("_scope", "_id", "_meta", "FLOAT32", "COSINE", f"{prefix}:memory:records:", "HASH"):
        assert part in text
    assert ("HNSW" in text) is (kind is not None)


async def test_a_bare_record_has_no_empty_fields(prefix: str) -> None:
    """N3: also after one that had them."""
    store = await opened(prefix, 2)
    await store.upsert(replace(record("a"), content={}, text="x", metadata={"k": "v"}))
    await store.upsert(record("a"))
    await store.close()
    fields = set(await raw("HKEYS", f"{prefix}:memory:records:notes::a"))
    assert fields.isdisjoint({b"content", b"text", b"_meta"})


async def test_the_last_record_leaves_nothing_behind(prefix: str) -> None:
    store = await opened(prefix, 2)
    await store.upsert(record("a"))
    assert await store.delete(record("a").key)
    await store.close()
    assert await keys(prefix) == [f"{prefix}:memory:schema".encode()]


@pytest.mark.parametrize("kind", [None, Hnsw()])
async def test_a_search_right_after_a_batch_finds_all_of_it(prefix: str, kind: Hnsw | None) -> None:
    """N8: a thousand records in batches, several scopes in each."""
    store = await opened(prefix, 2, hnsw=kind)
    for start in range(0, 1000, 250):
        await store.upsert_many(
            [record(f"{n:04}", 1.0, n / 1000, tenant=str(n % 3)) for n in range(start, start + 250)]
        )
        for tenant in range(3):
            wanted = Search(
                namespace="notes", tenant=str(tenant), embedding=Embedding("m", (1.0, 0.5)), limit=1000
            )
            assert len(await store.search(wanted)) == sum(1 for n in range(start + 250) if n % 3 == tenant)
    await store.close()


async def test_ties_past_the_limit_are_all_looked_at(prefix: str) -> None:
    """N1: the index's order among equals is its own, the answer's is by ID."""
    store = await opened(prefix, 2)
    ids = [f"{n:03}" for n in range(300)]
    await store.upsert_many([record(each, 0.6, 0.8) for each in reversed(ids)])
    wanted = Search(namespace="notes", embedding=Embedding("m", (1.0, 0.0)), limit=3)
    assert [match.record.id for match in await store.search(wanted)] == ids[:3]
    await store.close()


async def test_what_is_too_long_to_be_found_is_refused(prefix: str) -> None:
    """The Query Engine forgets tags of more than 4,096 bytes without a word."""
    store = await opened(prefix, 2)
    longest, over = "v" * 2046, "v" * 2047  # a key of one byte, each byte as two hex digits
    await store.upsert(replace(record("a"), metadata={"k": longest, "o": over}))
    wanted = Search(namespace="notes", embedding=Embedding("m", (1.0, 0.0)))
    assert len(await store.search(replace(wanted, metadata={"k": longest}))) == 1
    with pytest.raises(InvalidRequest, match="the metadata 'o' is too long for Redis to search by"):
        await store.search(replace(wanted, metadata={"o": over}))
    with pytest.raises(InvalidRequest, match="the model is too long for Redis to search by"):
        await store.upsert(replace(record("b"), embedding=Embedding("m" * 2048, (1.0, 0.0))))
    assert await store.get(record("b").key) is None
    longest_model = Embedding("m" * (2046 - len("notes")), (1.0, 0.0))
    await store.upsert(replace(record("b"), embedding=longest_model))
    assert len(await store.search(replace(wanted, embedding=longest_model))) == 1
    await store.close()


async def test_long_listings_go_on_past_a_page_of_the_set(prefix: str) -> None:
    store = await opened(prefix, 2)
    await store.upsert_many(
        [replace(record(f"{n:05}"), metadata={"last": str(n == 1049)}) for n in range(1050)]
    )
    page = await store.list_records(Listing(namespace="notes", metadata={"last": "True"}))
    assert [each.id for each in page.records] == ["01049"]
    await store.close()


async def test_opening_again_keeps_index_and_records(prefix: str) -> None:
    """N4, N8."""
    first = await opened(prefix, 2)
    await first.upsert(record("a"))
    await first.close()
    again = await opened(prefix, 2)
    assert len(await again.search(Search(namespace="notes", embedding=Embedding("m", (1.0, 0.0))))) == 1
    await again.close()


async def test_other_dimensions_are_refused_but_under_another_prefix(prefix: str) -> None:
    """N5, G7."""
    first = await opened(prefix, 2)
    await first.upsert(record("a"))
    with pytest.raises(StoreError) as caught:
        await opened(prefix, 3)
    assert str(caught.value) == "memory was created with 2 dimensions, and this store was opened with 3"
    other = await opened(f"{prefix}:x", 3)
    assert await other.search(Search(namespace="notes", embedding=Embedding("m", (1, 0, 0)))) == ()
    await other.close()
    await first.close()


async def test_the_loser_of_a_race_for_the_dimensions_makes_no_index(prefix: str) -> None:
    """N8."""
    outcomes = await asyncio.gather(opened(prefix, 2), opened(prefix, 3), return_exceptions=True)
    winners = [each for each in outcomes if isinstance(each, RedisLongTermStore)]
    assert len(winners) == 1
    pinned = int(await raw("HGET", f"{prefix}:memory:schema", "dimensions"))
    assert f"'dim', {pinned}" in repr(await raw("FT.INFO", f"{prefix}:memory:idx")).replace("b'", "'")
    await winners[0].close()


async def test_a_newer_prefix_is_refused(prefix: str) -> None:
    """N4."""
    await raw("HSET", f"{prefix}:memory:schema", "version", 2, "dimensions", 4)
    with pytest.raises(NewerSchema, match="memory schema version 2, and this build knows 1"):
        await opened(prefix)
    assert f"{prefix}:memory:idx".encode() not in await raw("FT._LIST")


async def test_without_the_query_engine_nothing_is_left_behind(redis_server: str, prefix: str) -> None:
    """N4: the exact refusal of a plain Redis 7."""
    with pytest.raises(StoreError) as caught:
        await RedisLongTermStore.open(redis_server, dimensions=4, prefix=prefix)
    assert str(caught.value) == (
        "memory on Redis needs the Query Engine (Redis 8 or Redis Stack): FT.CREATE is unknown"
    )
    assert await keys(prefix, redis_server) == []
