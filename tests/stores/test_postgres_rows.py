"""Postgres rows: columns, what JSONB does to values, who waits for whom (F2-F3, F6, F10, C13-C14, I6)."""

from __future__ import annotations

import asyncio
import json
import traceback
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import pytest

from outcrop.stores import (
    Acquired,
    Checkpoint,
    CorruptRow,
    Decision,
    Held,
    InvalidRequest,
    Saved,
    Status,
    StoreError,
    ThreadQuery,
)
from outcrop.stores.codec import encode, same_as
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.postgres import PostgresStore
from outcrop.stores.postgres.numbers import with_fixed_floats
from support.postgres import spare_database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

RAW = (
    "INSERT INTO checkpoints (thread_id, sequence, schema_version, status, frozen_state, metadata,"
    " created_at, resumed_at, wait, wake_at) "
    "VALUES ($1, $2, '1.0.0', $3, '{\"raw\":true}', $4, $5, $6, $7, $8)"
)
Opened: TypeAlias = "tuple[PostgresStore, asyncpg.Connection, str]"
TTL = timedelta(seconds=30)


@asynccontextmanager
async def opened(
    server: str, **options: Any
) -> AsyncGenerator[tuple[PostgresStore, asyncpg.Connection, str]]:
    """A store, a connection beside it, and their URL."""
    async with spare_database(server) as url:
        store = await PostgresStore.open(url, **options)
        beside = await asyncpg.connect(url)
        try:
            yield store, beside, url
        finally:
            await beside.close()
            await store.close()


@pytest.mark.parametrize("name", SHAPES)
async def test_columns_of_every_shape(name: str, postgres_server: str) -> None:
    """F2."""
    row = SHAPES[name]
    async with opened(postgres_server) as (store, beside, _):
        await store.save(row)
        stored = dict(await beside.fetchrow("SELECT * FROM checkpoints") or {})
    whole = json.loads(encode(row))
    wait, graph = row.innermost.wait, row.graph
    for column in ("frozen_state", "metadata", "nested", "decision", "wait"):
        text = stored.pop(column)
        assert (None if text is None else json.loads(text)) == whole.get(column)
    same = (
        "thread_id",
        "schema_version",
        "status",
        "suspended_node",
        "next_node",
        "created_at",
        "resumed_at",
    )
    assert stored == {
        **{column: whole[column] for column in same},
        "sequence": 0,
        "wake_at": None if wait is None else wait.wake_at,
        "graph_id": None if graph is None else graph.id,
        "graph_version": None if graph is None else graph.version,
    }


async def test_raw_inserts_are_loadable_and_move_the_head_forward_only(postgres_server: str) -> None:
    """F3: the due listing reads `wake_at` of the head."""
    at, later = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    async with opened(postgres_server) as (store, beside, _):
        wait = '{"kind":"timer","event_type":null,"wake_at":"2026-01-05T00:00:00Z"}'
        await beside.execute(RAW, "t", 1, "interrupted", '{"a":"1"}', at, None, wait, "2026-01-05T00:00:00Z")
        await beside.execute(RAW, "t", 0, "failed", None, later, None, None, None)
        row = await store.load("t")
        assert row is not None
        assert (row.sequence, row.checkpoint.frozen_state) == (1, '{"raw":true}')
        for due, found in (("2026-01-05T00:00:00+00:00", ["t"]), ("2026-01-04T23:59:59+00:00", [])):
            page = await store.list_threads(ThreadQuery(due_by=datetime.fromisoformat(due)))
            assert [summary.thread_id for summary in page.threads] == found
        await beside.execute(RAW, "t", 2, "interrupted", None, at, later, None, None)
        heads = await beside.fetch("SELECT sequence, state, updated_at, wake_at FROM checkpoint_threads")
        assert list(map(tuple, heads)) == [(2, "resumed", later, None)]
        assert await store.save(sample()) == Saved(3)


async def test_writers_of_one_thread_wait_for_each_other(postgres_server: str) -> None:
    """F6: contiguous, each writer's order kept, the head at the last row."""
    async with opened(postgres_server) as (store, beside, url):
        stores = [await PostgresStore.open(url, pool_size=1) for _ in range(8)]

        async def write(writer: int) -> None:
            for number in range(15):
                await stores[writer].save(sample(metadata={"by": str(writer), "number": str(number)}))

        await asyncio.gather(*map(write, range(8)))
        entries = (await store.get_log("t", limit=1000)).entries
        assert [row.sequence for row in entries] == list(range(120))
        for writer in range(8):
            marks = [row.checkpoint.metadata or {} for row in entries]
            assert [mark["number"] for mark in marks if mark["by"] == str(writer)] == [
                str(n) for n in range(15)
            ]
        assert await beside.fetchval("SELECT sequence FROM checkpoint_threads") == 119
        await asyncio.gather(*(each.close() for each in stores))


