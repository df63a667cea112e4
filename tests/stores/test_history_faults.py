"""Histories on a bad wire: an append happens once, and its caller learns what can be known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from outcrop.stores import Unavailable
from outcrop.stores.history import Message, Role
from outcrop.stores.history.postgres import PostgresHistoryStore
from outcrop.stores.history.redis import RedisHistoryStore
from outcrop.stores.options import RetryOptions
from outcrop.stores.redis.pipeline import Pipeline
from outcrop.stores.retries import Retries
from support.postgres import fresh_database
from support.proxy import proxied

QUICK = RetryOptions(initial_delay=timedelta(milliseconds=1), max_delay=timedelta(milliseconds=5))
MESSAGE = Message(Role.USER, "once", datetime(2026, 11, 30, tzinfo=UTC))


async def test_an_append_in_doubt_is_not_repeated_in_postgres(postgres_server: str) -> None:
    """H9."""
    async with fresh_database(postgres_server) as url, proxied(url) as proxy:
        store = await PostgresHistoryStore.open(proxy.url(url), retries=QUICK)
        await store.append("s", MESSAGE)
        proxy.drop_answers(containing=b"once")
        with pytest.raises(Unavailable):
            await store.append("s", MESSAGE)
        assert await store.get_history("s", 9) == (MESSAGE, MESSAGE)
        await store.close()


async def test_an_append_in_doubt_is_not_repeated_in_redis(redis_server: str) -> None:
    """H9."""
    async with proxied(redis_server) as proxy:
        store = await RedisHistoryStore.open(proxy.url(redis_server), prefix=f"t{uuid4().hex}", retries=QUICK)
        proxy.drop_answers(containing=b"once")
        with pytest.raises(Unavailable):
            await store.append("s", MESSAGE)
        assert await store.get_history("s", 9) == (MESSAGE,)
        await store.close()


async def test_reading_and_the_next_append_survive_a_cut_in_postgres(postgres_server: str) -> None:
    """H5."""
    async with fresh_database(postgres_server) as url, proxied(url) as proxy:
        store = await PostgresHistoryStore.open(proxy.url(url), retries=QUICK)
        await store.append("s", MESSAGE)
        proxy.drop_answers(containing=b"s")
        assert await store.get_history("s", 9) == (MESSAGE,)
        await store.append("s", MESSAGE)
        assert await store.get_history("s", 9) == (MESSAGE, MESSAGE)
        await store.close()


async def test_reading_and_the_next_append_survive_a_cut_in_redis(redis_server: str) -> None:
    """H5."""
    async with proxied(redis_server) as proxy:
        store = await RedisHistoryStore.open(proxy.url(redis_server), prefix=f"t{uuid4().hex}", retries=QUICK)
        await store.append("s", MESSAGE)
        proxy.drop_answers(containing=b"LRANGE")
        assert await store.get_history("s", 9) == (MESSAGE,)
        await store.append("s", MESSAGE)
        assert await store.get_history("s", 9) == (MESSAGE, MESSAGE)
        await store.close()


async def test_an_append_that_was_surely_not_done_is_repeated(redis_server: str) -> None:
    """H9: the server can't be reached until the first wait."""
    async with proxied(redis_server) as proxy:

        async def wait(_: float) -> None:
            proxy.resume()

        pipeline = Pipeline(proxy.url(redis_server))
        store = RedisHistoryStore(pipeline, f"t{uuid4().hex}", Retries(options=QUICK, sleep=wait))
        proxy.refuse()
        await store.append("s", MESSAGE)
        assert await store.get_history("s", 9) == (MESSAGE,)
        await store.close()


async def test_an_unreachable_server_is_told_without_secrets() -> None:
    """F1, G1."""
    for opening in (
        PostgresHistoryStore.open("postgres://u:secret@127.0.0.1:1/d", retries=QUICK),
        RedisHistoryStore.open("redis://u:secret@127.0.0.1:1/0", retries=QUICK),
    ):
        with pytest.raises(Unavailable) as caught:
            await opening
        assert "secret" not in str(caught.value)
