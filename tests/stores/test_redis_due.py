"""What is due on Redis: found by wake time, whoever wrote the rows, and without a look at all that wait."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import Status, ThreadQuery, ThreadState, Wait, WaitKind
from outcrop.stores.codec import encode
from outcrop.stores.contract import sample
from outcrop.stores.instants import instant_text
from outcrop.stores.redis import RedisStore, due
from support.redis import RedisBinding, client

if TYPE_CHECKING:
    from pathlib import Path

    from outcrop.stores import Checkpoint

START = datetime(2026, 1, 1, tzinfo=UTC)
DUE = START + timedelta(days=30)
SOON, LATE = DUE - timedelta(days=1), DUE + timedelta(days=1)
STATES = ("interrupted", "failed", "cancelled", "resumed", "completed", "ended", "running")


@pytest.fixture
def binding(redis_server: str) -> RedisBinding:
    return RedisBinding(redis_server)


def waiting(thread_id: str, wake_at: datetime | str, began: datetime = START, **changes: Any) -> Checkpoint:
    text = wake_at if isinstance(wake_at, str) else instant_text(wake_at)
    return sample(
        thread_id,
        Status.INTERRUPTED,
        next_node="next",
        wait=Wait(WaitKind.TIMER, None, text),
        created_at=instant_text(began),
        **changes,
    )


async def listed(store: RedisStore, by: datetime = DUE, limit: int = 100) -> list[str]:
    """The threads that are due, over every page; those whose row can't be read with a question mark."""
    found: list[str] = []
    query = ThreadQuery(due_by=by, limit=limit)
    while True:
        page = await store.list_threads(query)
        found += [it.thread_id for it in page.threads]
        found += [f"{it.thread_id}?" for it in page.unreadable]
        if page.next_cursor is None:
            return found
        query = replace(query, cursor=page.next_cursor)


class Foreign:
    """Another engine: it keeps the keys of the format (stores.md, 5.2), and none of ours."""

    def __init__(self, binding: RedisBinding) -> None:
        self.url, self.prefix = binding.url, binding.prefix

    async def save(self, row: Checkpoint) -> None:
        thread, wait = row.thread_id, row.innermost.wait
        score = int("".join(filter(str.isdigit, row.updated_at)))
        state = row.state.value
        async with client(self.url) as redis, redis.pipeline() as steps:
            steps.rpush(f"{self.prefix}:checkpoints:{thread}", encode(row))
            steps.zadd(f"{self.prefix}:threads", {thread: score})
            if state == "interrupted" and wait is not None and wait.wake_at is not None:
                steps.zadd(f"{self.prefix}:threads:waking", {thread: score})
            else:
                steps.zrem(f"{self.prefix}:threads:waking", thread)
            for name in STATES:
                if name == state:
                    steps.zadd(f"{self.prefix}:threads:{name}", {thread: score})
                else:
                    steps.zrem(f"{self.prefix}:threads:{name}", thread)
            await steps.execute()

    async def purge(self, thread: str) -> None:
        async with client(self.url) as redis, redis.pipeline() as steps:
            steps.delete(f"{self.prefix}:checkpoints:{thread}")
            for name in ("", ":waking", *(f":{state}" for state in STATES)):
                steps.zrem(f"{self.prefix}:threads{name}", thread)
            await steps.execute()


async def noted(binding: RedisBinding) -> set[str]:
    """The threads in the set by wake time; as many are noted with what that was found for."""
    async with client(binding.url) as redis:
        members: list[Any] = await redis.zrange(f"{binding.prefix}:outcrop:due", 0, -1)
        fields = await redis.hlen(f"{binding.prefix}:outcrop:waits")
    assert fields - len(members) in {0, 1}  # one more says how far they were compared
    return set(members)


async def hide(binding: RedisBinding, *threads: str) -> None:
    """Make the rows unreadable: a listing that looks at one of them says so."""
    async with client(binding.url) as redis:
        for thread in threads:
            await redis.lset(f"{binding.prefix}:checkpoints:{thread}", -1, "unreadable")


