"""Rows that another engine stored as deltas or with offloaded values (J1, J9, K1, K3).

Written by hand from the format's description; this build has no option to write them.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import CorruptRow, ThreadQuery
from outcrop.stores.codec import encode
from outcrop.stores.contract import sample
from support.stores import SqliteBinding

if TYPE_CHECKING:
    from pathlib import Path

AT = "2026-11-30T21:47:52Z"
EVIDENCE = "e" * 80
HASH = "sha256:7a7286c2cfbeba242bc85e9a333acd6b79ace59b72108849a6299788bacc257b"
REFERENCE = {"evidence": {"bytes": 82, "hash": HASH}}
BASE = {"amount": 100.0, "count": 9007199254740993, "note": None, "zeta": "é"}
INSERT = (
    "INSERT INTO checkpoints (thread_id, sequence, schema_version, status, next_node, frozen_state,"
    " metadata, created_at, nested) VALUES (?, ?, ?, ?, 'N', ?, ?, ?, ?)"
)


class Log:
    """Raw rows of one thread."""

    def __init__(self, path: Path, thread_id: str = "job-7") -> None:
        self.path = path
        self.thread_id = thread_id

    def add(
        self, sequence: int, version: str, state: Any, *, status: str = "running", nested: Any = None
    ) -> None:
        metadata = json.dumps({"strata.hops": str(sequence)})
        child = None if nested is None else json.dumps(nested)
        values = (self.thread_id, sequence, version, status, json.dumps(state), metadata, AT, child)
        self.run(INSERT, values)

    def blob(self, content: bytes, name: str | None = None) -> None:
        name = name or f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.run("INSERT INTO checkpoint_blobs VALUES (?, ?, ?)", (self.thread_id, name, content))

    def run(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(statement, values)


@pytest.fixture
def binding(tmp_path: Path) -> SqliteBinding:
    return SqliteBinding(tmp_path / "store.db")


def delta(of: int, depth: int, changed: Any, removed: list[str] | None = None, **more: Any) -> dict[str, Any]:
    version = {"checkpoint_version": "1.7.0", "delta_of": of, "depth": depth}
    return {**version, "set": changed, "unset": removed or [], **more}


def whole(state: Any, version: str = "1.7.0", **more: Any) -> dict[str, Any]:
    return {"checkpoint_version": version, "delta_of": None, "depth": 0, "state": state, **more}


def sample_log(log: Log) -> list[dict[str, Any]]:
    """The rows of stores.md's sample, with deltas and offload; returns the states they mean."""
    log.blob(json.dumps(EVIDENCE).encode())
    log.add(0, "1.9.0", whole(BASE, blobs=REFERENCE))
    log.add(1, "1.8.0", delta(0, 1, {"note": "drafted"}))
    log.add(2, "1.8.0", delta(1, 2, {"amount": 0.30000000000000004}, ["zeta", "absent"]))
    log.add(3, "1.9.0", whole({"done": True}, "1.0.0", blobs=REFERENCE), status="completed")
    first = BASE | {"evidence": EVIDENCE}
    third = {
        "amount": 0.30000000000000004,
        "count": 9007199254740993,
        "note": "drafted",
        "evidence": EVIDENCE,
    }
    return [first, first | {"note": "drafted"}, third, {"done": True, "evidence": EVIDENCE}]


async def test_every_row_of_a_chain_decodes(binding: SqliteBinding) -> None:
    """J1, K1: after each row, and on a page that starts at a delta."""
    async with binding.open() as store:
        states = sample_log(Log(binding.path))
        for after in (None, 0, 1, 2):
            page = await store.get_log("job-7", after=after)
            start = 0 if after is None else after + 1
            assert [json.loads(row.checkpoint.frozen_state) for row in page.entries] == states[start:]
            versions = ["1.7.0", "1.7.0", "1.7.0", "1.0.0"][start:]
            assert [row.checkpoint.schema_version for row in page.entries] == versions
        row = await store.load("job-7")
        assert row is not None
        assert (row.sequence, json.loads(row.checkpoint.frozen_state)) == (3, states[3])
        single = await store.get_log("job-7", after=1, limit=1)
        assert json.loads(single.entries[0].checkpoint.frozen_state) == states[2]


