"""Opening Postgres databases: old ones, newer ones, many at once, for reading (F2, F4-F5, F8, F11-F13)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from outcrop.stores import InvalidRequest, NewerSchema, Saved, StoreError, ThreadQuery
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.postgres import PostgresStore
from outcrop.stores.postgres.diagnosis import diagnose
from support.postgres import fresh_database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

FIRST = """
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, sequence BIGINT NOT NULL, schema_version TEXT NOT NULL, status TEXT NOT NULL,
    suspended_node TEXT, next_node TEXT, frozen_state JSONB NOT NULL, metadata JSONB,
    created_at TEXT NOT NULL, resumed_at TEXT{later}, PRIMARY KEY (thread_id, sequence));
INSERT INTO checkpoints (thread_id, sequence, schema_version, status, frozen_state, metadata, created_at)
VALUES ('t', 0, '1.0.0', 'interrupted', '1', '{{"a":"0"}}', '2026-01-01T00:00:00Z'),
       ('t', 1, '1.0.0', 'failed', '2', '{{"a":"1"}}', '2026-01-02T00:00:00Z'),
       ('u', 0, '1.0.0', 'completed', '3', NULL, '2026-01-01T00:00:00Z');
"""
OLD_HEADS = """
CREATE TABLE checkpoint_threads (
    thread_id TEXT COLLATE "C" NOT NULL PRIMARY KEY, sequence BIGINT NOT NULL, state TEXT NOT NULL,
    updated_at TEXT COLLATE "C" NOT NULL, metadata JSONB{later});
CREATE INDEX checkpoint_threads_by_state ON checkpoint_threads (state, updated_at, thread_id);
CREATE INDEX checkpoint_threads_by_updated ON checkpoint_threads (updated_at, thread_id);
CREATE FUNCTION strata_checkpoints_head() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO checkpoint_threads (thread_id, sequence, state, updated_at, metadata)
    VALUES (NEW.thread_id, NEW.sequence, NEW.status, NEW.created_at, NEW.metadata)
    ON CONFLICT (thread_id) DO UPDATE SET sequence = excluded.sequence, state = excluded.state;
    RETURN NULL;
END; $$;
CREATE TRIGGER checkpoints_head AFTER INSERT ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION strata_checkpoints_head();
INSERT INTO checkpoint_threads (thread_id, sequence, state, updated_at, metadata)
VALUES ('t', 1, 'failed', '2026-01-02T00:00:00Z', '{{"a":"1"}}'),
       ('u', 0, 'completed', '2026-01-01T00:00:00Z', NULL);
