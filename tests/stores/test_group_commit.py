"""Which saves go together, whose failure is whose, and whose turn it is (L), with a flush moved by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import InvalidRequest, NotLatest, Saved, StoreError, Unavailable
from outcrop.stores.contract import sample
from outcrop.stores.group_commit import GroupCommit
from outcrop.stores.options import GroupCommitOptions
from outcrop.stores.save import Save

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outcrop.stores.group_commit import Flushed
    from outcrop.stores.port import SaveResult


class Flushes:
    """A `flush` that waits to be told how each one ends."""

    def __init__(self) -> None:
        self.running: list[tuple[list[str], asyncio.Future[Sequence[Flushed]]]] = []

    async def flush(self, saves: Sequence[Save]) -> Sequence[Flushed]:
        end: asyncio.Future[Sequence[Flushed]] = asyncio.get_running_loop().create_future()
        self.running.append(([names(save) for save in saves], end))
        return await end

    async def end(self, at: int = 0, error: Exception | None = None) -> list[str]:
        """End a running flush: with an error, or each save saved at its place in the flush."""
        saves, end = self.running.pop(at)
        if error is None:
            end.set_result([Saved(place) for place in range(len(saves))])
        else:
            end.set_exception(error)
        await settle()
        return saves

    @property
    def saves(self) -> list[list[str]]:
        return [saves for saves, _ in self.running]


def names(save: Save) -> str:
    return f"{save.checkpoint.thread_id}{(save.checkpoint.metadata or {}).get('n', '')}"


def save(thread_id: str, n: str = "") -> Save:
    return Save(sample(thread_id, metadata={"n": n}))


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


class Group:
    """A group commit over flushes moved by hand."""

    def __init__(self, *, max_batch: int = 256, concurrent: int = 1) -> None:
        self.flushes = Flushes()
        self.group = GroupCommit(self.flushes.flush, max_batch=max_batch, concurrent=concurrent)

    async def begin(self, *saves: str) -> list[asyncio.Task[SaveResult]]:
        """Start saves named by a thread's letter and a number."""
        tasks = [asyncio.create_task(self.group.save(save(name[0], name[1:]))) for name in saves]
        await settle()
        return tasks


async def test_a_lone_save_goes_at_once_and_the_next_go_together() -> None:
    """L1: in the order of arrival, up to the largest batch."""
    group = Group(max_batch=3)
    (lone,) = await group.begin("a")
    assert group.flushes.saves == [["a"]]
    others = await group.begin("b", "c", "d", "e")
    assert group.flushes.saves == [["a"]]
    await group.flushes.end()
    assert lone.result() == Saved(0)
    assert group.flushes.saves == [["b", "c", "d"]]
    await group.flushes.end()
    assert [task.result() for task in others[:3]] == [Saved(0), Saved(1), Saved(2)]
    assert group.flushes.saves == [["e"]]
    await group.flushes.end()
    assert others[3].result() == Saved(0)
    assert group.flushes.saves == []


async def test_saves_of_one_moment_go_together() -> None:
    group = Group(concurrent=4)
    await group.begin("a", "b", "c")
    assert group.flushes.saves == [["a", "b", "c"]]


async def test_a_thread_is_in_one_flush_at_a_time() -> None:
    """L2: its later saves wait and keep their order, and another thread goes meanwhile."""
    group = Group(concurrent=2)
    await group.begin("a1")
    await group.begin("a2", "b1", "a3", "b2")
    assert group.flushes.saves == [["a1"], ["b1", "b2"]]
    await group.begin("c1")
    assert group.flushes.saves == [["a1"], ["b1", "b2"]]  # all places taken
    await group.flushes.end(1)
    assert group.flushes.saves == [["a1"], ["c1"]]
    await group.flushes.end(0)
    assert group.flushes.saves == [["c1"], ["a2", "a3"]]


async def test_a_place_is_free_again_after_each_flush() -> None:
    group = Group(concurrent=2)
    for round_ in range(5):
        tasks = await group.begin("a", "b")
        await group.begin("c")
        assert group.flushes.saves == [["a", "b"], ["c"]], round_
        await group.flushes.end()
        await group.flushes.end()
        assert all(task.done() for task in tasks)


async def test_what_is_over_a_batch_takes_the_other_places() -> None:
    group = Group(max_batch=2, concurrent=3)
    await group.begin(*"abcdefg")
    assert group.flushes.saves == [["a", "b"], ["c", "d"], ["e", "f"]]


async def test_a_save_as_the_last_flush_ends_is_not_left() -> None:
    """A worker that has just looked at an empty queue is a free place."""
    group = Group()
    (first,) = await group.begin("a")
    second: list[asyncio.Task[SaveResult]] = []
    first.add_done_callback(lambda _: second.append(asyncio.create_task(group.group.save(save("b")))))
    await group.flushes.end()
    assert group.flushes.saves == [["b"]]
    await group.flushes.end()
    assert second[0].result() == Saved(0)