async def test_load_after_each_row(binding: SqliteBinding) -> None:
    """J1: load and the listing show the engine's version, whatever is stored."""
    async with binding.open() as store:
        log = Log(binding.path)
        states = sample_log(log)
        for sequence in (2, 1, 0):
            log.run("DELETE FROM checkpoints WHERE sequence > ?", (sequence,))
            log.run("UPDATE checkpoint_threads SET sequence = ?", (sequence,))
            row = await store.load("job-7")
            assert row is not None
            assert row.checkpoint.schema_version == "1.7.0"
            assert json.loads(row.checkpoint.frozen_state) == states[sequence]
            page = await store.list_threads(ThreadQuery())
            assert [summary.schema_version for summary in page.threads] == ["1.7.0"]


async def test_a_delta_of_a_plain_row(binding: SqliteBinding) -> None:
    """J1: a plain row is a base like any other."""
    async with binding.open() as store:
        log = Log(binding.path, "t")
        await store.save(sample(frozen_state='{"a":1,"b":{"c":2}}'))
        log.add(1, "1.8.0", delta(0, 1, {"a": 3}))
        row = await store.load("t")
        assert row is not None
        assert json.loads(row.checkpoint.frozen_state) == {"a": 3, "b": {"c": 2}}
        await store.save(sample(frozen_state="5"))
        row = await store.load("t")
        assert row is not None
        assert row.checkpoint.frozen_state == "5"


async def test_levels_are_encoded_on_their_own(binding: SqliteBinding) -> None:
    """J5: a changed level, a new one, and one that vanished."""

    def child(state: Any, nested: Any = None) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(encode(sample("Work"))) | {"frozen_state": state}
        return fields if nested is None else fields | {"nested": nested}

    async with binding.open() as store:
        log = Log(binding.path)
        log.add(0, "1.8.0", whole({"root": 0}), nested=child({"state": {"n": 1, "m": 2}}))
        grandchild = child({"state": [1, 2]})
        changed = child({"set": {"n": 5}, "unset": ["m"]}, grandchild)
        log.add(1, "1.8.0", delta(0, 1, {}), nested=changed)
        log.add(2, "1.8.0", delta(1, 2, {"root": 2}))
        page = await store.get_log("job-7")
        levels = [
            [json.loads(level.frozen_state) for level in row.checkpoint.levels()] for row in page.entries
        ]
        assert levels == [[{"root": 0}, {"n": 1, "m": 2}], [{"root": 0}, {"n": 5}, [1, 2]], [{"root": 2}]]
        assert {level.schema_version for row in page.entries for level in row.checkpoint.levels()} == {
            "1.7.0", "1.0.0",
        }  # fmt: skip


async def test_blobs_of_nested_levels(binding: SqliteBinding) -> None:
    """K1."""
    async with binding.open() as store:
        log = Log(binding.path)
        log.blob(b'{"a":[1,2],"b":null}')
        name = "sha256:f25109c4111335e4a32d49373585e7a788ff5b10e70023f7004b170e7f84716a"
        child = json.loads(encode(sample("Work")))
        child["frozen_state"] = {"state": {}, "blobs": {"big": {"hash": name, "bytes": 20}}}
        log.add(0, "1.9.0", whole({"root": 1}), nested=child)
        row = await store.load("job-7")
        assert row is not None
        assert json.loads(row.checkpoint.innermost.frozen_state) == {"big": {"a": [1, 2], "b": None}}


async def test_an_overwritten_blob_is_not_asked_for(binding: SqliteBinding) -> None:
    """Only the references that a wanted row still has are read."""
    async with binding.open() as store:
        log = Log(binding.path)
        log.add(0, "1.9.0", whole({}, blobs=REFERENCE))
        log.add(1, "1.8.0", delta(0, 1, {"evidence": "short"}))
        row = await store.load("job-7")
        assert row is not None
        assert json.loads(row.checkpoint.frozen_state) == {"evidence": "short"}


