"""Copying threads between stores: what arrives, what is left alone, what is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import (
    Acquired,
    InvalidRequest,
    MemoryStore,
    Note,
    NoteKind,
    Row,
    Saved,
    Status,
    ThreadQuery,
    ThreadState,
    Unavailable,
    open_store,
)
from outcrop.stores.codec import same_as
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.copying import CopyReport, CopyResult, ThreadCopy, copy_threads, count_threads
from outcrop.stores.testing import FailingStore
from support.storages import KINDS, Places, with_option

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from outcrop.stores import Checkpoint, Lease, Store
    from outcrop.stores.port import SaveResult

EVERYTHING = ThreadQuery()
TTL = timedelta(minutes=1)


class Told:
    """Keeps what a copy told."""

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self.threads: dict[str, ThreadCopy] = {}

    def appended(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size

    def finished(self, thread: ThreadCopy) -> None:
        assert thread.thread_id not in self.threads
        self.threads[thread.thread_id] = thread

    def result(self, thread_id: str) -> CopyResult:
        return self.threads[thread_id].result

    def reason(self, thread_id: str) -> str:
        return self.threads[thread_id].reason or ""


async def copied(source: Store, target: Store, query: ThreadQuery = EVERYTHING) -> tuple[CopyReport, Told]:
    told = Told()
    report = await copy_threads(source, target, query, told)
    assert report.rows == told.rows
    assert report.size == told.size
    assert report.results.total() == len(told.threads)
    return report, told


async def fill(store: Store, thread_id: str, rows: int, **changes: object) -> None:
    """A thread of some running rows and a last one."""
    for number in range(rows):
        last = number == rows - 1
        status = Status.COMPLETED if last else Status.RUNNING
        state = f'{{"n":{number},"same":"{"x" * 50}"}}'
        row = sample(thread_id, status, frozen_state=state, **changes)
        assert isinstance(await store.save(row), Saved)


async def log(store: Store, thread_id: str) -> list[Row]:
    return list((await store.get_log(thread_id, limit=1000)).entries)


def alike(one: list[Row], other: list[Row]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a.sequence == b.sequence and same_as(a.checkpoint, b.checkpoint) for a, b in pairs)


@asynccontextmanager
async def opened(url: str, *, read_only: bool = False) -> AsyncGenerator[Store]:
    store = await open_store(url, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("target_engine", KINDS)
@pytest.mark.parametrize("source_engine", KINDS)
async def test_every_shape_arrives_on_every_engine(
    source_engine: str, target_engine: str, places: Places
) -> None:
    async with (
        places.fresh(source_engine) as source_place,
        places.fresh(target_engine) as target_place,
    ):
        async with opened(source_place.url) as store:
            for name, shape in SHAPES.items():
                await fill(store, name, 2)
                await store.save(replace(shape, thread_id=name))
        async with opened(source_place.url, read_only=True) as source, opened(target_place.url) as target:
            report, told = await copied(source, target)
            assert report.complete
            assert told.threads.keys() == SHAPES.keys()
            assert report.rows == 3 * len(SHAPES)
            for name in SHAPES:
                assert alike(await log(source, name), await log(target, name))
            listed = {thread.thread_id: thread for thread in (await target.list_threads(EVERYTHING)).threads}
            assert listed == {
                thread.thread_id: thread for thread in (await source.list_threads(EVERYTHING)).threads
            }
            again, _ = await copied(source, target)
            assert (again.rows, again.results) == (0, {CopyResult.PRESENT: len(SHAPES)})


@pytest.mark.parametrize("engine", KINDS)
async def test_deltas_and_blobs_are_undone_and_the_target_makes_its_own(engine: str, places: Places) -> None:
    encoded = "deltas_full_every=4&offload_threshold=40"
    async with (
        places.fresh(engine) as source_place,
        places.fresh(engine) as target_place,
    ):
        async with opened(with_option(source_place.url, encoded)) as source:
            await fill(source, "t", 70, schema_version="1.7.0")
        for url in (target_place.url, with_option(target_place.url, encoded)):
            async with opened(source_place.url, read_only=True) as source, opened(url) as target:
                report, _ = await copied(source, target)
                assert report.complete
                assert alike(await log(source, "t"), await log(target, "t"))
                assert [row.checkpoint.schema_version for row in await log(target, "t")] == ["1.7.0"] * 70


async def test_filters_choose_the_threads() -> None:
    source, target = MemoryStore(), MemoryStore()
    await source.save(sample("a", metadata={"tenant": "acme"}))
    await source.save(sample("b", metadata={"tenant": "other"}))
    await source.save(sample("c", Status.FAILED, metadata={"tenant": "acme"}))
    query = ThreadQuery(states=frozenset({ThreadState.COMPLETED}), metadata={"tenant": "acme"}, limit=1)
    assert await count_threads(source, query) == 1
    _, told = await copied(source, target, query)
    assert told.threads.keys() == {"a"}
    assert await target.load("b") is await target.load("c") is None


async def test_more_threads_than_a_page() -> None:
    source, target = MemoryStore(), MemoryStore()
    for number in range(2_100):
        await source.save(sample(f"t{number}"))
    assert await count_threads(source, EVERYTHING) == 2_100
    report, _ = await copied(source, target)
    assert report.results == {CopyResult.COPIED: 2_100}
    assert report.complete


async def test_a_long_log_of_large_states_goes_in_pages() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "small", 2_500)
    for number in range(50):
        await source.save(sample("large", frozen_state=f'["{number:0>300000}"]'))
    asked = FailingStore(source)
    report, _ = await copied(asked, target)
    assert report.complete
    assert alike(await log(source, "large"), await log(target, "large"))
    assert (await target.load("small")) == (await source.load("small"))
    # 16 rows, then 13 (4 MB) a page; 16, then a thousand.
    assert asked.faults.calls["get_log"] == (1 + 3) + (1 + 3)


async def test_a_broken_off_copy_goes_on_where_it_stopped() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 50)
    failing = FailingStore(target)
    failing.fail("save", Unavailable("gone"), call=41)
    told = Told()
    with pytest.raises(Unavailable, match="gone"):
        await copy_threads(source, failing, EVERYTHING, told)
    assert told.rows == 16  # a page that was read back
    assert len(await log(target, "t")) == 40
    report, told = await copied(source, target)
    assert report.complete
    assert report.rows == 10
    assert alike(await log(source, "t"), await log(target, "t"))


async def test_an_unavailable_store_ends_all_threads() -> None:
    source, target = MemoryStore(), MemoryStore()
    for number in range(20):
        await fill(source, f"t{number}", 3)
    failing = FailingStore(target)
    failing.fail("save", Unavailable("gone"), call=5, after=True)
    with pytest.raises(Unavailable, match="gone"):
        await copy_threads(source, failing, EVERYTHING, Told())
    report, _ = await copied(source, target)
    assert report.complete
    assert [len(await log(target, f"t{number}")) for number in range(20)] == [3] * 20


async def test_other_rows_in_the_target_are_a_conflict_and_stay() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 3)
    await fill(target, "t", 1)  # its only row is the last one of its own
    before = await log(target, "t")
    report, told = await copied(source, target)
    assert told.result("t") is CopyResult.CONFLICT
    assert told.reason("t") == "the target has another row at sequence 0"
    assert not report.complete
    assert report.rows == 0
    assert await log(target, "t") == before


async def test_a_thread_that_went_on_in_the_target_is_left_to_it() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 2)
    await copied(source, target)
    await target.save(sample("t", frozen_state='"more"'))
    report, told = await copied(source, target)
    assert told.result("t") is CopyResult.AHEAD
    assert "sequence 2" in told.reason("t")
    assert report.complete


@pytest.mark.parametrize("where", ["source", "target"])
async def test_a_held_thread_is_left_out_and_told(where: str) -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 2)
    await fill(source, "free", 2)
    holder = source if where == "source" else target
    taken = await holder.acquire_lease("t", "worker-1", TTL)
    assert isinstance(taken, Acquired)
    report, told = await copied(source, target)
    assert told.result("t") is CopyResult.HELD
    assert told.reason("t") == f"'worker-1' holds it in the {where}"
    assert told.result("free") is CopyResult.COPIED
    assert not report.complete
    assert await target.load("t") is None
    await holder.release_lease(taken.lease)
    report, told = await copied(source, target)
    assert report.complete
    assert told.result("t") is CopyResult.COPIED


class _Otherwise(FailingStore):
    """A store with something else done at each save: `before` it, or to what it is to `keep`."""

    def __init__(
        self,
        store: Store,
        *,
        before: Callable[[int], Awaitable[object]] | None = None,
        keep: Callable[[Checkpoint], Checkpoint] = lambda row: row,
    ) -> None:
        super().__init__(store)
        self._before = before
        self._keep = keep

    async def save(
        self,
        checkpoint: Checkpoint,
        *,
        expected: int | None = None,
        lease: Lease | None = None,
        release: bool = False,
        notes: Sequence[Note] = (),
    ) -> SaveResult:
        if self._before is not None:
            await self._before(self.faults.calls["save"] + 1)
        return await super().save(
            self._keep(checkpoint), expected=expected, lease=lease, release=release, notes=notes
        )


def meddling(store: Store, row: Checkpoint) -> Store:
    """The store, in which somebody else saves this row just before the second save."""

    async def meddle(call: int) -> None:
        if call == 2:
            await store.save(row)

    return _Otherwise(store, before=meddle)


async def test_notes_go_with_their_rows() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 2)
    note = Note(NoteKind.PARENT, "", '{"sequence":0}')
    await source.save(sample("t"), notes=[note])
    report, _ = await copied(source, target)
    assert report.complete
    assert await target.get_notes(await log(target, "t")) == {2: (note,)}


async def test_a_target_that_moves_meanwhile_is_a_conflict() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 3)
    report, told = await copied(source, meddling(target, sample("t", frozen_state='"other"')))
    assert told.result("t") is CopyResult.CONFLICT
    assert told.reason("t") == "the target's log moved on before sequence 1"
    assert not report.complete
    assert len(await log(target, "t")) == 2


async def test_another_copy_of_the_same_thread_meanwhile_is_no_conflict() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 3)
    second = (await log(source, "t"))[1].checkpoint
    report, told = await copied(source, meddling(target, second))
    assert report.complete
    assert told.result("t") is CopyResult.COPIED
    assert alike(await log(source, "t"), await log(target, "t"))


async def test_two_copies_at_once_make_one() -> None:
    source, target = MemoryStore(), MemoryStore()
    for number in range(10):
        await fill(source, f"t{number}", 20)
    reports = await asyncio.gather(*(copied(source, target) for _ in range(2)))
    assert all(report.complete for report, _ in reports)
    for number in range(10):
        assert alike(await log(source, f"t{number}"), await log(target, f"t{number}"))


async def test_what_comes_back_otherwise_is_a_mismatch() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 3)

    def lossy(row: Checkpoint) -> Checkpoint:
        return replace(row, frozen_state=row.frozen_state.replace('"n":1', '"n":1.0'))

    report, told = await copied(source, _Otherwise(target, keep=lossy))
    assert told.result("t") is CopyResult.MISMATCH
    assert "sequence 1" in told.reason("t")
    assert not report.complete
    assert report.rows == 0


async def test_a_row_that_the_target_refuses_fails_its_thread_only() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "good", 2)
    await source.save(sample("bad", created_at="2027-01-01T00:00:00Z"))  # the newest: the first to be saved
    failing = FailingStore(target)
    failing.fail("save", InvalidRequest("NUL at 'a'"))
    report, told = await copied(source, failing)
    assert told.result("bad") is CopyResult.FAILED
    assert told.reason("bad") == "NUL at 'a'"
    assert told.result("good") is CopyResult.COPIED
    assert not report.complete


async def test_a_source_that_moves_on_is_told() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 2)

    class _Moving(Told):
        def finished(self, thread: ThreadCopy) -> None:
            super().finished(thread)
            moving.append(asyncio.ensure_future(source.save(late)))

    moving: list[asyncio.Future[object]] = []
    late = sample("late", created_at="2026-01-02T03:04:06Z")
    report = await copy_threads(source, target, EVERYTHING, _Moving())
    assert report.moved_on
    assert not report.complete
    query = ThreadQuery(updated_before=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC))
    assert (await copy_threads(source, target, query, Told())).complete
    report, told = await copied(source, target)
    assert report.complete
    assert told.result("late") is CopyResult.COPIED


async def test_a_thread_purged_meanwhile_is_no_failure() -> None:
    source, target = MemoryStore(), MemoryStore()
    await fill(source, "t", 1)

    class _Purging(FailingStore):
        async def load(self, thread_id: str) -> Row | None:
            await source.purge(datetime(2030, 1, 1, tzinfo=UTC), states=frozenset(ThreadState))
            return await super().load(thread_id)

    report, told = await copied(source, _Purging(target))
    assert report.complete
    assert told.reason("t") == "the source has it no more"


async def test_an_empty_source() -> None:
    report, told = await copied(MemoryStore(), MemoryStore())
    assert report.complete
    assert told.threads == {}
