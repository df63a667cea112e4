"""The SQLite connection: locks, cancelled callers, closing, and renewals that nothing delays."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import InvalidRequest, SqliteStore, StoreError, Unavailable
from outcrop.stores.contract import sample
from outcrop.stores.port import Acquired
from outcrop.stores.sqlite import database
from support.stores import SqliteBinding

if TYPE_CHECKING:
    from pathlib import Path

    from outcrop.stores import Lease


@pytest.fixture
def binding(tmp_path: Path) -> SqliteBinding:
    return SqliteBinding(tmp_path / "store.db")


def locked(path: Path) -> closing[sqlite3.Connection]:
    """Another program's write transaction, open until closed."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return closing(connection)


def test_the_busy_timeout_is_the_peers() -> None:
    assert database.BUSY_TIMEOUT == 5.0


async def test_a_file_that_stays_locked_is_unavailable(
    binding: SqliteBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the driver's words, and nothing was written."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
    async with binding.open() as store:
        with locked(binding.path):
            for call in (
                store.save(sample()),
                store.acquire_lease("t", "w", timedelta(seconds=1)),
                SqliteStore.open(binding.path),
            ):
                with pytest.raises(Unavailable, match=r"^database is locked$"):
                    await call
            assert await store.load("t") is None  # readers go on
        assert await store.save(sample()) is not None


async def test_a_save_waits_for_another_writer(binding: SqliteBinding) -> None:
    async with binding.open() as store:
        with locked(binding.path) as other:
            saving = asyncio.ensure_future(store.save(sample()))
            assert await asyncio.wait({saving}, timeout=0.05) == (set(), {saving})
            other.execute("ROLLBACK")
            await saving


async def test_a_cancelled_caller_does_not_stop_its_save(binding: SqliteBinding) -> None:
    """A17: the call goes on to its end, and so does the store."""
    async with binding.open() as store:
        with locked(binding.path) as other:
            reached = asyncio.ensure_future(store._database.call(lambda _: None))
            saving = asyncio.ensure_future(store.save(sample()))
            queued = asyncio.ensure_future(store.save(sample()))
            await reached  # the save is next on the connection's thread, or already waiting for the lock
            saving.cancel()
            queued.cancel()
            await asyncio.gather(saving, queued, return_exceptions=True)
            assert saving.cancelled()
            other.execute("ROLLBACK")
        row = await store.load("t")
        assert row is not None
        assert row.sequence == 1


async def test_renewals_pass_a_busy_main_connection(binding: SqliteBinding) -> None:
    """A renewer has a connection and a thread of its own."""
    release = threading.Event()
    async with binding.open() as store:
        answer = await store.acquire_lease("t", "w", timedelta(seconds=30))
        assert isinstance(answer, Acquired)
        blocked = asyncio.ensure_future(store._database.call(lambda _: release.wait(30)))
        queued = [asyncio.ensure_future(store.load("t")) for _ in range(10)]
        renewed: list[Lease | None] = []

        async def renew() -> None:
            async with store.renewals() as leases:
                renewed.append(await leases.renew_lease(answer.lease, timedelta(minutes=1)))

        await asyncio.to_thread(lambda: asyncio.run(renew()))
        assert renewed[0] is not None
        assert not any(call.done() for call in (blocked, *queued))
        release.set()
        await asyncio.gather(blocked, *queued)


async def test_a_failed_purge_rolls_back_and_the_store_goes_on(binding: SqliteBinding) -> None:
    async with binding.open() as store:
        await store.save(sample(created_at="2020-01-01T00:00:00Z"))
        with closing(sqlite3.connect(binding.path)) as other:
            other.execute("ALTER TABLE checkpoint_blobs RENAME TO hidden")
        states = {sample().state}
        with pytest.raises(StoreError, match="no such table"):
            await store.purge(binding.clock.now, states=states)
        assert await store.load("t") is not None
        with closing(sqlite3.connect(binding.path)) as other:
            other.execute("ALTER TABLE hidden RENAME TO checkpoint_blobs")
        assert await store.purge(binding.clock.now, states=states) == 1


async def test_closing_twice_and_using_after(binding: SqliteBinding) -> None:
    store = await SqliteStore.open(binding.path)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="the SQLite store is closed"):
        await store.load("t")


async def test_closing_waits_for_the_calls_before(binding: SqliteBinding) -> None:
    store = await SqliteStore.open(binding.path)
    saving = [asyncio.ensure_future(store.save(sample())) for _ in range(5)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*saving)) == 5


@pytest.mark.parametrize("path", ["", ":memory:"])
async def test_a_store_needs_a_file(path: str) -> None:
    with pytest.raises(InvalidRequest, match="a SQLite store needs a file"):
        await SqliteStore.open(path)


async def test_text_that_is_no_unicode_is_a_callers_bug(binding: SqliteBinding) -> None:
    async with binding.open() as store:
        with pytest.raises(InvalidRequest, match="isn't valid Unicode"):
            await store.save(sample("\ud800"))
        with pytest.raises(InvalidRequest, match="isn't valid Unicode"):
            await store.load("\ud800")
