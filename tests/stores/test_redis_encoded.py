"""Deltas and offloaded values on Redis: what is stored, what a moved base comes to, and where blobs are."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path  # noqa: TC003 - a fixture's type
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import (
    Acquired,
    Checkpoint,
    CorruptRow,
    LeaseLost,
    NotLatest,
    Saved,
    Status,
    ThreadQuery,
    ThreadState,
)
from outcrop.stores.codec import encode
from outcrop.stores.contract import sample
from outcrop.stores.options import DeltaOptions, OffloadOptions
from outcrop.stores.redis.rows import token_of
from support.redis import RedisBinding, client

if TYPE_CHECKING:
    from outcrop.stores import Lease
    from outcrop.stores.redis import RedisStore

EVIDENCE, OTHER = "e" * 80, "f" * 80
LONG = timedelta(minutes=5)
PURGED: dict[str, Any] = {"older_than": datetime(2026, 2, 1, tzinfo=UTC), "states": {ThreadState.COMPLETED}}


def name_of(value: str) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(value).encode()).hexdigest()}"


def row(n: int, evidence: str | None = None, status: Status = Status.RUNNING, **changes: Any) -> Checkpoint:
    state = {"n": n, "kept": "x" * 30} | ({} if evidence is None else {"evidence": evidence})
    version = "1.7.0" if status is Status.RUNNING else "1.0.0"
    changes = {"schema_version": version, "next_node": "N"} | changes
    return sample(status=status, frozen_state=json.dumps(state), **changes)


async def states(store: RedisStore, thread_id: str = "t") -> list[dict[str, Any]]:
    page = await store.get_log(thread_id)
    return [json.loads(entry.checkpoint.frozen_state) for entry in page.entries]


async def numbers(store: RedisStore) -> list[int]:
    return [state["n"] for state in await states(store)]


async def acquired(store: RedisStore) -> Lease:
    answer = await store.acquire_lease("t", "worker", LONG)
    assert isinstance(answer, Acquired)
    return answer.lease


@pytest.fixture
def plain(redis_server: str) -> RedisBinding:
    return RedisBinding(redis_server)


@pytest.fixture
def deltas(plain: RedisBinding) -> RedisBinding:
    binding = RedisBinding(plain.url, deltas=DeltaOptions())
    binding.prefix = plain.prefix
    return binding


@pytest.fixture
def offload(plain: RedisBinding) -> RedisBinding:
    binding = RedisBinding(plain.url, offload=OffloadOptions(threshold=64))
    binding.prefix = plain.prefix
    return binding


async def blobs(binding: RedisBinding, thread_id: str = "t") -> dict[Any, Any]:
    async with client(binding.url) as redis:
        return dict(await redis.hgetall(f"{binding.prefix}:blobs:{thread_id}"))


async def test_a_row_is_what_changed(deltas: RedisBinding, plain: RedisBinding) -> None:
    """J2: row 1 exactly, the versions of 13 rows with a finished one among them; any store reads them."""
    async with deltas.open(deltas=DeltaOptions(full_every=4)) as store, plain.open() as reader:
        for n in range(13):
            assert await store.save(row(n, status=Status.COMPLETED if n == 10 else Status.RUNNING)) == Saved(
                n
            )
            for any_store in (store, reader):
                latest = await any_store.load("t")
                assert latest is not None
                assert json.loads(latest.checkpoint.frozen_state)["n"] == n
                assert latest.checkpoint.schema_version == ("1.0.0" if n == 10 else "1.7.0")
            (listed,) = (await reader.list_threads(ThreadQuery())).threads
            assert listed.schema_version == ("1.0.0" if n == 10 else "1.7.0")
        assert await numbers(store) == await numbers(reader) == list(range(13))
        page = await reader.get_log("t", after=5, limit=2)
        assert [json.loads(it.checkpoint.frozen_state)["n"] for it in page.entries] == [6, 7]
    minors = [version.split(".")[1] for version in await deltas.versions()]
    assert minors == ["7", "8", "8", "8", "7", "8", "8", "8", "7", "8", "0", "8", "8"]
    stored = json.loads((await deltas.elements())[1])["frozen_state"]
    assert stored == {"checkpoint_version": "1.7.0", "delta_of": 0, "depth": 1, "set": {"n": 1}, "unset": []}


async def test_hand_written_deltas_decode(plain: RedisBinding) -> None:
    """J1: after each row, by load, log and listing."""
    envelopes = [
        ("1.7.0", {"n": 0, "a": 1, "b": 2}),
        (
            "1.8.0",
            {"checkpoint_version": "1.7.0", "delta_of": 0, "depth": 1, "set": {"n": 1}, "unset": ["a"]},
        ),
        (
            "1.8.0",
            {"checkpoint_version": "1.7.0", "delta_of": 1, "depth": 2, "set": {"n": 2, "b": 3}, "unset": []},
        ),
    ]
    expected = [{"n": 0, "a": 1, "b": 2}, {"n": 1, "b": 2}, {"n": 2, "b": 3}]
    async with plain.open() as store, client(plain.url) as redis:
        for at, (version, state) in enumerate(envelopes):
            element = json.loads(encode(row(at))) | {
                "schema_version": version,
                "frozen_state": state,
            }
            await redis.rpush(f"{plain.prefix}:checkpoints:t", json.dumps(element))
            latest = await store.load("t")
            assert latest is not None
            assert json.loads(latest.checkpoint.frozen_state) == expected[at]
            assert await states(store) == expected[: at + 1]
        await store.rebuild_index()
        (listed,) = (await store.list_threads(ThreadQuery())).threads
        assert listed.schema_version == "1.7.0"
        assert [it.sequence for it in (await store.get_log("t", after=1)).entries] == [2]


@pytest.mark.parametrize("how", ["plain", "conditional", "fenced", "fenced and conditional"])
async def test_a_moved_base_makes_a_whole_row(how: str, deltas: RedisBinding, plain: RedisBinding) -> None:
    """J3: for each kind of save, in the same call; a delta again after."""
    async with deltas.open() as store, plain.open() as other:
        lease = await acquired(store)
        condition: dict[str, Any] = {"lease": lease} if "fenced" in how else {}
        await store.save(row(0), **condition)
        await other.save(row(1))
        for n in (2, 3):
            expected: dict[str, Any] = {"expected": n - 1} if "conditional" in how else {}
            assert await store.save(row(n), **condition, **expected) == Saved(n)
        assert await numbers(other) == [0, 1, 2, 3]
    assert await deltas.versions() == ["1.7.0", "1.7.0", "1.7.0", "1.8.0"]


async def test_a_refusal_goes_before_a_moved_base(deltas: RedisBinding, plain: RedisBinding) -> None:
    """J3: a lost lease first, then a moved log; nothing is written, and the thread is forgotten."""
    async with deltas.open() as store, plain.open() as other:
        old = await acquired(store)
        await store.save(row(0), lease=old)
        await other.save(row(1))
        assert await store.save(row(9), expected=0) == NotLatest()
        assert await store.save(row(2)) == Saved(2)
        await other.save(row(3))
        await store.release_lease(old)
        await acquired(store)
        for expected in (None, 2, 3):
            assert await store.save(row(9), lease=old, expected=expected) == LeaseLost()
        assert await numbers(store) == [0, 1, 2, 3]
    assert await deltas.versions() == ["1.7.0"] * 4


async def test_a_base_replaced_at_its_place_is_no_base(deltas: RedisBinding, plain: RedisBinding) -> None:
    """J3, K6: another element at the same sequence, told by its SHA-1."""
    async with deltas.open() as store, plain.open() as other, client(plain.url) as redis:
        await store.save(row(0))
        await redis.delete(f"{plain.prefix}:checkpoints:t")
        await other.save(row(5))
        assert await store.save(row(6)) == Saved(1)
        assert await numbers(other) == [5, 6]
    assert await deltas.versions() == ["1.7.0", "1.7.0"]


async def test_a_load_makes_the_next_row_a_delta(deltas: RedisBinding) -> None:
    """J4: and a cold store writes a whole one; a remembered thread gives way to another."""
    for n in range(2):
        async with deltas.open() as store:
            await store.save(row(n))
    async with deltas.open(deltas=DeltaOptions(cached_threads=1)) as store:
        await store.load("t")
        await store.save(row(2))
        await store.save(row(0, thread_id="other"))
        await store.save(row(3))
        assert await numbers(store) == [0, 1, 2, 3]
    assert await deltas.versions() == ["1.7.0", "1.7.0", "1.8.0", "1.7.0"]


async def test_saves_of_a_thread_at_once_are_all_right(deltas: RedisBinding) -> None:
    """Whatever base each of them was drafted on."""
    async with deltas.open() as store:
        await store.save(row(-1))
        answers = await asyncio.gather(*(store.save(row(n)) for n in range(30)))
        assert sorted(answer.sequence for answer in answers if isinstance(answer, Saved)) == list(
            range(1, 31)
        )
        assert sorted(await numbers(store)) == list(range(-1, 30))


async def test_a_thread_that_begins_anew_during_a_load_is_read_again(
    deltas: RedisBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delta's base is read in a second step; a purge in between doesn't mix two threads' rows."""
    async with deltas.open() as store, client(deltas.url) as redis:
        for n in range(3):
            await store.save(row(n))
        call = store._pipeline.call

        async def call_after_a_purge(*command: Any) -> Any:
            monkeypatch.undo()
            await redis.delete(f"{deltas.prefix}:checkpoints:t")
            for n in range(7, 12):
                await redis.rpush(f"{deltas.prefix}:checkpoints:t", encode(row(n)))
            return await call(*command)

        monkeypatch.setattr(store._pipeline, "call", call_after_a_purge)
        loaded = await store.load("t")
        assert loaded is not None
        assert (loaded.sequence, json.loads(loaded.checkpoint.frozen_state)["n"]) == (4, 11)