"""
NEW = "SELECT 1"
LAYOUTS = {
    "no heads, no nested": FIRST.format(later=""),
    "before waits": FIRST.format(later=", nested JSONB, decision JSONB") + OLD_HEADS.format(later=""),
    "before identities": FIRST.format(later=", nested JSONB, decision JSONB, wait JSONB, wake_at TEXT")
    + OLD_HEADS.format(later=', wake_at TEXT COLLATE "C"'),
}
COLUMNS = {
    "checkpoints": "thread_id text!, sequence bigint!, schema_version text!, status text!, "
    "suspended_node text, next_node text, frozen_state jsonb!, metadata jsonb, created_at text!, "
    "resumed_at text, nested jsonb, decision jsonb, wait jsonb, wake_at text, graph_id text, "
    "graph_version text",
    "checkpoint_threads": "thread_id text C!, sequence bigint!, state text!, updated_at text C!, "
    "metadata jsonb, wake_at text C, graph_id text, graph_version text",
    "checkpoint_leases": "thread_id text!, owner text, token bigint!, expires_at timestamp with time zone",
    "checkpoint_blobs": "thread_id text!, hash text!, content bytea!",
    "outcrop_notes": "thread_id text!, sequence bigint!, kind text!, path text!, created_at text!, "
    "value text!",
    "strata_schema_version": "component text!, version bigint!",
}
INDEXES = {
    "checkpoints_pkey": "checkpoints USING btree (thread_id, sequence)",
    "checkpoint_threads_pkey": "checkpoint_threads USING btree (thread_id)",
    "checkpoint_threads_by_state": "checkpoint_threads USING btree (state, updated_at, thread_id)",
    "checkpoint_threads_by_updated": "checkpoint_threads USING btree (updated_at, thread_id)",
    "checkpoint_threads_by_wake": "checkpoint_threads USING btree (wake_at)",
    "checkpoint_threads_by_graph": "checkpoint_threads USING btree (graph_id, updated_at, thread_id)",
    "checkpoint_threads_by_metadata": "checkpoint_threads USING gin (metadata jsonb_path_ops)",
    "checkpoint_leases_pkey": "checkpoint_leases USING btree (thread_id)",
    "checkpoint_blobs_pkey": "checkpoint_blobs USING btree (thread_id, hash)",
    "outcrop_notes_pkey": "outcrop_notes USING btree (thread_id, sequence, kind, path)",
    "strata_schema_version_pkey": "strata_schema_version USING btree (component)",
}
DESCRIBE = """
SELECT c.relname, string_agg(
    a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN n.collname = 'C' THEN ' C' ELSE '' END || CASE WHEN a.attnotnull THEN '!' ELSE '' END,
    ', ' ORDER BY a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
LEFT JOIN pg_collation AS n ON n.oid = a.attcollation
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.relname
"""


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def execute(url: str, script: str) -> None:
    async with connected(url) as connection:
        await connection.execute(script)


async def everything(url: str) -> Any:
    """What the schema and the rows are, to compare with a later look."""
    async with connected(url) as connection:
        tables = sorted(map(tuple, await connection.fetch(DESCRIBE)))
        contents = [await connection.fetch(f"TABLE {name}") for name, _ in tables]
        functions = await connection.fetch(
            "SELECT oid, xmin::TEXT, proname FROM pg_proc "
            "WHERE pronamespace = 'public'::regnamespace ORDER BY proname"
        )
        indexes = await connection.fetch(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
        )
        return tables, contents, functions, indexes


async def versions(url: str) -> dict[str, int]:
    async with connected(url) as connection:
        return dict(map(tuple, await connection.fetch("SELECT * FROM strata_schema_version")))


async def test_tables_indexes_and_versions(postgres_server: str) -> None:
    """F2, F11, C13."""
    async with fresh_database(postgres_server) as url:
        await PostgresStore.migrate(url)
        async with connected(url) as connection:
            assert dict(map(tuple, await connection.fetch(DESCRIBE))) == COLUMNS
            found = await connection.fetch(
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
            )
            assert {name: text.partition(" ON public.")[2] for name, text in found} == INDEXES
            triggers = await connection.fetch("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal")
            assert [name for (name,) in triggers] == ["checkpoints_head"]
        assert await versions(url) == {"checkpoints": 2, "outcrop": 2}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_old_layouts_are_upgraded_with_their_rows(layout: str, postgres_server: str) -> None:
    """F5, F11, C15: columns, heads, indexes, trigger and leases; opening again changes nothing."""
    async with fresh_database(postgres_server) as url:
        await execute(url, LAYOUTS[layout])
        store = await PostgresStore.open(url)
        found = {summary.thread_id: summary for summary in (await store.list_threads(ThreadQuery())).threads}
        assert {name: (summary.sequence, summary.state.value) for name, summary in found.items()} == {
            "t": (1, "failed"), "u": (0, "completed"),
        }  # fmt: skip
        row = await store.load("t")
        assert row is not None
        assert (row.sequence, row.checkpoint.frozen_state, row.checkpoint.metadata) == (1, "2", {"a": "1"})
        assert await store.save(SHAPES["timer"]) == Saved(2)
        assert await store.save(SHAPES["identified"]) == Saved(3)  # the new trigger fills the new columns
        page = await store.list_threads(ThreadQuery(graph_id="orders", graph_version="2"))
        assert [summary.sequence for summary in page.threads] == [3]
        assert await store.get_lease("t") is None
        await store.close()
        async with connected(url) as connection:
            assert dict(map(tuple, await connection.fetch(DESCRIBE))) == COLUMNS
        before = await everything(url)
        await (await PostgresStore.open(url)).close()
        assert await everything(url) == before


@pytest.mark.parametrize("script", [NEW, *LAYOUTS.values()])
async def test_many_open_one_database_at_once(script: str, postgres_server: str) -> None:
    """F4, F8: new or old, it is brought up to date once."""
    async with fresh_database(postgres_server) as url:
        await execute(url, script)
        stores = await asyncio.gather(*(PostgresStore.open(url, pool_size=2) for _ in range(8)))
        await asyncio.gather(*(store.save(sample(f"new-{at}")) for at, store in enumerate(stores)))
        assert len((await stores[0].list_threads(ThreadQuery())).threads) == (8 if script == NEW else 10)
        await asyncio.gather(*(store.close() for store in stores))
        assert await versions(url) == {"checkpoints": 2, "outcrop": 2}


async def test_another_engines_database_gains_what_is_ours(postgres_server: str) -> None:
    """Tables at version 2 without our functions."""
    async with fresh_database(postgres_server) as url:
        await PostgresStore.migrate(url)
        await execute(
            url,
            "DELETE FROM strata_schema_version WHERE component = 'outcrop';"
            "DROP FUNCTION outcrop_lock_threads",
        )
        with pytest.raises(
            StoreError, match="database is at outcrop schema version 0, and this build needs 2"
        ):
            await PostgresStore.open(url, auto_migrate=False)
        reader = await PostgresStore.open_read_only(url)  # which needs no function
        assert await reader.load("t") is None
        await reader.close()
        store = await PostgresStore.open(url)
        assert await store.save(sample()) == Saved(0)
        await store.close()


@pytest.mark.parametrize("component", ["checkpoints", "outcrop"])
async def test_a_newer_database_is_refused_and_left_alone(component: str, postgres_server: str) -> None:
    """F12: also by an explicit migration."""
    async with fresh_database(postgres_server) as url:
        await PostgresStore.migrate(url)
        async with connected(url) as connection:
            newer = "UPDATE strata_schema_version SET version = 9 WHERE component = $1"
            await connection.execute(newer, component)
        before = await everything(url)
        known = {"checkpoints": 2, "outcrop": 2}[component]
        openings = [
            PostgresStore.open(url),
            PostgresStore.open(url, auto_migrate=False),
            PostgresStore.migrate(url),
        ]
        if component == "checkpoints":
            openings.append(PostgresStore.open_read_only(url))
        for opening in openings:
            with pytest.raises(NewerSchema) as refusal:
                await opening
            assert str(refusal.value) == (
                f"database is at {component} schema version 9, and this build knows {known}: "
                "upgrade the runtime"
            )
        assert await everything(url) == before


async def test_without_auto_migrate_nothing_is_created(postgres_server: str) -> None:
    """F13."""
    async with fresh_database(postgres_server) as url:
        message = (
            "database is at checkpoints schema version 0, and this build needs 2: "
            "run its migration (outcrop store migrate URL)"
        )
        with pytest.raises(StoreError) as refusal:
            await PostgresStore.open(url, auto_migrate=False)
        assert str(refusal.value) == message
        assert (await everything(url))[0] == []
        await PostgresStore.migrate(url)
        store = await PostgresStore.open(url, auto_migrate=False)
        assert await store.save(sample()) == Saved(0)
        await store.close()


async def test_an_opener_needs_no_right_to_create_anything(postgres_server: str) -> None:
    async with fresh_database(postgres_server) as url:
        await PostgresStore.migrate(url)
        role = url.rpartition("/")[2].replace("outcrop_", "role_")
        await execute(
            url,
            f"CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC; "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        )
        try:
            store = await PostgresStore.open(url.replace("//postgres@", f"//{role}@"))
            assert await store.save(sample()) == Saved(0)
            await store.close()
        finally:
            await execute(url, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_tables_are_where_the_search_path_says(postgres_server: str) -> None:
    async with fresh_database(postgres_server) as url:
        await execute(url, "CREATE SCHEMA ours")
        store = await PostgresStore.open(f"{url}?options=-csearch_path%3Dours")
        assert await store.save(sample()) == Saved(0)
        await store.close()
        assert (await everything(url))[0] == []


async def test_reading_only_writes_nothing(postgres_server: str) -> None:
    async with fresh_database(postgres_server) as url:
        with pytest.raises(StoreError, match="the database has no checkpoints"):
            await PostgresStore.open_read_only(url)
        await execute(url, LAYOUTS["before waits"])
        with pytest.raises(StoreError, match="schema version 0, and this build needs 2: run its migration"):
            await PostgresStore.open_read_only(url)
        store = await PostgresStore.open(url)
        held = await store.save(sample("s"))
        assert held == Saved(0)
        before = await everything(url)
        reader = await PostgresStore.open_read_only(url)
        assert await reader.load("s") is not None
        assert len((await reader.list_threads(ThreadQuery())).threads) == 3
        assert len((await reader.get_log("t")).entries) == 2
        with pytest.raises(StoreError, match="open for reading only"):
            await reader.save(sample())
        with pytest.raises(StoreError, match="read-only transaction"):  # and the server sees to it
            await reader._database.run(lambda session: session.fetch("DELETE FROM checkpoints"))
        assert await everything(url) == before
        await reader.close()
        await store.close()


@pytest.mark.parametrize(("option", "message"), [
    ({"pool_size": 0}, "a Postgres store's pool size must be at least 1"),
])  # fmt: skip
async def test_bad_options_are_refused_before_anything_is_reached(
    option: dict[str, Any], message: str
) -> None:
    """F10."""
    with pytest.raises(InvalidRequest) as refusal:
        await PostgresStore.open("postgres://127.0.0.1:1/x", **option)
    assert str(refusal.value) == message


async def test_closed_is_closed(postgres_server: str) -> None:
    async with fresh_database(postgres_server) as url:
        store = await PostgresStore.open(url)
        saves = [asyncio.ensure_future(store.save(sample(str(at)))) for at in range(40)]
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        assert [await save for save in saves] == [Saved(0)] * 40  # those before it went through
        for call in (store.save(sample()), store.load("t"), store.get_lease("t")):
            with pytest.raises(StoreError, match="the Postgres store is closed"):
                await call


async def test_diagnosis(postgres_server: str) -> None:
    """What `outcrop store check` tells."""
    async with fresh_database(postgres_server) as url:
        found = await diagnose(url)
        assert not found.fit
        assert found.schema == {}
        assert "table checkpoints is missing" in found.missing
        await PostgresStore.migrate(url)
        found = await diagnose(url)
        assert (found.engine, found.missing) == ("postgres", ())
        assert found.server_version is not None
        assert found.schema == found.expected == {"checkpoints": 2, "outcrop": 2}
        assert 0 < found.latency < 5
        assert abs(found.clock_offset) < 5
        await execute(
            url,
            "UPDATE strata_schema_version SET version = 3 WHERE component = 'checkpoints';"
            "DROP INDEX checkpoint_threads_by_wake; ALTER TABLE checkpoints DISABLE TRIGGER checkpoints_head;"
            "DROP FUNCTION outcrop_purge_thread",
        )
        assert (await diagnose(url)).missing == (
            "database is at checkpoints schema version 3, and this build knows 2: upgrade the runtime",
            "index checkpoint_threads_by_wake is missing",
            "trigger checkpoints_head is missing",
            "function outcrop_purge_thread is missing",
        )