async def test_each_save_has_its_own_answer() -> None:
    """L3: an error among the answers is only that save's."""
    group = Group()
    tasks = await group.begin("a", "b", "c")
    _, end = group.flushes.running.pop()
    end.set_result([Saved(7), StoreError("only b"), NotLatest()])
    await settle()
    assert tasks[0].result() == Saved(7)
    assert str(tasks[1].exception()) == "only b"
    assert tasks[2].result() == NotLatest()


async def test_what_a_flush_leaves_goes_alone() -> None:
    """L5: what it has written keeps its answer."""
    group = Group()
    tasks = await group.begin("a", "b", "c")
    _, end = group.flushes.running.pop()
    end.set_result([Saved(7), None, None])
    await settle()
    assert tasks[0].result() == Saved(7)
    for saves, failure in ((["b"], StoreError("NUL")), (["c"], None)):
        assert group.flushes.saves == [saves]
        await group.flushes.end(error=failure)
    assert str(tasks[1].exception()) == "NUL"
    assert tasks[2].result() == Saved(0)


@pytest.mark.parametrize("error", [StoreError("NUL"), InvalidRequest("bad"), ValueError("a bug")])
async def test_after_a_failed_flush_each_row_goes_alone(error: Exception) -> None:
    """L5: so that only the bad one fails."""
    group = Group()
    tasks = await group.begin("a", "b", "c")
    late = await group.begin("a")
    await group.flushes.end(error=error)
    for saves, failure in ((["a"], None), (["b"], error), (["c"], None)):
        assert group.flushes.saves == [saves]
        await group.flushes.end(error=failure)
    assert tasks[0].result() == tasks[2].result() == Saved(0)
    assert tasks[1].exception() is error
    assert group.flushes.saves == [["a"]]  # the thread was busy until now
    await group.flushes.end()
    assert late[0].result() == Saved(0)


async def test_a_passing_failure_fails_the_whole_flush() -> None:
    """L6: the store's own retries are over by then. The next flush is another one."""
    group = Group()
    tasks = await group.begin("a", "b")
    (later,) = await group.begin("c")
    await group.flushes.end(error=Unavailable("the server is gone"))
    failures = [task.exception() for task in tasks]
    assert [(type(it), str(it)) for it in failures] == [(Unavailable, "the server is gone")] * 2
    assert failures[0] is not failures[1]  # each is raised in its own caller
    assert group.flushes.saves == [["c"]]
    await group.flushes.end()
    assert later.result() == Saved(0)


async def test_a_queued_save_whose_caller_gave_up_is_withdrawn() -> None:
    """L7: one that is being flushed is carried out, and holds nobody up."""
    group = Group()
    (flushed,) = await group.begin("a")
    withdrawn, kept = await group.begin("b", "c")
    withdrawn.cancel()
    flushed.cancel()
    await settle()
    assert withdrawn.cancelled()
    assert flushed.cancelled()
    await group.flushes.end()
    assert group.flushes.saves == [["c"]]
    await group.flushes.end()
    assert kept.result() == Saved(0)


async def test_closing_waits_for_what_is_queued() -> None:
    group = Group()
    tasks = await group.begin("a", "b")
    tasks += await group.begin("c")
    closing = asyncio.create_task(group.group.close())
    await settle()
    await group.flushes.end()
    assert not closing.done()
    await group.flushes.end()
    await closing
    assert [task.result() for task in tasks] == [Saved(0), Saved(1), Saved(0)]


@pytest.mark.parametrize("concurrent", [1, 4])
async def test_every_save_is_flushed_once_in_its_threads_order(concurrent: int) -> None:
    """L4's shape, over flushes that end by themselves."""
    flushed: list[str] = []
    sizes: list[int] = []
    busy: set[str] = set()

    async def flush(saves: Sequence[Save]) -> Sequence[Flushed]:
        threads = {save.checkpoint.thread_id for save in saves}
        assert not threads & busy
        busy.update(threads)
        for _ in range(len(saves)):
            await asyncio.sleep(0)
        flushed.extend(map(names, saves))
        sizes.append(len(saves))
        busy.difference_update(threads)
        return [Saved(0)] * len(saves)

    group = GroupCommit(flush, max_batch=5, concurrent=concurrent)

    async def writer(thread_id: str) -> None:
        for n in range(20):
            await group.save(save(thread_id, str(n)))

    await asyncio.gather(*map(writer, "abcdefghijklmnopqrstuvwx"))
    for thread_id in "abcdefghijklmnopqrstuvwx":
        assert [name for name in flushed if name[0] == thread_id] == [f"{thread_id}{n}" for n in range(20)]
    assert 1 < max(sizes) <= 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (lambda: GroupCommitOptions(max_batch=0), "group commit's max batch must be at least 1"),
        (
            lambda: GroupCommitOptions(max_concurrent_flushes=0),
            "group commit's max concurrent flushes must be at least 1",
        ),
    ],
)
def test_options_are_checked(options: Callable[[], GroupCommitOptions], message: str) -> None:
    """L8."""
    with pytest.raises(InvalidRequest) as refusal:
        options()
    assert str(refusal.value) == message
    assert (GroupCommitOptions().max_batch, GroupCommitOptions().max_concurrent_flushes) == (256, 4)
