"""Group commit on SQLite: one commit a flush, and each save its own answer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import (
    Acquired,
    Checkpoint,
    InvalidRequest,
    Lease,
    LeaseLost,
    NotLatest,
    Saved,
    Status,
    Unavailable,
)
from outcrop.stores.contract import sample
from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions
from outcrop.stores.sqlite import database
from support.sqlite import TunedBinding, selected, versions
from support.stores import SqliteBinding

if TYPE_CHECKING:
    from pathlib import Path

    from outcrop.stores.sqlite import SqliteStore

LONG = timedelta(minutes=5)


def commits(path: Path) -> int:
    """The file's change counter: one more for each transaction that wrote."""
    return int.from_bytes(path.read_bytes()[24:28])


def running(thread_id: str, n: int, **more: Any) -> Checkpoint:
    state = json.dumps({"n": n, "kept": "x" * 50, **more})
    return sample(thread_id, Status.RUNNING, schema_version="1.7.0", next_node="N", frozen_state=state)


async def numbers(store: SqliteStore, thread_id: str) -> list[int]:
    page = await store.get_log(thread_id, limit=1000)
    assert [row.sequence for row in page.entries] == list(range(len(page.entries)))
    return [json.loads(row.checkpoint.frozen_state)["n"] for row in page.entries]


async def leased(store: SqliteStore, thread_id: str) -> Lease:
    answer = await store.acquire_lease(thread_id, "w", LONG)
    assert isinstance(answer, Acquired)
    return answer.lease


@pytest.fixture
def binding(tmp_path: Path) -> TunedBinding:
    return TunedBinding(tmp_path / "store.db", group_commit=GroupCommitOptions())


async def test_saves_of_one_moment_are_one_commit(binding: TunedBinding) -> None:
    async with binding.open() as store:
        before = commits(binding.path)
        await asyncio.gather(*(store.save(running(f"t{at}", 0)) for at in range(50)))
        assert commits(binding.path) == before + 1


async def test_one_flush_with_every_kind_of_answer(binding: TunedBinding) -> None:
    """L3: and a last save that frees its thread."""
    async with binding.open() as store:
        for thread_id in "abcdefg":
            await store.save(running(thread_id, 0))
        lost = await leased(store, "b")
        await store.release_lease(lost)
        await leased(store, "b")
        held, last = await leased(store, "c"), await leased(store, "g")
        before = commits(binding.path)
        answers = await asyncio.gather(
            store.save(running("a", 9), expected=7),
            store.save(running("b", 9), expected=9, lease=lost),
            store.save(running("c", 1), lease=held),
            store.save(running("d", 1)),
            store.save(running("e", 1)),
            store.save(running("e", 2)),
            store.save(running("f", 9), expected=3),
            store.save(running("f", 1), expected=0),
            store.save(running("g", 1), lease=last, release=True),
        )
        assert commits(binding.path) == before + 1
        assert answers == [
            NotLatest(),
            LeaseLost(),
            Saved(1),
            Saved(1),
            Saved(1),
            Saved(2),
            NotLatest(),
            Saved(1),
            Saved(1),
        ]
        logs = {thread_id: await numbers(store, thread_id) for thread_id in "abcdefg"}
        assert logs == {
            "a": [0],
            "b": [0],
            "c": [0, 1],
            "d": [0, 1],
            "e": [0, 1, 2],
            "f": [0, 1],
            "g": [0, 1],
        }
        assert await store.get_lease("c") == held
        assert await store.get_lease("g") is None


async def test_many_writers(binding: TunedBinding) -> None:
    """L4: every log whole and in order, in fewer commits than saves."""
    async with binding.open() as store:
        before = commits(binding.path)

        async def write(thread_id: str) -> None:
            for n in range(20):
                assert await store.save(running(thread_id, n), expected=n - 1) == Saved(n)

        await asyncio.gather(*(write(f"t{at}") for at in range(24)))
        assert commits(binding.path) - before < 24 * 20 / 4
        for at in range(24):
            assert await numbers(store, f"t{at}") == list(range(20))