async def test_levels_are_encoded_each(deltas: RedisBinding) -> None:
    """J5: a new level whole, a changed one as a delta; a vanished one leaves nothing."""

    def nested(n: int, child: dict[str, Any] | None) -> Checkpoint:
        below = None if child is None else sample("Work", Status.RUNNING, frozen_state=json.dumps(child))
        return row(n, nested=below)

    rows = [nested(0, None), nested(1, {"a": 1, "b": 2}), nested(2, {"a": 1, "c": 3}), nested(3, None)]
    async with deltas.open() as store:
        for saved in rows:
            await store.save(saved)
        page = await store.get_log("t")
        assert [
            json.loads(it.checkpoint.nested.frozen_state) if it.checkpoint.nested else None
            for it in page.entries
        ] == [
            None,
            {"a": 1, "b": 2},
            {"a": 1, "c": 3},
            None,
        ]
    levels = [json.loads(element).get("nested") for element in await deltas.elements()]
    assert [level and level["frozen_state"] for level in levels] == [
        None,
        {"state": {"a": 1, "b": 2}},
        {"set": {"c": 3}, "unset": ["b"]},
        None,
    ]


async def test_a_purged_thread_starts_whole(deltas: RedisBinding) -> None:
    async with deltas.open() as store:
        await store.save(row(0))
        await store.save(row(1, status=Status.COMPLETED))
        assert await store.purge(**PURGED) == 1
        assert await store.save(row(0)) == Saved(0)
        assert await numbers(store) == [0]
    assert await deltas.versions() == ["1.7.0"]