async def test_threads_that_wake_later_are_not_read(binding: RedisBinding) -> None:
    async with binding.open() as store:
        for n in range(20):
            row = waiting(f"t{n:02}", SOON if n % 5 == 0 else LATE, START + timedelta(days=n))
            await store.save(row)
        await store.save(sample("done", created_at=instant_text(LATE)))
        await hide(binding, *(f"t{n:02}" for n in range(20) if n % 5))
        for limit in (1, 2, 3, 100):
            assert await listed(store, limit=limit) == ["t15", "t10", "t05", "t00"]
        assert await listed(store, SOON) == ["t15", "t10", "t05", "t00"]
        assert await listed(store, SOON - timedelta(seconds=1)) == []
        page = await store.list_threads(ThreadQuery(due_by=LATE))
        assert len(page.unreadable) == 16


async def test_what_waits_is_noted_as_it_changes(binding: RedisBinding) -> None:
    """A thread that wakes, ends or is purged is taken out; one that waits again is due anew."""
    async with binding.open() as store:
        for name in ("resumed", "ended", "purged", "again"):
            await store.save(waiting(name, SOON))
        began = instant_text(START)
        nested = sample("nested", Status.INTERRUPTED, nested=waiting("child", SOON), created_at=began)
        await store.save(nested)
        assert await listed(store) == ["resumed", "purged", "nested", "ended", "again"]
        await store.save(waiting("resumed", SOON, resumed_at=instant_text(DUE)))
        await store.save(sample("ended", Status.ENDED))
        await store.save(waiting("again", LATE))
        await store.save(replace(nested, nested=waiting("child", LATE)))
        assert await store.purge(LATE, states={ThreadState.INTERRUPTED}, limit=1) == 1
        assert await noted(binding) == {"nested", "purged"}
        assert await listed(store) == ["purged"]
        assert await listed(store, LATE) == ["purged", "nested"]
        await store.save(waiting("again", SOON))
        assert await listed(store) == ["purged", "again"]


async def test_another_engine_changes_what_waits(binding: RedisBinding) -> None:
    """It begins waits, makes ours wake earlier or later, within one second too, and ends some."""
    foreign = Foreign(binding)
    async with binding.open() as store:
        for name in ("kept", "earlier", "later", "moved", "purged", "hidden"):
            await store.save(waiting(name, LATE if name in {"earlier", "hidden"} else SOON))
        assert set(await listed(store)) == {"kept", "later", "moved", "purged"}
        await foreign.save(waiting("new", SOON))
        await foreign.save(waiting("earlier", SOON))  # of the same second
        await foreign.save(waiting("later", LATE))
        await foreign.save(waiting("moved", SOON, resumed_at=instant_text(DUE)))
        await foreign.purge("purged")
        await hide(binding, "hidden")
        assert await listed(store) == ["new", "kept", "earlier"]
        await hide(binding, "later")
        assert await listed(store) == ["new", "kept", "earlier"]
        assert await noted(binding) == {"new", "kept", "earlier", "later", "hidden"}
        await foreign.save(waiting("later", SOON, DUE))
        assert await listed(store) == ["later", "new", "kept", "earlier"]


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(days=36500)], ids=["usual", "far ahead"])
async def test_clocks_differ_by_up_to_an_hour(ahead: timedelta, binding: RedisBinding) -> None:
    """A writer whose clock is that much behind is seen; also beside one that is a century ahead."""
    foreign = Foreign(binding)
    now = datetime.now(UTC).replace(microsecond=0)
    behind = now - timedelta(minutes=59)
    async with binding.open() as store:
        await store.save(waiting("old", LATE, now - timedelta(days=1)))
        await store.save(waiting("stale", LATE, now - timedelta(days=1)))
        await store.save(waiting("newest", LATE, now + ahead))
        assert await listed(store) == []
        await foreign.purge("stale")  # so that counts don't tell that one is missing
        await foreign.save(waiting("behind", SOON, behind))
        await hide(binding, "old", "newest")
        assert await listed(store) == ["behind"]