@pytest.mark.parametrize(
    "bad",
    [
        {"suspended_node": "\ud800"},  # the driver refuses it in the middle of the transaction
        {"metadata": {"n": 1}},
    ],
)
async def test_only_the_bad_row_fails(bad: dict[str, Any], binding: TunedBinding) -> None:
    """L5."""
    async with binding.open() as store:
        rows = [running("a", 0), sample("bad", **bad), running("b", 0), running("a", 1)]
        answers = await asyncio.gather(*map(store.save, rows), return_exceptions=True)
        assert isinstance(answers[1], InvalidRequest)
        assert [answers[0], answers[2], answers[3]] == [Saved(0), Saved(0), Saved(1)]
        assert await store.load("bad") is None


async def test_a_locked_file_fails_the_flush(binding: TunedBinding, monkeypatch: pytest.MonkeyPatch) -> None:
    """L6: with an error worth a retry, for each save; nothing is written."""
    async with binding.open() as store:
        await store.save(running("a", 0))
        monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
        other = sqlite3.connect(binding.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answers = await asyncio.gather(
            *(store.save(running(thread_id, 1)) for thread_id in "ab"), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [Unavailable, Unavailable]
        other.execute("COMMIT")
        other.close()
        assert await store.save(running("a", 1)) == Saved(1)
        assert await store.load("b") is None


async def test_a_caller_that_gives_up_leaves_nothing_half_done(binding: TunedBinding) -> None:
    """L7: a queued save is withdrawn; one in a flush is there or not, with the row after it right."""
    async with binding.open() as store:
        for n in range(20):
            calls = [asyncio.create_task(store.save(running(thread_id, n))) for thread_id in "abc"]
            for _ in range(n % 4):
                await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await store.save(running("a", 20))
        rows = await numbers(store, "a")
        assert rows == sorted(set(rows))
        assert rows[-1] == 20


async def test_closing_lets_queued_saves_finish(binding: TunedBinding) -> None:
    store = await binding.open().__aenter__()
    calls = [asyncio.create_task(store.save(running("a", n))) for n in range(5)]
    await asyncio.sleep(0)
    await store.close()
    assert [await call for call in calls] == [Saved(n) for n in range(5)]


async def test_deltas_in_a_flush(tmp_path: Path) -> None:
    """J7: a moved base whole in its flush; two of one thread both whole; the next a delta."""
    binding = TunedBinding(tmp_path / "store.db", deltas=DeltaOptions(), group_commit=GroupCommitOptions())
    async with binding.open() as store, SqliteBinding(binding.path).open() as other:
        await asyncio.gather(store.save(running("a", 0)), store.save(running("b", 0)))
        await other.save(running("a", 1))
        answers = await asyncio.gather(
            store.save(running("a", 2)),
            store.save(running("b", 1)),
            store.save(running("c", 0)),
            store.save(running("c", 1)),
        )
        assert list(answers) == [Saved(2), Saved(1), Saved(0), Saved(1)]
        await asyncio.gather(*(store.save(running(thread_id, 3)) for thread_id in "abc"))
        for thread_id, expected in {"a": [0, 1, 2, 3], "b": [0, 1, 3], "c": [0, 1, 3]}.items():
            assert await numbers(other, thread_id) == expected
    assert versions(binding.path, "a") == ["1.7.0", "1.7.0", "1.7.0", "1.8.0"]
    assert versions(binding.path, "b") == ["1.7.0", "1.8.0", "1.8.0"]
    assert versions(binding.path, "c") == ["1.7.0", "1.7.0", "1.8.0"]


@pytest.mark.parametrize("folder", [False, True])
async def test_offload_in_a_flush(folder: bool, tmp_path: Path) -> None:
    """K7: one blob a thread, and logs right."""
    offload = OffloadOptions(threshold=64, folder=tmp_path / "blobs" if folder else None)
    binding = TunedBinding(tmp_path / "store.db", offload=offload, group_commit=GroupCommitOptions())
    async with binding.open() as store:
        for n in range(0, 6, 2):
            await asyncio.gather(
                *(
                    store.save(running(thread_id, n + at, evidence="e" * 80))
                    for thread_id in "abc"
                    for at in range(2)
                )
            )
        for thread_id in "abc":
            assert await numbers(store, thread_id) == list(range(6))
    count = (
        len([*(tmp_path / "blobs").rglob("*")]) - 3
        if folder
        else selected(binding.path, "SELECT count(*) FROM checkpoint_blobs")[0][0]
    )
    assert count == 3
