"""SQLite with deltas, offload and group commit: the contract holds, and so does the format."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import Status, ThreadQuery
from outcrop.stores.codec import same_as
from outcrop.stores.contract import CASES, SHAPES, Case, sample
from support.sqlite import VARIANTS, variant
from support.stores import SqliteBinding

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case: Case, name: str, tmp_path: Path) -> None:
    """A-C, I with G, D and O."""
    case.run(variant(name, tmp_path))


@pytest.mark.parametrize("name", VARIANTS)
async def test_every_shape_reads_back_with_and_without_the_options(name: str, tmp_path: Path) -> None:
    """A2-A10; blobs in a folder are read by who is told of it."""
    rows = [*SHAPES.values(), *SHAPES.values()]
    tuned, plain = variant(name, tmp_path), SqliteBinding(tmp_path / "store.db")
    async with tuned.open() as store:
        for row in rows:
            await store.save(row)
    for binding in (tuned,) if name == "offload to a folder" else (tuned, plain):
        async with binding.open() as store:
            page = await store.get_log("t", limit=1000)
            assert len(page.entries) == len(rows)
            for entry, row in zip(page.entries, rows, strict=True):
                assert same_as(entry.checkpoint, row)
            assert [
                summary.schema_version for summary in (await store.list_threads(ThreadQuery())).threads
            ] == [rows[-1].schema_version]


@pytest.mark.parametrize("name", ["group commit", "deltas", "offload", "all"])
async def test_the_peer_reads_what_was_written(name: str, tmp_path: Path, peer: Path) -> None:
    """J, K: deltas and offloaded values undone, nested levels as well."""
    rows = [
        sample(
            status=Status.RUNNING,
            schema_version="1.7.0",
            next_node="N",
            frozen_state=json.dumps({"n": n, "evidence": "e" * 80, "é": [1.5, None]}),
            nested=SHAPES["nested wait"] if n % 2 else None,
        )
        for n in range(8)
    ]
    async with variant(name, tmp_path).open() as store:
        for row in rows:
            await store.save(row)
    command: list[str | Path] = [peer, "log", "--storage", tmp_path / "store.db", "--thread", "t", "--all"]
    said = await asyncio.to_thread(lambda: subprocess.run(command, capture_output=True, check=True).stdout)
    entries = json.loads(said)["entries"]
    assert [entry["checkpoint"]["frozen_state"] for entry in entries] == [
        json.loads(row.frozen_state) for row in rows
    ]
    assert [entry["checkpoint"]["schema_version"] for entry in entries] == ["1.7.0"] * 8
    deepest = entries[7]["checkpoint"]["nested"]["nested"]["nested"]
    assert deepest["frozen_state"] == {"n": 1}
