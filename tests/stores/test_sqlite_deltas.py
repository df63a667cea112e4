"""Deltas in a SQLite file: what is stored, and what a moved base comes to."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import CheckpointPolicy, Graph, Threads
from outcrop.stores import Acquired, Checkpoint, InvalidRequest, LeaseLost, NotLatest, Saved, Status
from outcrop.stores.contract import sample
from outcrop.stores.options import DeltaOptions
from support.sqlite import TunedBinding, selected, versions
from support.stores import SqliteBinding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcrop.stores.sqlite import SqliteStore

LONG = timedelta(minutes=5)


def running(n: int, **changes: Any) -> Checkpoint:
    state = json.dumps({"n": n, "kept": "x" * 100})
    return sample(status=Status.RUNNING, schema_version="1.7.0", next_node="N", frozen_state=state, **changes)


async def numbers(store: SqliteStore) -> list[int]:
    page = await store.get_log("t")
    return [json.loads(row.checkpoint.frozen_state)["n"] for row in page.entries]


@pytest.fixture
def deltas(tmp_path: Path) -> TunedBinding:
    return TunedBinding(tmp_path / "store.db", deltas=DeltaOptions())


@pytest.fixture
def plain(tmp_path: Path) -> SqliteBinding:
    return SqliteBinding(tmp_path / "store.db")


async def test_a_row_is_what_changed(tmp_path: Path) -> None:
    """J2: row 1 exactly, and the versions of 13 rows with a finished one among them."""
    binding = TunedBinding(tmp_path / "store.db", deltas=DeltaOptions(full_every=4))
    async with binding.open() as store:
        for n in range(13):
            row = running(n)
            await store.save(row if n != 10 else sample(frozen_state=row.frozen_state))
        assert await numbers(store) == list(range(13))
    minors = [version.split(".")[1] for version in versions(binding.path)]
    assert minors == ["7", "8", "8", "8", "7", "8", "8", "8", "7", "8", "0", "8", "8"]
    ((text,),) = selected(binding.path, "SELECT frozen_state FROM checkpoints WHERE sequence = 1")
    assert text == '{"checkpoint_version":"1.7.0","delta_of":0,"depth":1,"set":{"n":1},"unset":[]}'


@pytest.mark.parametrize("how", ["plain", "conditional", "fenced", "fenced and conditional"])
async def test_a_moved_base_makes_a_whole_row(how: str, deltas: TunedBinding, plain: SqliteBinding) -> None:
    """J3: for each kind of save, in the same call; a delta again after."""
    async with deltas.open() as store, plain.open() as other:
        acquired = await store.acquire_lease("t", "w", LONG)
        assert isinstance(acquired, Acquired)
        condition: dict[str, Any] = {"lease": acquired.lease} if "fenced" in how else {}
        await store.save(running(0), **condition)
        await other.save(running(1))
        for n in (2, 3):
            expected = n - 1 if "conditional" in how else None
            assert await store.save(running(n), expected=expected, **condition) == Saved(n)
        assert await numbers(other) == [0, 1, 2, 3]
    assert versions(deltas.path) == ["1.7.0", "1.7.0", "1.7.0", "1.8.0"]


async def test_a_refusal_goes_before_a_moved_base(deltas: TunedBinding, plain: SqliteBinding) -> None:
    """J3: a lost lease first, then a moved log; nothing is written, and the thread is forgotten."""
    async with deltas.open() as store, plain.open() as other:
        old = await store.acquire_lease("t", "w", LONG)
        assert isinstance(old, Acquired)
        await store.save(running(0), lease=old.lease)
        await other.save(running(1))
        assert await store.save(running(9), expected=0) == NotLatest()
        assert await store.save(running(2)) == Saved(2)
        await other.save(running(3))
        await store.release_lease(old.lease)
        await store.acquire_lease("t", "w", LONG)
        for expected in (None, 2, 3):
            assert await store.save(running(9), lease=old.lease, expected=expected) == LeaseLost()
        assert await numbers(store) == [0, 1, 2, 3]
    assert versions(deltas.path) == ["1.7.0"] * 4


async def test_a_base_replaced_at_its_place_is_no_base(deltas: TunedBinding, plain: SqliteBinding) -> None:
    """J3: another row at the same sequence, told by its time."""
    async with deltas.open() as store, plain.open() as other:
        await store.save(running(0))
        selected(deltas.path, "DELETE FROM checkpoints")
        selected(deltas.path, "DELETE FROM checkpoint_threads")
        await other.save(running(5, created_at="2026-01-02T03:04:06Z"))
        assert await store.save(running(6)) == Saved(1)
        assert await numbers(other) == [5, 6]
    assert versions(deltas.path) == ["1.7.0", "1.7.0"]


async def test_a_load_makes_the_next_row_a_delta(deltas: TunedBinding) -> None:
    """J4: and a cold store writes a whole one."""
    for n in range(2):
        async with deltas.open() as store:
            await store.save(running(n))
    async with deltas.open() as store:
        await store.load("t")
        await store.save(running(2))
        assert await numbers(store) == [0, 1, 2]
    assert versions(deltas.path) == ["1.7.0", "1.7.0", "1.8.0"]


async def test_a_purged_thread_starts_whole(deltas: TunedBinding) -> None:
    """I5 with deltas."""
    async with deltas.open() as store:
        await store.save(running(0))
        await store.save(sample(frozen_state='{"n":1}'))
        assert await store.purge(deltas.clock.now + LONG, states={sample().state}) == 1
        assert await store.save(running(0)) == Saved(0)
        assert await numbers(store) == [0]
    assert versions(deltas.path) == ["1.7.0"]


async def test_a_row_that_is_a_delta_frees_its_lease(deltas: TunedBinding) -> None:
    async with deltas.open() as store:
        acquired = await store.acquire_lease("t", "w", LONG)
        assert isinstance(acquired, Acquired)
        await store.save(running(0), lease=acquired.lease)
        assert await store.save(running(1), lease=acquired.lease, release=True) == Saved(1)
        assert await store.get_lease("t") is None
    assert versions(deltas.path) == ["1.7.0", "1.8.0"]


async def test_a_durable_run_reads_back(deltas: TunedBinding, plain: SqliteBinding) -> None:
    """J8."""
    graph: Graph[dict[str, Any]] = Graph(dict[str, Any], id="line", version="1")
    for number in range(5):

        @graph.node(name=f"n{number}")
        async def add(state: dict[str, Any]) -> None:
            state["steps"] = state.get("steps", 0) + 1

    for number in range(4):
        graph.edge(f"n{number}", f"n{number + 1}")
    compiled = graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)
    async with deltas.open() as store:
        await Threads(compiled, store).run("t", {"kept": "x" * 100})
    async with plain.open() as store:
        page = await store.get_log("t")
        states = [json.loads(row.checkpoint.frozen_state) for row in page.entries]
    assert [state.get("steps", 0) for state in states] == [0, 1, 2, 3, 4, 5]
    assert all(state["kept"] == "x" * 100 for state in states)
    assert "1.8.0" in versions(deltas.path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (lambda: DeltaOptions(full_every=1), "deltas' full every must be at least 2"),
        (lambda: DeltaOptions(cached_threads=0), "deltas' cached threads must be at least 1"),
    ],
)
def test_options_are_checked(options: Callable[[], DeltaOptions], message: str) -> None:
    """J8."""
    with pytest.raises(InvalidRequest) as refusal:
        options()
    assert str(refusal.value) == message
    assert (DeltaOptions().full_every, DeltaOptions().cached_threads) == (16, 10_000)