@pytest.mark.parametrize("outside", [False, True])
async def test_a_value_is_written_once(outside: bool, offload: RedisBinding, tmp_path: Path) -> None:
    """K2: versions 1.9 1.8 1.8 1.9 1.9 1.8, a changed value is a second blob. K4: they go with a purge."""
    folder = tmp_path / "blobs" if outside else None
    option = OffloadOptions(threshold=64, folder=folder)
    rows = [
        *(row(n, EVIDENCE) for n in range(3)),
        row(3, EVIDENCE, Status.INTERRUPTED),
        row(4, OTHER),
        row(5, OTHER, schema_version="1.7.0"),
    ]
    async with offload.open(deltas=DeltaOptions(), offload=option) as store:
        for saved in rows:
            await store.save(saved)
        assert [(it["n"], it["evidence"]) for it in await states(store)] == [
            *((n, EVIDENCE) for n in range(4)),
            *((n, OTHER) for n in (4, 5)),
        ]
        assert await offload.versions() == ["1.9.0", "1.8.0", "1.8.0", "1.9.0", "1.9.0", "1.8.0"]
        kept = {name_of(value): json.dumps(value) for value in (EVIDENCE, OTHER)}
        if folder is None:
            assert await blobs(offload) == kept
        else:
            assert await blobs(offload) == {}
            assert {f"sha256:{it.name}": it.read_text() for it in (folder / "74").iterdir()} == kept
        await store.save(row(0, EVIDENCE, thread_id="other"))
        await store.save(row(6, status=Status.COMPLETED))
        assert await store.purge(**PURGED) == 1
        assert await blobs(offload) == {}
        assert folder is None or not (folder / "74").exists()
        assert (await states(store, "other"))[0]["evidence"] == EVIDENCE


