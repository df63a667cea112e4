"""Deltas, blobs and group commit in Postgres (J, K, L)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from outcrop.engine import CheckpointPolicy, Graph, Threads
from outcrop.stores import (
    Acquired,
    Checkpoint,
    CorruptRow,
    InvalidRequest,
    Lease,
    LeaseLost,
    NotLatest,
    Saved,
    Status,
    ThreadQuery,
    ThreadState,
    Unavailable,
)
from outcrop.stores.contract import sample
from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions
from outcrop.stores.postgres import PostgresStore
from support.postgres import spare_database
from support.proxy import proxied

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from support.proxy import Proxy

LONG = timedelta(minutes=5)
LATER = datetime(2027, 1, 1, tzinfo=UTC)
EVIDENCE, OTHER = "e" * 80, "f" * 80
GROUP = GroupCommitOptions()
SMALL = OffloadOptions(threshold=64)


class Place:
    """One database with stores on it; `proxy` is before the one that is tested."""

    def __init__(self, url: str, proxy: Proxy, store: PostgresStore, plain: PostgresStore) -> None:
        self.url = url
        self.proxy = proxy
        self.store = store
        self.plain = plain

    async def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return list(map(tuple, await connection.fetch(statement, *values)))
        finally:
            await connection.close()

    async def versions(self, thread_id: str = "t") -> str:
        """The minor versions of a thread's stored rows."""
        select = "SELECT schema_version FROM checkpoints WHERE thread_id = $1 ORDER BY sequence"
        return "".join(version.split(".")[1] for (version,) in await self.rows(select, thread_id))

    async def blobs(self, thread_id: str = "t") -> list[str]:
        select = "SELECT hash FROM checkpoint_blobs WHERE thread_id = $1 ORDER BY hash"
        return [name for (name,) in await self.rows(select, thread_id)]

    async def numbers(self, thread_id: str = "t", *, plain: bool = True) -> list[int]:
        log = await (self.plain if plain else self.store).get_log(thread_id, limit=1000)
        assert [row.sequence for row in log.entries] == list(range(len(log.entries)))
        return [json.loads(row.checkpoint.frozen_state)["n"] for row in log.entries]


@asynccontextmanager
async def place(server: str, **options: Any) -> AsyncGenerator[Place]:
    async with spare_database(server) as url, proxied(url) as proxy:
        store = await PostgresStore.open(proxy.url(url), **options)
        plain = await PostgresStore.open(url)
        try:
            yield Place(url, proxy, store, plain)
        finally:
            await store.close()
            await plain.close()


def running(n: int, thread_id: str = "t", **more: Any) -> Checkpoint:
    state = json.dumps({"n": n, "kept": "x" * 50, **more})
    return sample(thread_id, Status.RUNNING, schema_version="1.7.0", next_node="N", frozen_state=state)


def evident(n: int, evidence: str = EVIDENCE, **more: Any) -> Checkpoint:
    state = json.dumps({"n": n, "evidence": evidence})
    running = {"status": Status.RUNNING, "schema_version": "1.7.0", "next_node": "N"}
    return sample(**{**running, "frozen_state": state, **more})


def name_of(value: str) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(value).encode()).hexdigest()}"


async def leased(store: PostgresStore, thread_id: str) -> Lease:
    answer = await store.acquire_lease(thread_id, "w", LONG)
    assert isinstance(answer, Acquired)
    return answer.lease


INSERT = (
    "INSERT INTO checkpoints (thread_id, sequence, schema_version, status, frozen_state, created_at) "
    "VALUES ('t', $1, $2, 'running', $3, '2026-01-01T00:00:00Z')"
)