async def test_a_clock_far_behind_shows_in_the_count(binding: RedisBinding) -> None:
    """A thread that another engine wrote with a time long gone: more wait than are noted."""
    foreign = Foreign(binding)
    async with binding.open() as store:
        await store.save(waiting("newest", LATE, DUE))
        assert await listed(store) == []
        await foreign.save(waiting("behind", SOON, START - timedelta(days=400)))
        assert await listed(store) == ["behind"]


@pytest.mark.parametrize("size", [1, 3, 7, 500])
@pytest.mark.parametrize("most_bytes", [1, 1000, 1_000_000])
async def test_a_prefix_of_others_is_caught_up_once(
    size: int, most_bytes: int, binding: RedisBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches of threads and bytes, many of one second among them; what is noted isn't read again."""
    monkeypatch.setattr(due, "THREADS_A_SCRIPT", size)
    monkeypatch.setattr(due, "BYTES_A_SCRIPT", most_bytes)
    foreign = Foreign(binding)
    rows = [
        waiting(f"t{n:02}", SOON if n % 3 == 0 else LATE, START + timedelta(hours=n // 6)) for n in range(21)
    ]
    wanted = [f"t{n:02}" for n in (18, 15, 12, 9, 6, 3, 0)]
    async with binding.open() as store:
        for row in rows:
            await foreign.save(row)
        assert await listed(store, limit=2) == wanted
        await hide(binding, *(row.thread_id for row in rows if row.thread_id not in wanted))
        assert await listed(store, limit=2) == wanted
        assert await noted(binding) == {row.thread_id for row in rows}


async def test_a_page_by_its_cursor_alone(binding: RedisBinding) -> None:
    """It compares nothing, so where that was never done it looks at all that wait."""
    foreign = Foreign(binding)
    for n in range(4):
        await foreign.save(waiting(f"t{n}", LATE if n == 1 else SOON))
    async with binding.open() as store, client(binding.url) as redis:
        first = await store.list_threads(ThreadQuery(due_by=DUE, limit=1))
        await redis.delete(f"{binding.prefix}:outcrop:due", f"{binding.prefix}:outcrop:waits")
        rest = await store.list_threads(ThreadQuery(due_by=DUE, cursor=first.next_cursor))
        assert [it.thread_id for it in rest.threads] == ["t2", "t0"]
        assert await noted(binding) == set()


async def test_with_many_due_all_that_wait_are_looked_at(
    binding: RedisBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are the same on both sides of the limit."""
    monkeypatch.setattr(due, "MOST_DUE", 3)
    async with binding.open() as store:
        await store.save(waiting("later", LATE))
        for n in range(5):
            await store.save(waiting(f"t{n}", SOON, START + timedelta(minutes=n)))
            for limit in (1, 2, 100):
                assert await listed(store, limit=limit) == [f"t{at}" for at in range(n, -1, -1)]
        await hide(binding, "later")
        assert await listed(store) == ["t4", "t3", "t2", "t1", "t0", "later?"]


async def test_bounds_in_time_hold_too(binding: RedisBinding) -> None:
    """Updated after and before, whether the due ones or all are looked at."""
    async with binding.open() as store:
        for n in range(6):
            await store.save(waiting(f"t{n}", SOON, START + timedelta(days=n)))
        query = ThreadQuery(
            due_by=DUE, updated_after=START + timedelta(days=1), updated_before=START + timedelta(days=4)
        )
        assert [it.thread_id for it in (await store.list_threads(query)).threads] == ["t3", "t2"]


async def test_reading_only_changes_nothing(binding: RedisBinding) -> None:
    """What is whole is used; else all that wait are looked at."""
    foreign = Foreign(binding)
    async with binding.open() as store:
        await store.save(waiting("ours", SOON))
        await store.save(waiting("later", LATE))
        reader = await RedisStore.open_read_only(binding.url, prefix=binding.prefix)
        try:
            assert await listed(reader) == ["ours"]  # nothing was compared so far
            assert await listed(store) == ["ours"]
            before = await dump(binding)
            await hide(binding, "later")
            assert await listed(reader) == ["ours"]
            await foreign.save(waiting("later", LATE))
            await foreign.save(waiting("theirs", SOON))
            await foreign.save(waiting("ours", LATE))
            assert await listed(reader) == ["theirs"]
            assert await dump(binding) == before
            assert await listed(store) == ["theirs"]
            await foreign.purge("theirs")
            noted_before = await noted(binding)
            assert await listed(reader) == []
            assert await noted(binding) == noted_before == {"ours", "later", "theirs"}
        finally:
            await reader.close()


async def dump(binding: RedisBinding) -> list[object]:
    """What our keys hold."""
    async with client(binding.url) as redis:
        names = (f"{binding.prefix}:outcrop:due", f"{binding.prefix}:outcrop:waits")
        return [
            await redis.eval("return redis.sha1hex(redis.call('DUMP', KEYS[1]) or '')", 1, it) for it in names
        ]


@pytest.mark.parametrize("damage", ["due", "waits", "both", "one of due", "one of waits", "exchanged"])
async def test_damage_to_our_keys_makes_no_answer_wrong(damage: str, binding: RedisBinding) -> None:
    async with binding.open() as store, client(binding.url) as redis:
        for n in range(6):
            await store.save(waiting(f"t{n}", SOON if n % 2 else LATE))
        assert await listed(store) == ["t5", "t3", "t1"]
        by_time, waits = (f"{binding.prefix}:outcrop:{name}" for name in ("due", "waits"))
        match damage:
            case "due":
                await redis.delete(by_time)
            case "waits":
                await redis.delete(waits)
            case "both":
                await redis.delete(by_time, waits)
            case "one of due":
                await redis.zrem(by_time, "t3")
            case "one of waits":
                await redis.hdel(waits, "t3")
            case _:
                await redis.zrem(by_time, "t3")
                await redis.hdel(waits, "t3")
        assert await listed(store) == ["t5", "t3", "t1"]
        assert await noted(binding) == {f"t{n}" for n in range(6)}


async def test_leftovers_go(binding: RedisBinding) -> None:
    """At their wake time, or with a rebuild."""
    foreign = Foreign(binding)
    async with binding.open() as store, client(binding.url) as redis:
        for name in ("kept", "purged", "moved", "deleted", "taken out"):
            await store.save(waiting(name, LATE))
        await store.save(waiting("gone", SOON))
        await foreign.purge("purged")
        await foreign.save(sample("moved", Status.ENDED))
        await redis.delete(f"{binding.prefix}:checkpoints:deleted", f"{binding.prefix}:checkpoints:gone")
        await redis.zrem(f"{binding.prefix}:threads:waking", "taken out")
        assert await listed(store) == []
        assert await noted(binding) == {"kept", "purged", "moved", "taken out"}
        assert await store.rebuild_index() == 3
        assert await noted(binding) == {"kept", "taken out"}
        assert await listed(store, LATE) == ["taken out", "kept"]
        await foreign.purge("kept")
        assert await listed(store, LATE) == ["taken out"]
        assert await noted(binding) == {"taken out"}


@pytest.mark.parametrize("wake_at", ["2026-01-30T00:00:00+00:00", "2026-01-30", "", "٢٠٢٦-01-30T00:00:00Z"])
async def test_a_wake_time_of_another_form(wake_at: str, binding: RedisBinding) -> None:
    """Is compared as text, as in every engine, whoever wrote it."""
    foreign = Foreign(binding)
    async with binding.open() as store:
        await store.save(waiting("ours", wake_at))
        await foreign.save(waiting("theirs", wake_at))
        for by in (SOON, DUE, LATE):
            wanted = ["theirs", "ours"] if wake_at <= instant_text(by) else []
            assert await listed(store, by) == wanted


async def test_a_row_that_tells_no_wake_time_is_looked_at(binding: RedisBinding) -> None:
    """An unreadable one is told, as in any listing; one that waits for nothing isn't due."""
    foreign = Foreign(binding)
    async with binding.open() as store, client(binding.url) as redis:
        await foreign.save(sample("other", Status.FAILED))
        await redis.zadd(f"{binding.prefix}:threads:waking", {"other": 20260101000000})
        assert await listed(store) == []
        await foreign.save(waiting("bad", LATE))
        await hide(binding, "bad")
        assert await listed(store) == ["bad?"]


async def test_any_mix_of_writers_lists_as_the_rows_say(
    binding: RedisBinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random saves by us and another engine, purges, deletions: what is due is what the rows say."""
    monkeypatch.setattr(due, "THREADS_A_SCRIPT", 4)
    monkeypatch.setattr(due, "MOST_DUE", 6)
    choose = random.Random(4)
    foreign, rows, clock = Foreign(binding), dict[str, "Checkpoint"](), START
    async with binding.open() as store, client(binding.url) as redis:
        for _ in range(400):
            clock += timedelta(minutes=choose.choice([0, 0, 1, 10]))
            skewed = clock - timedelta(minutes=choose.randrange(0, 45))
            thread = f"t{choose.randrange(12)}"
            row = choose.choice(
                [
                    waiting(thread, START + timedelta(hours=choose.randrange(48)), skewed),
                    waiting(thread, START + timedelta(hours=choose.randrange(48)), skewed),
                    sample(thread, Status.FAILED, created_at=instant_text(skewed)),
                ]
            )
            match choose.randrange(10):
                case 0:
                    await foreign.purge(thread)
                    rows.pop(thread, None)
                case 1:
                    await redis.delete(f"{binding.prefix}:checkpoints:{thread}")
                    rows.pop(thread, None)
                case 2 | 3 | 4 | 5:
                    await store.save(row)
                    rows[thread] = row
                case _:
                    await foreign.save(row)
                    rows[thread] = row
            by = START + timedelta(hours=choose.randrange(48))
            ready = sorted(
                (it.updated_at, it.thread_id)
                for it in rows.values()
                if it.wait is not None and (it.wait.wake_at or "") <= instant_text(by)
            )
            assert await listed(store, by, choose.choice([1, 2, 100])) == [it for _, it in reversed(ready)]


@pytest.mark.peer
async def test_the_peer_waits_and_wakes(peer: Path, binding: RedisBinding) -> None:
    """Its timers are listed by us when they are due, and no more when it woke them; ours too."""

    async def play(command: str, thread: str, *words: str) -> dict[str, Any]:
        place = ("--storage", binding.url, "--redis-prefix", binding.prefix)
        program = await asyncio.create_subprocess_exec(
            *(str(peer), command, "--graph", "timer", "--thread", thread, *words, *place),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await program.communicate()
        answer: dict[str, Any] = json.loads(output)
        return answer

    past, future = ('{"due_at":"2020-01-01T00:00:00Z"}', '{"due_at":"2099-01-01T00:00:00Z"}')
    async with binding.open() as store:
        await store.save(waiting("ours", "2020-01-01T00:00:00Z", datetime.now(UTC)))
        assert await listed(store) == ["ours"]
        assert (await play("run", "theirs", "--state", past))["kind"] == "interrupted"
        assert (await play("run", "later", "--state", future))["kind"] == "interrupted"
        assert sorted(await listed(store)) == ["ours", "theirs"]
        await hide(binding, "later")
        assert sorted(await listed(store)) == ["ours", "theirs"]
        assert (await play("resume", "theirs", "--due"))["kind"] == "completed"
        assert await listed(store) == ["ours"]
        assert (await play("end", "ours", "--by", "ops"))["kind"] == "cancelled"
        assert await listed(store) == []
        assert await noted(binding) == {"later"}