@pytest.mark.parametrize("tampered", [False, True])
async def test_a_missing_or_tampered_blob_fails_load_and_log(tampered: bool, binding: SqliteBinding) -> None:
    """K3: with the row that refers to it, even when an earlier one does."""
    async with binding.open() as store:
        log = Log(binding.path)
        log.add(0, "1.9.0", whole({}, blobs=REFERENCE))
        log.add(1, "1.8.0", delta(0, 1, {"note": 1}))
        if tampered:
            log.blob(b'"other"', HASH)
        why = "whose content doesn't match" if tampered else "which the blob store doesn't have"
        for call in (store.load("job-7"), store.get_log("job-7"), store.get_log("job-7", after=0)):
            with pytest.raises(CorruptRow) as refusal:
                await call
            assert str(refusal.value) == f"checkpoint 'job-7' #0 refers to blob {HASH} at 'evidence', {why}"


REFUSALS: dict[str, tuple[list[tuple[str, Any]], str]] = {
    "no envelope": ([("1.8.0", [1])], "#0 is stored as 1.8.0 without an envelope"),
    "no version": ([("1.9.0", {"state": 1})], "#0 has no checkpoint_version"),
    "no level": (
        [("1.8.0", {"checkpoint_version": "1.7.0", "depth": 0})],
        "#0 has a level without an envelope",
    ),
    "no base": ([("1.8.0", delta(-1, 1, {}))], "#0 is a delta of #-1, which wasn't read with it"),
    "another base": (
        [("1.0.0", {}), ("1.0.0", {}), ("1.8.0", delta(0, 1, {}))],
        "#2 is a delta of #0, which wasn't read with it",
    ),
    "no object there": (
        [("1.0.0", [1]), ("1.8.0", delta(0, 1, {}))],
        "#1 has a delta at level 0, and the row before has no object there",
    ),
    "blobs without an object": (
        [("1.9.0", whole(5, blobs=REFERENCE))],
        "#0 has blobs at level 0, whose state isn't an object",
    ),
    "no hash": (
        [("1.9.0", whole({}, blobs={"k": {"bytes": 1}}))],
        "#0 has a blob at 'k' without a hash",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_broken_envelopes_are_refused(name: str, binding: SqliteBinding) -> None:
    """J9: word for word."""
    rows, message = REFUSALS[name]
    async with binding.open() as store:
        log = Log(binding.path)
        for sequence, (version, state) in enumerate(rows):
            log.add(sequence, version, state)
        for call in (store.load("job-7"), store.get_log("job-7")):
            with pytest.raises(CorruptRow) as refusal:
                await call
            assert str(refusal.value) == f"checkpoint 'job-7' {message}"


async def test_a_nested_level_without_an_envelope_is_refused(binding: SqliteBinding) -> None:
    async with binding.open() as store:
        log = Log(binding.path)
        log.add(0, "1.8.0", whole({}), nested=json.loads(encode(sample("Work"))))
        with pytest.raises(CorruptRow, match=r"^checkpoint 'job-7' #0 has a level without an envelope$"):
            await store.load("job-7")


async def test_a_listing_reads_only_the_version(binding: SqliteBinding) -> None:
    """An envelope broken elsewhere is still listed; one without a version is said."""
    async with binding.open() as store:
        log = Log(binding.path)
        log.add(0, "1.8.0", {"checkpoint_version": "1.6.0"})
        page = await store.list_threads(ThreadQuery())
        assert [summary.schema_version for summary in page.threads] == ["1.6.0"]
        log.run("UPDATE checkpoints SET frozen_state = '{'")
        (unreadable,) = (await store.list_threads(ThreadQuery())).unreadable
        assert unreadable.reason == "checkpoint 'job-7' #0 has no checkpoint_version"
