"""Large values outside their rows: in the file's own table, or as files in a folder."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import (
    Checkpoint,
    CorruptRow,
    InvalidRequest,
    NotLatest,
    Saved,
    SqliteStore,
    Status,
    ThreadState,
    open_store,
)
from outcrop.stores.contract import sample
from outcrop.stores.options import DeltaOptions, OffloadOptions
from support.sqlite import TunedBinding, selected, versions
from support.stores import SqliteBinding

if TYPE_CHECKING:
    from pathlib import Path

EVIDENCE, OTHER = "e" * 80, "f" * 80
LATER = timedelta(hours=1)


def name_of(value: str) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(value).encode()).hexdigest()}"


def row(n: int, evidence: str = EVIDENCE, status: Status = Status.RUNNING, **changes: Any) -> Checkpoint:
    state = json.dumps({"n": n, "evidence": evidence})
    version = "1.7.0" if status is Status.RUNNING else "1.0.0"
    return sample(status=status, schema_version=version, next_node="N", frozen_state=state, **changes)


async def states(store: SqliteStore, thread_id: str = "t") -> list[tuple[int, str]]:
    page = await store.get_log(thread_id)
    values = (json.loads(entry.checkpoint.frozen_state) for entry in page.entries)
    return [(value["n"], value["evidence"]) for value in values]


def own_blobs(path: Path, thread_id: str = "t") -> list[str]:
    return [
        name for (name,) in selected(path, "SELECT hash FROM checkpoint_blobs WHERE thread_id = ?", thread_id)
    ]


def files(folder: Path) -> list[str]:
    return sorted(f"{file.parent.name}/{file.name}" for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def own(tmp_path: Path) -> TunedBinding:
    return TunedBinding(tmp_path / "store.db", offload=OffloadOptions(threshold=64))


@pytest.fixture
def outside(tmp_path: Path) -> TunedBinding:
    return TunedBinding(
        tmp_path / "store.db", offload=OffloadOptions(threshold=64, folder=tmp_path / "blobs")
    )


@pytest.mark.parametrize("where", ["own", "outside"])
async def test_a_value_is_written_once(where: str, tmp_path: Path) -> None:
    """K2: versions 1.9 1.8 1.8 1.9 1.9 1.8, a changed value is a second blob."""
    folder = tmp_path / "blobs" if where == "outside" else None
    binding = TunedBinding(
        tmp_path / "store.db",
        deltas=DeltaOptions(),
        offload=OffloadOptions(threshold=64, folder=folder),
    )
    rows = [
        row(0),
        row(1),
        row(2),
        row(2, status=Status.INTERRUPTED),
        row(2, OTHER),
        row(3, OTHER),
    ]
    async with binding.open() as store:
        for saved in rows:
            await store.save(saved)
        assert await states(store) == [
            (0, EVIDENCE),
            (1, EVIDENCE),
            (2, EVIDENCE),
            (2, EVIDENCE),
            (2, OTHER),
            (3, OTHER),
        ]
    assert versions(binding.path) == ["1.9.0", "1.8.0", "1.8.0", "1.9.0", "1.9.0", "1.8.0"]
    names = sorted(map(name_of, (EVIDENCE, OTHER)))
    if where == "own":
        assert sorted(own_blobs(binding.path)) == names
    else:
        assert own_blobs(binding.path) == []
        assert files(tmp_path / "blobs") == [f"74/{name.removeprefix('sha256:')}" for name in names]


async def test_a_refused_row_leaves_no_blob(own: TunedBinding) -> None:
    async with own.open() as store:
        assert await store.save(row(0), expected=5) == NotLatest()
    assert own_blobs(own.path) == []


async def test_a_reader_looks_where_it_is_told(outside: TunedBinding, tmp_path: Path) -> None:
    """K1: with a huge threshold; without the option in its own database, where nothing is."""
    async with outside.open() as store:
        await store.save(row(0))
    for read_only in (False, True):
        huge = OffloadOptions(threshold=10**9, folder=tmp_path / "blobs")
        reader = await _reader(outside.path, huge, read_only=read_only)
        assert await states(reader) == [(0, EVIDENCE)]
        assert await reader.load("t") is not None
        await reader.close()
        lost = await open_store(str(outside.path), read_only=read_only)
        for call in (lost.load("t"), lost.get_log("t")):
            with pytest.raises(CorruptRow) as refusal:
                await call
            what = f"refers to blob {name_of(EVIDENCE)} at 'evidence', which the blob store doesn't have"
            assert str(refusal.value) == f"checkpoint 't' #0 {what}"
        await lost.close()


async def _reader(path: Path, offload: OffloadOptions, *, read_only: bool) -> SqliteStore:
    if read_only:
        return await SqliteStore.open_read_only(path, offload=offload)
    return await SqliteStore.open(path, offload=offload)


@pytest.mark.parametrize("what", ["missing", "tampered"])
async def test_a_bad_file_fails_load_and_log(what: str, outside: TunedBinding, tmp_path: Path) -> None:
    """K3: naming the row that refers to it, an earlier one here."""
    binding = TunedBinding(outside.path, deltas=DeltaOptions(), **outside.options)
    async with binding.open() as store:
        await store.save(row(0))
        await store.save(row(1))
        (file,) = (tmp_path / "blobs" / "74").iterdir()
        file.unlink() if what == "missing" else file.write_text('"other"')
        why = "which the blob store doesn't have" if what == "missing" else "whose content doesn't match"
        for call in (store.load("t"), store.get_log("t", after=0)):
            with pytest.raises(CorruptRow) as refusal:
                await call
            where = f"refers to blob {name_of(EVIDENCE)} at 'evidence'"
            assert str(refusal.value) == f"checkpoint 't' #0 {where}, {why}"


@pytest.mark.parametrize("where", ["own", "outside"])
async def test_a_purge_takes_a_threads_blobs(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """K4: and no other thread's."""
    binding: TunedBinding = request.getfixturevalue(where)
    async with binding.open() as store:
        await store.save(row(0, status=Status.COMPLETED, thread_id="gone"))
        await store.save(row(0, thread_id="t"))
        long_id = "x" * 200
        await store.save(row(0, "short", status=Status.COMPLETED, thread_id=long_id))
        cutoff = binding.clock.now + LATER
        assert await store.purge(cutoff, states={ThreadState.COMPLETED}) == 2
        assert await states(store) == [(0, EVIDENCE)]
        await store.save(row(0, thread_id="gone"))  # nothing of it is remembered
        assert await states(store, "gone") == [(0, EVIDENCE)]