async def test_hand_written_blobs_decode(plain: RedisBinding, offload: RedisBinding) -> None:
    """K1: whatever the reader's threshold; K3: a missing or changed one is named, with its row."""
    reference = {"hash": name_of(EVIDENCE), "bytes": 82}
    envelope = {
        "checkpoint_version": "1.7.0",
        "delta_of": None,
        "depth": 0,
        "state": {"n": 0},
        "blobs": {"evidence": reference},
    }
    delta = {"checkpoint_version": "1.7.0", "delta_of": 0, "depth": 1, "set": {"n": 1}, "unset": []}
    key = f"{plain.prefix}:blobs:t"
    async with (
        client(plain.url) as redis,
        plain.open() as store,
        offload.open(offload=OffloadOptions(threshold=10**9)) as huge,
    ):
        for version, state in (("1.9.0", envelope), ("1.8.0", delta)):
            element = json.loads(encode(row(0))) | {
                "schema_version": version,
                "frozen_state": state,
            }
            await redis.rpush(f"{plain.prefix}:checkpoints:t", json.dumps(element))
        await redis.hset(key, name_of(EVIDENCE), json.dumps(EVIDENCE))
        for reader in (store, huge):
            assert await states(reader) == [{"n": 0, "evidence": EVIDENCE}, {"n": 1, "evidence": EVIDENCE}]
        for change, why in (
            (redis.hset(key, name_of(EVIDENCE), '"other"'), "at 'evidence', whose content doesn't match"),
            (redis.delete(key), "at 'evidence', which the blob store doesn't have"),
        ):
            await change
            for call in (store.load("t"), store.get_log("t")):
                with pytest.raises(CorruptRow) as refusal:
                    await call
                assert str(refusal.value) == f"checkpoint 't' #0 refers to blob {name_of(EVIDENCE)} {why}"


async def test_a_refused_row_leaves_no_blob(offload: RedisBinding) -> None:
    async with offload.open() as store:
        assert await store.save(row(0, EVIDENCE), expected=5) == NotLatest()
    assert await blobs(offload) == {}


async def test_blobs_expire_and_persist_with_the_list(offload: RedisBinding) -> None:
    """K5."""
    async with offload.open(finished_thread_ttl=LONG) as store, client(offload.url) as redis:
        key = f"{offload.prefix}:blobs:t"
        await store.save(row(0, EVIDENCE, Status.COMPLETED))
        assert await redis.pttl(key) > 0
        await store.save(row(1, EVIDENCE))
        assert await redis.pttl(key) == -1


async def test_a_row_that_relied_on_a_replaced_thread_brings_its_blobs(
    offload: RedisBinding, plain: RedisBinding
) -> None:
    """K6: with offload alone."""
    async with offload.open() as store, plain.open() as other:
        await store.save(row(0, EVIDENCE, Status.COMPLETED))
        assert await other.purge(**PURGED) == 1
        await other.save(row(7))
        assert await store.save(row(8, EVIDENCE)) == Saved(1)
        assert [it["n"] for it in await states(other)] == [7, 8]
    assert await blobs(offload) == {name_of(EVIDENCE): json.dumps(EVIDENCE)}


async def test_the_token_is_what_the_server_computes(plain: RedisBinding) -> None:
    async with plain.open() as store, client(plain.url) as redis:
        await store.save(row(0, "é 🚀"))
        (element,) = await plain.elements()
        script = "return redis.sha1hex(redis.call('LINDEX', KEYS[1], -1))"
        assert await redis.eval(script, 1, f"{plain.prefix}:checkpoints:t") == token_of(element.encode())