async def test_rows_written_by_hand_decode(postgres_server: str) -> None:
    """J1, K1: with the options off; a page may begin at a delta; listings show the engine's version."""
    content = json.dumps(EVIDENCE).encode()
    rows = [
        ("1.9.0", {"checkpoint_version": "1.7.0", "delta_of": None, "depth": 0, "state": {"a": 1, "b": 2},
                   "blobs": {"evidence": {"hash": name_of(EVIDENCE), "bytes": len(content)}}}),
        ("1.8.0", {"checkpoint_version": "1.7.0", "delta_of": 0, "depth": 1, "set": {"a": 3},
                   "unset": ["b"]}),
        ("1.8.0", {"checkpoint_version": "1.7.0", "delta_of": 1, "depth": 2, "set": {"c": 4}, "unset": []}),
    ]  # fmt: skip
    async with place(postgres_server) as here:
        await here.rows("INSERT INTO checkpoint_blobs VALUES ('t', $1, $2)", name_of(EVIDENCE), content)
        for sequence, (version, envelope) in enumerate(rows):
            await here.rows(INSERT, sequence, version, json.dumps(envelope))
            row = await here.store.load("t")
            assert row is not None
            assert (row.sequence, row.checkpoint.schema_version) == (sequence, "1.7.0")
            (summary,) = (await here.store.list_threads(ThreadQuery())).threads
            assert (summary.sequence, summary.schema_version) == (sequence, "1.7.0")
        states = [{"a": 1, "b": 2}, {"a": 3}, {"a": 3, "c": 4}]
        for after in (-1, 0, 1):
            log = await here.store.get_log("t", after=after)
            found = [json.loads(entry.checkpoint.frozen_state) for entry in log.entries]
            assert found == [state | {"evidence": EVIDENCE} for state in states[after + 1 :]]


async def test_a_row_is_what_changed(postgres_server: str) -> None:
    """J2: row 1 exactly, and the versions of 13 rows with a finished one among them."""
    async with place(postgres_server, deltas=DeltaOptions(full_every=4)) as here:
        for n in range(13):
            row = running(n)
            await here.store.save(row if n != 10 else sample(frozen_state=row.frozen_state))
        assert await here.numbers() == await here.numbers(plain=False) == list(range(13))
        assert await here.versions() == "7888788878088"
        ((text,),) = await here.rows("SELECT frozen_state FROM checkpoints WHERE sequence = 1")
        assert json.loads(text) == {
            "checkpoint_version": "1.7.0", "delta_of": 0, "depth": 1, "set": {"n": 1}, "unset": [],
        }  # fmt: skip


@pytest.mark.parametrize("how", ["plain", "conditional", "fenced", "fenced and conditional"])
@pytest.mark.parametrize("group", [None, GROUP])
async def test_a_moved_base_makes_a_whole_row(
    how: str, group: GroupCommitOptions | None, postgres_server: str
) -> None:
    """J3: for each kind of save; a delta again after. A lost lease and a moved log go first."""
    async with place(postgres_server, deltas=DeltaOptions(), group_commit=group) as here:
        lease = await leased(here.store, "t")
        fence: dict[str, Any] = {"lease": lease} if "fenced" in how else {}
        await here.store.save(running(0), **fence)
        await here.plain.save(running(1))
        for n in (2, 3):
            expected = n - 1 if "conditional" in how else None
            assert await here.store.save(running(n), expected=expected, **fence) == Saved(n)
        assert await here.versions() == "7778"
        await here.plain.save(running(4))
        assert await here.store.save(running(9), expected=0, **fence) == NotLatest()
        assert await here.store.save(running(5), **fence) == Saved(5)
        await here.plain.save(running(6))
        await here.plain.release_lease(lease)
        await leased(here.plain, "t")
        if fence:
            assert await here.store.save(running(9), **fence) == LeaseLost()
        assert await here.numbers() == list(range(7))


async def test_loads_and_purges_are_remembered(postgres_server: str) -> None:
    """J4, I5: cold is whole, after a load a delta, after a purge whole."""
    async with place(postgres_server, deltas=DeltaOptions()) as here:
        await here.plain.save(running(0))
        await here.store.save(running(1))
        await here.plain.save(running(2))
        await here.store.load("t")
        await here.store.save(running(3))
        assert await here.versions() == "7778"
        await here.store.save(sample(frozen_state='{"n":4}'))
        assert await here.store.purge(LATER, states={ThreadState.COMPLETED}) == 1
        assert await here.store.save(running(0)) == Saved(0)
        assert await here.versions() == "7"


