"""Long-term memories on a bad wire."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from outcrop.stores.longterm import Embedding, Search
from outcrop.stores.longterm.postgres import PostgresLongTermStore
from outcrop.stores.longterm.redis import RedisLongTermStore
from outcrop.stores.options import RetryOptions
from support.longterm import HandClock, pgvector_server, query_engine_server, record
from support.postgres import fresh_database
from support.proxy import proxied

QUICK = RetryOptions(initial_delay=timedelta(milliseconds=1), max_delay=timedelta(milliseconds=5))
WANTED = Search(namespace="notes", embedding=Embedding("m", (1.0, 0.0)))


async def test_calls_survive_a_cut_and_a_lost_answer_in_postgres() -> None:
    """H4, H5."""
    server = pgvector_server()
    async with fresh_database(server) as url, proxied(url) as proxy:
        store = await PostgresLongTermStore.open(
            proxy.url(url), dimensions=2, retries=QUICK, clock=HandClock()
        )
        await store.upsert(record("before"))
        proxy.drop_answers(containing=b"lost-answer")
        await store.upsert_many([record("lost-answer"), record("other")])
        proxy.cut()
        assert len(await store.search(WANTED)) == 3
        await store.close()


async def test_calls_survive_a_cut_and_a_lost_answer_in_redis() -> None:
    """H4, H5."""
    server = query_engine_server()
    async with proxied(server) as proxy:
        store = await RedisLongTermStore.open(
            proxy.url(server), dimensions=2, prefix=f"t{uuid4().hex}", retries=QUICK, clock=HandClock()
        )
        await store.upsert(record("before"))
        proxy.drop_answers(containing=b"lost-answer")
        await store.upsert_many([record("lost-answer"), record("other")])
        proxy.cut()
        assert len(await store.search(WANTED)) == 3
        await store.close()