async def test_the_pool_has_a_size(postgres_server: str) -> None:
    """F10."""
    async with opened(postgres_server, pool_size=3) as (store, beside, _):
        count = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        seen: list[int] = []

        async def write(writer: int) -> None:
            for _ in range(10):
                await store.save(sample(str(writer)))
                await store.load(str(writer))

        async def look() -> None:
            while len((await store.list_threads(ThreadQuery())).threads) < 12:
                seen.append(await beside.fetchval(count))

        await asyncio.gather(look(), *map(write, range(12)))
        assert await beside.fetchval(count) in {2, 3}
        assert max(seen) <= 3


async def test_saves_of_other_threads_do_not_wait(postgres_server: str) -> None:
    async with opened(postgres_server) as (store, beside, _):
        async with beside.transaction():
            await beside.execute("SELECT pg_advisory_xact_lock(hashtextextended('checkpoints:t', 0))")
            blocked = asyncio.ensure_future(store.save(sample("t")))
            leased = asyncio.ensure_future(store.acquire_lease("t", "w", TTL))
            assert await store.save(sample("u")) == Saved(0)
            waiting = (
                "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database "
                "WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"
            )
            while await beside.fetchval(waiting) < 2:
                pass
            assert [blocked.done(), leased.done()] == [False, False]
            await beside.execute(RAW, "t", 0, "running", None, "2026-01-01T00:00:00Z", None, None, None)
        assert await blocked == Saved(1)  # it looked after it had the lock
        assert isinstance(await leased, Acquired)


async def test_a_lock_is_the_peers(postgres_server: str) -> None:
    async with opened(postgres_server) as (_, beside, _):
        assert (
            await beside.fetchval("SELECT hashtextextended('checkpoints:order-1001', 0)")
            == 1669909943412370135
        )


async def test_leases_that_others_left(postgres_server: str) -> None:
    """C13, C14: live, expired, released; a released row keeps its token."""
    async with opened(postgres_server) as (store, beside, _):
        await beside.execute(
            "INSERT INTO checkpoint_leases VALUES ('live', 'w9', 4, clock_timestamp() + interval '1 hour'),"
            "('expired', 'w9', 5, clock_timestamp() - interval '1 second'), ('released', NULL, 6, NULL)"
        )
        live = await store.acquire_lease("live", "w", TTL)
        assert isinstance(live, Held)
        assert (live.lease.owner, live.lease.token) == ("w9", 4)
        for thread_id, token in (("expired", 6), ("released", 7)):
            assert await store.get_lease(thread_id) is None
            taken = await store.acquire_lease(thread_id, "w", TTL)
            assert isinstance(taken, Acquired)
            assert taken.lease.token == token
            assert await store.get_lease(thread_id) == taken.lease
            server_now: datetime = await beside.fetchval("SELECT clock_timestamp()")
            assert abs(taken.lease.expires_at - TTL - server_now) < timedelta(seconds=5)
            await store.release_lease(taken.lease)
            row = await beside.fetchrow("SELECT * FROM checkpoint_leases WHERE thread_id = $1", thread_id)
            assert tuple(row or ()) == (thread_id, None, token, None)


async def test_nothing_of_a_purged_thread_is_left(postgres_server: str) -> None:
    """I6."""
    async with opened(postgres_server) as (store, beside, _):
        for thread_id in ("gone", "stays"):
            taken = await store.acquire_lease(thread_id, "w", TTL)
            assert isinstance(taken, Acquired)
            await beside.execute("INSERT INTO checkpoint_blobs VALUES ($1, 'sha256:x', '')", thread_id)
            status = Status.COMPLETED if thread_id == "gone" else Status.FAILED
            await store.save(sample(thread_id, status), lease=taken.lease, release=True)
        assert await store.purge(datetime(2027, 1, 1, tzinfo=UTC), states={sample().state}) == 1
        for table in ("checkpoints", "checkpoint_threads", "checkpoint_leases", "checkpoint_blobs"):
            assert [row["thread_id"] for row in await beside.fetch(f"TABLE {table}")] == ["stays"]


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("1e16", "10000000000000000.0"),
        ("-1.5e+20", "-150000000000000000000.0"),
        ("1e-7", "0.0000001"),
        ("1.25e2", "125.0"),
        ("[1e0,2]", "[1.0,2]"),
        ('{"1e16":"1e16 \\"2e5","n":3E2}', '{"1e16":"1e16 \\"2e5","n":300.0}'),
        ("12345", "12345"),
        ("1e999999999", "1e999999999"),
    ],
)
def test_floats_are_written_out(text: str, fixed: str) -> None:
    assert with_fixed_floats(text) == fixed


