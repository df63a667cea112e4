"""A Postgres store behind a real PgBouncer in transaction mode, with `prepared` off."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from outcrop.stores import Acquired, LeaseLost, NotLatest, Saved, Status, ThreadQuery
from outcrop.stores.contract import sample
from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions
from outcrop.stores.postgres import PostgresStore
from support.postgres import fresh_database, pgbouncer
from support.proxy import proxied

if TYPE_CHECKING:
    from outcrop.stores import Store

ONE_TRY = RetryOptions(max_attempts=1)

TTL = timedelta(seconds=30)


async def use(store: Store, thread_id: str, rounds: int) -> None:
    """Each kind of call, over and over, checking every answer."""
    for at in range(0, 2 * rounds, 2):
        acquired = await store.acquire_lease(thread_id, "worker", TTL, expected=at - 1)
        assert isinstance(acquired, Acquired)
        lease = acquired.lease
        assert await store.renew_lease(lease, TTL) is not None
        row = sample(
            thread_id, Status.RUNNING, next_node="N", frozen_state=f'{{"at":{at},"same":"{"x" * 100}"}}'
        )
        assert await store.save(row, expected=at - 1, lease=lease) == Saved(at)
        assert await store.save(row, expected=at - 1, lease=lease) == NotLatest()
        assert await store.save(row, lease=lease, release=True) == Saved(at + 1)
        assert await store.get_lease(thread_id) is None
        loaded = await store.load(thread_id)
        assert loaded is not None
        assert (loaded.sequence, loaded.checkpoint) == (at + 1, row)
        threads = await store.list_threads(ThreadQuery(states={row.state}, limit=1000))
        assert thread_id in {summary.thread_id for summary in threads.threads}
    assert [row.sequence for row in (await store.get_log(thread_id)).entries] == list(range(2 * rounds))
    assert isinstance(await store.acquire_lease(thread_id, "other", TTL), Acquired)
    assert await store.save(row, lease=lease) == LeaseLost()


async def test_many_clients_share_a_few_server_connections(postgres_server: str) -> None:
    """Without retries: not one statement lands on a connection that doesn't know it."""
    options: tuple[dict[str, Any], ...] = (
        {},
        {"deltas": DeltaOptions(full_every=3), "offload": OffloadOptions(threshold=50)},
        {"group_commit": GroupCommitOptions(max_concurrent_flushes=2)},
    )
    async with fresh_database(postgres_server) as database:
        with pgbouncer(database, connections=3) as url:
            stores = [
                await PostgresStore.open(url, prepared=False, retries=ONE_TRY, **kind) for kind in options
            ]
            await asyncio.gather(
                *(use(store, f"{kind}-{at}", 5) for kind, store in enumerate(stores) for at in range(12))
            )
            async with stores[0].renewals() as leases:
                assert await leases.get_lease("0-0") is not None
            for store in stores:
                await store.close()
            reader = await PostgresStore.open_read_only(url, prepared=False, retries=ONE_TRY)
            logs = await asyncio.gather(*(reader.get_log(f"1-{at}") for at in range(12)))
            assert [len(log.entries) for log in logs] == [10] * 12
            await reader.close()


async def test_a_save_whose_answer_pgbouncer_lost_is_there_once(postgres_server: str) -> None:
    """H7."""
    async with fresh_database(postgres_server) as database:
        with pgbouncer(database, connections=2) as url:
            async with proxied(url) as proxy:
                store = await PostgresStore.open(proxy.url(url), prepared=False)
                await store.save(sample("t", metadata={"at": "0"}))
                proxy.drop_answers(containing=b"at-one")
                assert await store.save(sample("t", metadata={"at": "at-one"})) == Saved(1)
                proxy.drop_answers(containing=b"at-two")
                assert await store.save(sample("t", metadata={"at": "at-two"}), expected=1) == Saved(2)
                assert proxy.dropped == 2
                assert len((await store.get_log("t")).entries) == 3
                await store.close()