async def test_a_delta_in_doubt_is_found_by_its_value(postgres_server: str) -> None:
    """J6: the next row is whole."""
    async with place(postgres_server, deltas=DeltaOptions(), offload=SMALL) as here:
        await here.store.save(evident(0))
        here.proxy.drop_answers(containing=b"delta_of")
        assert await here.store.save(evident(1)) == Saved(1)
        assert here.proxy.dropped == 1
        await here.store.save(evident(2))
        await here.store.save(evident(3))
        assert await here.versions() == "9898"
        assert await here.numbers() == [0, 1, 2, 3]


async def test_a_durable_run_reads_back(postgres_server: str) -> None:
    """J8."""
    graph: Graph[dict[str, Any]] = Graph(dict[str, Any], id="line", version="1")
    for number in range(5):

        @graph.node(name=f"n{number}")
        async def add(state: dict[str, Any]) -> None:
            state["n"] = state.get("n", 0) + 1

    for number in range(4):
        graph.edge(f"n{number}", f"n{number + 1}")
    compiled = graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)
    async with place(postgres_server, deltas=DeltaOptions(), offload=SMALL, group_commit=GROUP) as here:
        await Threads(compiled, here.store).run("t", {"n": 0, "kept": "x" * 100})
        assert await here.numbers() == [0, 1, 2, 3, 4, 5]
        assert "8" in await here.versions()
        assert len(await here.blobs()) == 1


@pytest.mark.parametrize("outside", [False, True])
async def test_a_value_is_written_once(outside: bool, postgres_server: str, tmp_path: Path) -> None:
    """K1, K2, K4: in the database or in a folder."""
    offload = OffloadOptions(threshold=64, folder=tmp_path / "blobs" if outside else None)
    async with place(postgres_server, deltas=DeltaOptions(), offload=offload) as here:
        waiting = evident(2, status=Status.INTERRUPTED, schema_version="1.0.0")
        for row in (evident(0), evident(1), evident(2), waiting, evident(2, OTHER), evident(3, OTHER)):
            await here.store.save(row)
        assert await here.versions() == "988998"
        assert await here.numbers(plain=not outside) == [0, 1, 2, 2, 2, 3]
        names = sorted(map(name_of, (EVIDENCE, OTHER)))
        assert await here.blobs() == ([] if outside else names)
        reader = await PostgresStore.open_read_only(
            here.url, offload=OffloadOptions(threshold=10**9, folder=offload.folder)
        )
        latest = await reader.load("t")
        assert latest is not None
        assert json.loads(latest.checkpoint.frozen_state) == {"n": 3, "evidence": OTHER}
        assert len((await reader.get_log("t")).entries) == 6
        await reader.close()
        if outside:
            with pytest.raises(CorruptRow, match="which the blob store doesn't have"):
                await here.plain.load("t")
        await here.store.save(evident(0, thread_id="other"))
        await here.store.save(sample())
        assert await here.store.purge(LATER, states={ThreadState.COMPLETED}) == 1
        assert await here.blobs() == []
        if outside:
            (folder,) = (tmp_path / "blobs").iterdir()
            assert folder.name == b"other".hex()
        else:
            assert len(await here.blobs("other")) == 1


@pytest.mark.parametrize("what", ["missing", "tampered"])
async def test_a_bad_blob_fails_load_and_log(what: str, postgres_server: str) -> None:
    """K3: naming the row that refers to it, an earlier one here."""
    async with place(postgres_server, deltas=DeltaOptions(), offload=SMALL) as here:
        await here.store.save(evident(0))
        await here.store.save(evident(1))
        change = (
            "DELETE FROM checkpoint_blobs"
            if what == "missing"
            else "UPDATE checkpoint_blobs SET content = '1'"
        )
        await here.rows(change)
        why = "which the blob store doesn't have" if what == "missing" else "whose content doesn't match"
        for call in (here.store.load("t"), here.store.get_log("t", after=0)):
            with pytest.raises(CorruptRow) as refusal:
                await call
            where = f"refers to blob {name_of(EVIDENCE)} at 'evidence'"
            assert str(refusal.value) == f"checkpoint 't' #0 {where}, {why}"