async def test_floats_stay_floats_and_integers_integers(postgres_server: str) -> None:
    """Hazard 7."""
    numbers = [
        1e16,
        1e21,
        1.5e300,
        5e-324,
        1e-7,
        100.0,
        0.1,
        1.7976931348623157e308,
        2.0**70,
        -1e22,
        7,
        2**64 - 1,
    ]
    state = json.dumps({"numbers": numbers, "text": "1e16"})
    decision = Decision(
        "b", is_approved=True, reviewer="r", overrides={"n": 1e20}, decided_at="2026-01-01T00:00:00Z"
    )
    row = sample(frozen_state=state, decision=decision, nested=sample("c", frozen_state='{"n":1e19}'))
    async with opened(postgres_server) as (store, _, _):
        await store.save(row)
        loaded = await store.load("t")
    assert loaded is not None
    found = json.loads(loaded.checkpoint.frozen_state)
    assert (found["numbers"], list(map(type, found["numbers"]))) == (numbers, list(map(type, numbers)))
    assert same_as(loaded.checkpoint, row)


@pytest.mark.parametrize(
    ("row", "where"),
    [
        (sample("a\0b"), r"'a\\x00b' has a NUL in its thread_id"),
        (sample(next_node="N\0"), r"'t' has a NUL in its next_node"),
        (sample(frozen_state='{"a":[1,{"b":"x\\u0000y"}]}'), r"'t' has a NUL in frozen_state.a\[1\].b,"),
        (sample(frozen_state='{"a\\u0000":1}'), r"'t' has a NUL in a key of frozen_state"),
        (sample(metadata={"k": "\0"}), r"'t' has a NUL in metadata.k"),
        (sample(nested=sample("c", frozen_state='"\\u0000"')), r"'t' has a NUL in nested.frozen_state"),
        (sample("\ud800"), r"'\\ud800' isn't valid Unicode in its thread_id"),
        (sample(next_node="\ud800"), r"'t' isn't valid Unicode in its next_node"),
    ],
)
async def test_what_postgres_cannot_hold_is_refused_by_name(
    row: Checkpoint, where: str, postgres_server: str
) -> None:
    async with opened(postgres_server) as (store, beside, _):
        with pytest.raises(InvalidRequest, match=where):
            await store.save(row)
        assert await beside.fetchval("SELECT count(*) FROM checkpoints") == 0
        assert await store.save(sample(frozen_state='"\\\\u0000"')) == Saved(0)  # a backslash and letters


async def test_arguments_that_postgres_cannot_hold(postgres_server: str) -> None:
    """Refused without a word of the value, and the connection is as good as before."""
    async with opened(postgres_server, pool_size=1) as (store, _, _):
        for call in (
            store.load("a\0b"),
            store.load("\ud800"),
            store.acquire_lease("t", "own\0er", TTL),
            store.list_threads(ThreadQuery(metadata={"k": "secret\0"})),
            store.save(sample(frozen_state='{"secret":1e999999}')),
        ):
            with pytest.raises(InvalidRequest) as refusal:
                await call
            assert "secret" not in str(refusal.value)
        assert await store.save(sample()) == Saved(0)


async def test_a_server_error_tells_no_values(postgres_server: str) -> None:
    """A key violation's details quote the row; an error is its first sentence alone."""
    async with opened(postgres_server) as (store, beside, _):
        await beside.execute(
            "CREATE FUNCTION steal() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN "
            "NEW.sequence := 0; RETURN NEW; END; $$"
        )
        await beside.execute(
            "CREATE TRIGGER steal BEFORE INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION steal()"
        )
        try:
            await store.save(sample("secret"))
            with pytest.raises(StoreError, match="duplicate key") as refusal:
                await store.save(sample("secret"))
            told = "".join(traceback.format_exception(refusal.value))
            assert "duplicate key" in told
            assert "(secret" not in told
        finally:
            await beside.execute("DROP FUNCTION steal CASCADE")


async def test_another_isolation_level_is_refused(postgres_server: str) -> None:
    async with opened(postgres_server) as (store, beside, _):
        await store.save(sample())
        async with beside.transaction(isolation="repeatable_read"):
            with pytest.raises(asyncpg.InvalidTransactionStateError, match=r"COMMITTED.*REPEATABLE"):
                await beside.execute("SELECT outcrop_lock_threads(ARRAY['t'])")


async def test_a_bad_row_fails_what_reads_it(postgres_server: str) -> None:
    async with opened(postgres_server) as (store, beside, _):
        await store.save(sample("good"))
        await beside.execute(RAW, "bad", 0, "asleep", None, "2026-01-01T00:00:00Z", None, None, None)
        reason = "unknown checkpoint status 'asleep' in the checkpoint log"
        for call in (store.load("bad"), store.get_log("bad")):
            with pytest.raises(CorruptRow, match=reason):
                await call
        page = await store.list_threads(ThreadQuery())
        assert [thread.thread_id for thread in page.threads] == ["good"]
        assert [thread.thread_id for thread in page.unreadable] == ["bad"]
        assert await store.load("good") is not None
