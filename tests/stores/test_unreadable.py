"""A row that breaks the format keeps nobody from the others, on any engine.

Such a row may be a newer engine's: here one that waits in a way that nobody knows yet.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import asyncpg
import pytest
from redis.asyncio import Redis

from outcrop.engine import Interrupted, Threads
from outcrop.stores import MemoryStore, Store, ThreadQuery, open_store
from outcrop.stores.copying import CopyResult, ThreadCopy, copy_threads
from outcrop.worker.cli import main
from support.storages import KINDS
from support.twins import twin

if TYPE_CHECKING:
    from support.storages import Places, Storage

REASON = "unknown wait kind 'moon' in the checkpoint log"
THREADS = ("a", "broken", "c")


async def filled(storage: Storage) -> Store:
    """Three threads whose timers are due, one of them spoilt."""
    store = await open_store(storage.url)
    threads = Threads(twin("timer"), store)
    for thread in THREADS:
        result = await threads.run(thread, {"due_at": "2020-01-01T00:00:00Z"})
        assert isinstance(result, Interrupted)
    await spoil(storage)
    return store


async def spoil(storage: Storage) -> None:
    wait = {"kind": "moon", "event_type": None, "wake_at": "2020-01-01T00:00:00Z"}
    change = "UPDATE checkpoints SET wait = {} WHERE thread_id = 'broken'"
    match storage.kind:
        case "sqlite":
            with closing(sqlite3.connect(storage.file)) as file, file:
                file.execute(change.format("?"), (json.dumps(wait),))
        case "postgres":
            connection = await asyncpg.connect(storage.url)
            await connection.execute(change.format("$1"), json.dumps(wait))
            await connection.close()
        case _:
            async with Redis.from_url(storage.peer[1]) as client:
                key = f"{storage.peer[3]}:checkpoints:broken"
                element = json.loads(await client.lindex(key, -1) or "")
                await client.lset(key, -1, json.dumps({**element, "wait": wait}))


class Silent:
    """Watches a copy and says nothing."""

    def appended(self, rows: int, size: int) -> None: ...

    def finished(self, thread: ThreadCopy) -> None: ...


@pytest.mark.parametrize("kind", KINDS)
async def test_the_others_are_listed_woken_and_copied(kind: str, places: Places) -> None:
    async with places.fresh(kind) as storage:
        store = await filled(storage)
        page = await store.list_threads(ThreadQuery())
        assert sorted(thread.thread_id for thread in page.threads) == ["a", "c"]
        assert [(it.thread_id, it.sequence, it.reason) for it in page.unreadable] == [("broken", 0, REASON)]

        target = MemoryStore()
        report = await copy_threads(store, target, ThreadQuery(), Silent())
        assert report.results == {CopyResult.COPIED: 2, CopyResult.FAILED: 1}

        woken = await Threads(twin("timer"), store).wake_due()
        assert sorted(woken.thread_id for woken in woken.woken) == ["a", "c"]
        assert [thread.thread_id for thread in woken.unreadable] == ["broken"]
        await store.close()


def test_the_command_lists_the_others_and_tells_of_it(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fill() -> str:
        async with places.fresh("sqlite") as storage:
            await (await filled(storage)).close()
            return storage.url

    url = asyncio.run(fill())
    assert main(["thread", "list", "--storage", url]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["c", "a"]
    assert f"row 0 of thread 'broken' can't be read: {REASON}" in said.err
    assert main(["thread", "list", "--storage", url, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["unreadable"]
    assert (told["thread_id"], told["sequence"], told["reason"]) == ("broken", 0, REASON)