@pytest.mark.parametrize("deltas", [None, DeltaOptions()])
async def test_a_base_replaced_at_its_place_brings_the_blob_again(
    deltas: DeltaOptions | None, postgres_server: str
) -> None:
    """K6: the thread was purged and begun anew by another process."""
    async with place(postgres_server, deltas=deltas, offload=SMALL) as here:
        await here.store.save(evident(0))
        for table in ("checkpoints", "checkpoint_threads", "checkpoint_blobs"):
            await here.rows(f"TRUNCATE {table}")
        await here.plain.save(evident(7, created_at="2026-01-02T03:04:06Z"))
        assert await here.store.save(evident(1)) == Saved(1)
        assert await here.numbers() == [7, 1]
        assert await here.blobs() == [name_of(EVIDENCE)]
        assert await here.versions() == "79"


async def test_a_refused_row_leaves_no_blob(postgres_server: str) -> None:
    async with place(postgres_server, offload=SMALL) as here:
        assert await here.store.save(evident(0), expected=5) == NotLatest()
        assert await here.blobs() == []


async def test_one_flush_with_every_kind_of_answer(postgres_server: str) -> None:
    """L3: in one transaction; and a last save that frees its thread."""
    async with place(postgres_server, group_commit=GROUP) as here:
        store = here.store
        await asyncio.gather(*(store.save(running(0, thread_id)) for thread_id in "abcdefg"))
        lost = await leased(store, "b")
        await store.release_lease(lost)
        await leased(store, "b")
        held, last = await leased(store, "c"), await leased(store, "g")
        answers = await asyncio.gather(
            store.save(running(9, "a"), expected=7),
            store.save(running(9, "b"), expected=9, lease=lost),
            store.save(running(1, "c"), lease=held),
            store.save(running(1, "d")),
            store.save(running(1, "e")),
            store.save(running(2, "e")),
            store.save(running(9, "f"), expected=3),
            store.save(running(1, "f"), expected=0),
            store.save(running(1, "g"), lease=last, release=True),
        )
        assert answers == [
            NotLatest(), LeaseLost(), Saved(1), Saved(1), Saved(1), Saved(2), NotLatest(), Saved(1), Saved(1),
        ]  # fmt: skip
        written = await here.rows("SELECT DISTINCT xmin::TEXT FROM checkpoints WHERE sequence > 0")
        assert len(written) == 1
        logs = [await here.numbers(thread_id) for thread_id in "abcdefg"]
        assert logs == [[0], [0], [0, 1], [0, 1], [0, 1, 2], [0, 1], [0, 1]]
        assert await store.get_lease("c") == held
        assert await store.get_lease("g") is None


@pytest.mark.parametrize("encoded", [False, True])
async def test_many_writers(encoded: bool, postgres_server: str) -> None:
    """L4, K7: every log whole and in order, in fewer transactions than saves, one blob a thread."""
    options: dict[str, Any] = {"deltas": DeltaOptions(full_every=3), "offload": SMALL} if encoded else {}
    async with place(postgres_server, group_commit=GROUP, **options) as here:

        async def write(thread_id: str) -> None:
            for n in range(20):
                row = running(n, thread_id, evidence=EVIDENCE)
                assert await here.store.save(row, expected=n - 1) == Saved(n)

        await asyncio.gather(*(write(f"t{at}") for at in range(24)))
        for at in range(24):
            assert await here.numbers(f"t{at}") == list(range(20))
            assert len(await here.blobs(f"t{at}")) == (1 if encoded else 0)
        ((flushes,),) = await here.rows("SELECT count(DISTINCT xmin::TEXT) FROM checkpoints")
        assert flushes < 24 * 20 / 4


async def test_deltas_in_a_flush(postgres_server: str) -> None:
    """J7: a moved base whole in its flush; two of one thread both whole; the next a delta."""
    async with place(postgres_server, deltas=DeltaOptions(), group_commit=GROUP) as here:
        store = here.store
        await asyncio.gather(store.save(running(0, "a")), store.save(running(0, "b")))
        await here.plain.save(running(1, "a"))
        answers = await asyncio.gather(
            store.save(running(2, "a")),
            store.save(running(1, "b")),
            store.save(running(0, "c")),
            store.save(running(1, "c")),
        )
        assert list(answers) == [Saved(2), Saved(1), Saved(0), Saved(1)]
        await asyncio.gather(*(store.save(running(3, thread_id)) for thread_id in "abc"))
        assert [await here.numbers(thread_id) for thread_id in "abc"] == [[0, 1, 2, 3], [0, 1, 3], [0, 1, 3]]
        assert [await here.versions(thread_id) for thread_id in "abc"] == ["7778", "788", "778"]


