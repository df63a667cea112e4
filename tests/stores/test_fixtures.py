"""The peer's own SQLite file opens, lists and loads as its index says."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import SqliteStore, ThreadQuery, ThreadState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from outcrop.stores import ThreadSummary

FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"
INDEX = json.loads((FIXTURES / "index.json").read_text(encoding="utf-8"))
THREADS: dict[str, dict[str, Any]] = {thread["thread_id"]: thread["latest"] for thread in INDEX["threads"]}


async def opened(tmp_path: Path) -> SqliteStore:
    copy = tmp_path / "sqlite.db"
    shutil.copyfile(FIXTURES / "sqlite.db", copy)
    return await SqliteStore.open(copy)


async def threads(store: SqliteStore, query: ThreadQuery) -> AsyncGenerator[ThreadSummary]:
    cursor: str | None = None
    while True:
        page = await store.list_threads(query_at(query, cursor))
        for summary in page.threads:
            yield summary
        if (cursor := page.next_cursor) is None:
            return


def query_at(query: ThreadQuery, cursor: str | None) -> ThreadQuery:
    return replace(query, cursor=cursor)


def query_of(command: list[str]) -> ThreadQuery:
    """The query that a peer's `list` command line asks."""
    options: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    words = iter(command[3:])
    for word in words:
        match word:
            case "--all":
                pass
            case "--status":
                options["states"] = {ThreadState(state) for state in next(words).split(",")}
            case "--metadata":
                key, value = next(words).split("=", 1)
                metadata[key] = value
            case "--graph-id" | "--graph-version":
                options[word.removeprefix("--").replace("-", "_")] = next(words)
            case _:
                name = word.removeprefix("--").replace("-", "_")
                options[name] = datetime.fromisoformat(next(words))
    return ThreadQuery(metadata=metadata, **options)


@pytest.mark.parametrize("query", INDEX["queries"], ids=lambda query: query["what"])
async def test_listings(query: dict[str, Any], tmp_path: Path) -> None:
    store = await opened(tmp_path)
    found = [summary.thread_id async for summary in threads(store, query_of(query["command"]))]
    assert sorted(found) == query["thread_ids_sorted"]
    await store.close()


async def test_summaries_and_latest_rows(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    found = {summary.thread_id: summary async for summary in threads(store, ThreadQuery(limit=7))}
    assert found.keys() == THREADS.keys()
    for thread_id, latest in THREADS.items():
        row = await store.load(thread_id)
        assert row is not None
        log = (await store.get_log(thread_id)).entries
        checkpoint, summary = row.checkpoint, found[thread_id]
        graph = (
            None
            if checkpoint.graph is None
            else {"id": checkpoint.graph.id, "version": checkpoint.graph.version}
        )
        lease = await store.get_lease(thread_id)
        said = {
            "rows": len(log),
            "row_statuses": [entry.checkpoint.status for entry in log],
            "sequence": row.sequence,
            "state": checkpoint.state,
            "status": checkpoint.status,
            "schema_version": checkpoint.schema_version,
            "suspended_node": checkpoint.suspended_node,
            "next_node": checkpoint.next_node,
            "waiting_at": list(checkpoint.waiting_at),
            "recoveries": int((checkpoint.metadata or {}).get("strata.recoveries", "0")),
            "metadata": checkpoint.metadata,
            "graph": graph,
            "frozen_state": json.loads(checkpoint.frozen_state),
            "lease_owner": None if lease is None else lease.owner,
        }
        assert said == latest
        assert log[-1] == row
        assert (summary.sequence, summary.state) == (row.sequence, checkpoint.state)
        assert (summary.waiting_at, summary.wait) == (checkpoint.waiting_at, checkpoint.innermost.wait)
        assert summary.metadata == (checkpoint.metadata or {})
    await store.close()


async def test_the_file_opens_for_reading_only_where_it_lies() -> None:
    store = await SqliteStore.open_read_only(FIXTURES / "sqlite.db")
    assert len([summary async for summary in threads(store, ThreadQuery())]) == len(THREADS)
    await store.close()


async def test_opening_changes_nothing_but_for_our_own_table(tmp_path: Path) -> None:
    def dump(path: Path) -> list[str]:
        with closing(sqlite3.connect(path)) as connection:
            return [line for line in connection.iterdump() if "outcrop" not in line]

    store = await opened(tmp_path)
    await store.close()
    assert dump(tmp_path / "sqlite.db") == dump(FIXTURES / "sqlite.db")
    opened_once = (tmp_path / "sqlite.db").read_bytes()
    await (await SqliteStore.open(tmp_path / "sqlite.db")).close()
    assert (tmp_path / "sqlite.db").read_bytes() == opened_once
