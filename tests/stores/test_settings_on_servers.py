"""Sections of a settings document reach the servers they are for."""

from __future__ import annotations

import pytest

from outcrop.stores.errors import StoreError
from outcrop.stores.settings import StoreSettings, open_configured, open_configured_long_term
from support.longterm import query_engine_server, record
from support.postgres import fresh_database
from support.redis import client, fresh_prefix
from support.rows import checkpoint


async def test_auto_migrate_reaches_postgres(postgres_server: str) -> None:
    """P5."""
    async with fresh_database(postgres_server) as url:
        manual = StoreSettings.of({"postgres": {"url": url, "auto_migrate": False}}).postgres
        with pytest.raises(StoreError, match="run its migration"):
            await open_configured(manual)
        await (await open_configured(StoreSettings.of({"postgres": {"url": url}}).postgres)).close()
        store = await open_configured(manual)
        assert await store.load("t") is None
        await store.close()


async def test_prefix_and_ttl_reach_redis(redis_server: str) -> None:
    """P5."""
    prefix = fresh_prefix()
    document = {"redis": {"url": redis_server, "prefix": prefix, "finished_thread_ttl": "1m"}}
    store = await open_configured(StoreSettings.of(document).redis)
    await store.save(checkpoint("completed"))
    await store.close()
    async with client(redis_server) as redis:
        keys = [key async for key in redis.scan_iter(f"{prefix}:*", count=1000)]
        lives = [await redis.pttl(key) for key in keys]
        await redis.delete(*keys)
    assert [0 < life <= 60_000 for life in lives if life != -1] == [True]


@pytest.mark.parametrize(("prefix", "shared"), [(None, True), (" ", True), ("own", False)])
async def test_a_memory_without_a_prefix_has_that_of_redis(prefix: str | None, *, shared: bool) -> None:
    """P6."""
    ours, server = fresh_prefix(), query_engine_server()
    own = None if prefix is None else f"{prefix}{ours}" if prefix.strip() else prefix
    document = {"redis": {"url": server, "prefix": ours}, "memory": {"dimensions": 2, "prefix": own}}
    settings = StoreSettings.of(document)
    store = await open_configured_long_term(settings.redis, settings.memory)
    await store.upsert(record("r"))
    await store.close()
    async with client(server) as redis:
        keys = [key async for key in redis.scan_iter(f"{ours if shared else own}:*", count=1000)]
    assert keys