@pytest.mark.parametrize(
    "bad",
    [
        {"suspended_node": "a\0b"},  # refused here
        {"frozen_state": '{"n":1e999999}'},  # refused by the server, in the middle of the transaction
    ],
)
async def test_only_the_bad_row_fails(bad: dict[str, Any], postgres_server: str) -> None:
    """L5."""
    async with place(postgres_server, group_commit=GROUP) as here:
        rows = [running(0, "a"), sample("bad", **bad), running(0, "b"), running(1, "a")]
        answers = await asyncio.gather(*map(here.store.save, rows), return_exceptions=True)
        assert isinstance(answers[1], InvalidRequest)
        assert [answers[0], answers[2], answers[3]] == [Saved(0), Saved(0), Saved(1)]
        assert await here.store.load("bad") is None


async def test_a_flush_that_never_arrived_is_sent_again(postgres_server: str) -> None:
    """L6: and where it isn't, it fails all its saves."""
    async with place(postgres_server, group_commit=GROUP) as here:
        here.proxy.drop_requests(containing=b"outcrop-mark")
        rows = [running(0, thread_id, mark="outcrop-mark") for thread_id in "abc"]
        assert await asyncio.gather(*map(here.store.save, rows)) == [Saved(0)] * 3
        assert here.proxy.dropped == 1
        assert [await here.numbers(thread_id) for thread_id in "abc"] == [[0]] * 3
    async with place(postgres_server, group_commit=GROUP, retries=RetryOptions(max_attempts=1)) as here:
        here.proxy.drop_requests(containing=b"outcrop-mark")
        failed = await asyncio.gather(*map(here.store.save, rows), return_exceptions=True)
        assert all(isinstance(answer, Unavailable) for answer in failed)
        assert await here.plain.load("a") is None


async def test_a_flush_in_doubt_is_settled_row_by_row(postgres_server: str) -> None:
    """L6: saved ones are found, refused ones are refused again, and nothing is written twice."""
    async with place(postgres_server, group_commit=GROUP) as here:
        store = here.store
        await asyncio.gather(*(store.save(running(0, thread_id)) for thread_id in "abc"))
        here.proxy.drop_answers(containing=b"outcrop-mark")
        answers = await asyncio.gather(
            store.save(running(1, "a", mark="outcrop-mark")),
            store.save(running(2, "a")),
            store.save(running(1, "b"), expected=0),
            store.save(running(9, "c"), expected=7),
            store.save(running(1, "c")),
        )
        assert list(answers) == [Saved(1), Saved(2), Saved(1), NotLatest(), Saved(1)]
        assert here.proxy.dropped == 1
        assert [await here.numbers(thread_id) for thread_id in "abc"] == [[0, 1, 2], [0, 1], [0, 1]]


async def test_a_queued_save_is_withdrawn(postgres_server: str) -> None:
    """L7."""
    async with place(postgres_server, group_commit=GroupCommitOptions(max_concurrent_flushes=1)) as here:
        first = asyncio.ensure_future(here.store.save(running(0, "a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # its flush is on its way
        queued = asyncio.ensure_future(here.store.save(running(1, "a")))
        last = asyncio.ensure_future(here.store.save(running(2, "a")))
        await asyncio.sleep(0)
        queued.cancel()
        first.cancel()
        assert await last == Saved(1)
        assert await here.numbers("a") == [0, 2]


@pytest.mark.parametrize(
    "options",
    [
        lambda: DeltaOptions(full_every=1),
        lambda: DeltaOptions(cached_threads=0),
        lambda: OffloadOptions(threshold=0),
        lambda: GroupCommitOptions(max_batch=0),
        lambda: GroupCommitOptions(max_concurrent_flushes=0),
    ],
)
def test_options_are_checked(options: Any) -> None:
    """J8, K8, L8."""
    with pytest.raises(InvalidRequest, match="must be at least"):
        options()