async def test_a_purge_empties_the_folder(outside: TunedBinding, tmp_path: Path) -> None:
    """K4."""
    async with outside.open() as store:
        await store.save(row(0, status=Status.COMPLETED))
        await store.purge(outside.clock.now + LATER, states={ThreadState.COMPLETED})
    assert list((tmp_path / "blobs").iterdir()) == []


@pytest.mark.parametrize("deltas", [None, DeltaOptions()])
async def test_a_base_replaced_at_its_place_brings_the_blob_again(
    deltas: DeltaOptions | None, tmp_path: Path
) -> None:
    """K6: the thread was purged and begun anew by another process."""
    binding = TunedBinding(tmp_path / "store.db", deltas=deltas, offload=OffloadOptions(threshold=64))
    async with binding.open() as store, SqliteBinding(binding.path).open() as other:
        await store.save(row(0))
        selected(binding.path, "DELETE FROM checkpoints")
        selected(binding.path, "DELETE FROM checkpoint_threads")
        selected(binding.path, "DELETE FROM checkpoint_blobs")
        await other.save(row(7, created_at="2026-01-02T03:04:06Z"))
        assert await store.save(row(1)) == Saved(1)
        assert await states(store) == [(7, EVIDENCE), (1, EVIDENCE)]
    assert own_blobs(binding.path) == [name_of(EVIDENCE)]
    assert versions(binding.path) == ["1.7.0", "1.9.0"]


async def test_an_id_too_long_for_a_folder_is_refused_only_with_a_blob(outside: TunedBinding) -> None:
    async with outside.open() as store:
        thread_id = "x" * 128
        assert await store.save(row(0, "short", thread_id=thread_id)) == Saved(0)
        with pytest.raises(InvalidRequest, match=r"its ID must have 1 to 127 bytes, not 128$"):
            await store.save(row(1, thread_id=thread_id))
        assert await states(store, thread_id) == [(0, "short")]
