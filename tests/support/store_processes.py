"""Processes that race for a store's threads, or are killed in the middle of a save, on any engine.

An `Opener` says where the store is, in a form that other processes understand, such as
`partial(open_store, url)`; every process opens its own. They are forked off one warm
process, so that starting one takes milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from outcrop.stores import EMPTY_LOG, Acquired, Checkpoint, Held, Saved, Status, Store
from outcrop.stores.contract import sample

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier

    from outcrop.stores import Row

Opener: TypeAlias = "Callable[[], Awaitable[Store]]"

THREAD = "contended"
NAMES = ("one", "two")
LONG = timedelta(minutes=5)

_CONTEXT = multiprocessing.get_context("forkserver")
# What each process needs; pytest because a child imports its parent's main module. Not this
# module: before Python 3.13 the warm process doesn't have the tests' path. What isn't there is skipped.
_CONTEXT.set_forkserver_preload(["pytest", "outcrop.stores.contract", "asyncpg", "redis.asyncio"])


@asynccontextmanager
async def opened(opener: Opener) -> AsyncGenerator[Store]:
    store = await opener()
    try:
        yield store
    finally:
        await store.close()


async def whole_log(store: Store, thread_id: str = THREAD) -> list[Row]:
    """All rows of a thread, whose sequences must have no gap."""
    rows: list[Row] = []
    after: int | None = None
    while True:
        page = await store.get_log(thread_id, after=after, limit=1000)
        rows.extend(page.entries)
        if (after := page.next_after) is None:
            assert [row.sequence for row in rows] == list(range(len(rows)))
            return rows


# Races: two processes for one thread


async def check_conditional_race(opener: Opener, rounds: int) -> None:
    """Both save at the same end of the log, `rounds` times: one wins each, and its row is there."""
    reports = dict(_raced(race_conditional, opener, rounds))
    won = {sequence: name for name, sequences in reports.items() for sequence in sequences}
    assert sum(map(len, reports.values())) == len(won) == rounds
    async with opened(opener) as store:
        rows = await whole_log(store)
    assert [row.checkpoint.metadata for row in rows] == [{"by": won[at]} for at in range(rounds)]


async def check_fenced_race(opener: Opener, rounds: int) -> None:
    """Both take the lease when they can and save under it, late or not.

    No token is given twice, and no row of an older token follows one of a newer.
    """
    reports = _raced(race_fenced, opener, rounds)
    tokens = sorted(token for _, taken, _ in reports for token in taken)
    assert tokens == list(range(1, len(tokens) + 1))
    said = sorted(save for _, _, saved in reports for save in saved)
    async with opened(opener) as store:
        rows = await whole_log(store)
    stored = [(row.sequence, int((row.checkpoint.metadata or {})["token"])) for row in rows]
    assert stored == said
    assert [token for _, token in stored] == sorted(token for _, token in stored)
    assert len({name for name, taken, _ in reports if taken}) == len(NAMES)  # they really took turns
    assert len(tokens) > rounds / 50


def _raced(work: Callable[..., None], opener: Opener, rounds: int) -> list[Any]:
    start = _CONTEXT.Barrier(len(NAMES))
    pipes = [_CONTEXT.Pipe(duplex=False) for _ in NAMES]
    processes = [
        _CONTEXT.Process(target=work, args=(opener, name, rounds, start, sender))
        for name, (_, sender) in zip(NAMES, pipes, strict=True)
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    reports: list[Any] = []
    for process, (receiver, _) in zip(processes, pipes, strict=True):
        with receiver:
            reports.append(receiver.recv())  # EOFError: it died, and said why
        process.join(60)
        assert process.exitcode == 0
    return reports


def race_conditional(opener: Opener, name: str, rounds: int, start: Barrier, sender: Connection) -> None:
    """Save at the same expected sequence as the other, round after round; report the rounds won."""

    async def race() -> None:
        start.wait(60)
        async with opened(opener) as store:  # both open a new store at once
            won: list[int] = []
            for sequence in range(rounds):
                start.wait(60)
                row = sample(THREAD, Status.RUNNING, next_node="N", metadata={"by": name})
                if await store.save(row, expected=sequence - 1) == Saved(sequence):
                    won.append(sequence)
        sender.send((name, won))

    asyncio.run(race())


def race_fenced(opener: Opener, name: str, rounds: int, start: Barrier, sender: Connection) -> None:
    """Take the lease whenever it is free or expired, and save under it, late or not."""

    async def race() -> None:
        async with opened(opener) as store:
            tokens: list[int] = []
            saved: list[tuple[int, int]] = []
            start.wait(60)
            for at in range(rounds):
                answer = await store.acquire_lease(THREAD, name, timedelta(milliseconds=1))
                if not isinstance(answer, Acquired):
                    continue
                lease = answer.lease
                tokens.append(lease.token)
                for save in range(2):
                    row = sample(THREAD, Status.RUNNING, next_node="N", metadata={"token": str(lease.token)})
                    result = await store.save(row, lease=lease, release=save == 1 and at % 3 == 0)
                    if isinstance(result, Saved):
                        saved.append((result.sequence, lease.token))
        sender.send((name, tokens, saved))

    asyncio.run(race())


# Kills: a process in the middle of its saves


async def check_kills(opener: Opener, kills: int, *, writers: int = 1, leased: bool = False) -> None:
    """SIGKILL a saving process again and again: what was acknowledged is there, the rest whole or absent.

    Each process has threads of its own, one a writer. With `leased`, each row is saved under a
    lease that it frees, and so every row has its token and a row frees its lease or isn't there.
    """
    async with opened(opener) as store:
        for kill in range(kills):
            said = _killed(opener, f"killed-{kill}", writers, leased=leased)
            for thread_id, last in said.items():
                await _follow(store, thread_id)
                rows = await whole_log(store, thread_id)
                assert last <= len(rows) - 2 <= last + 1
                for row in rows:
                    assert json.loads(row.checkpoint.frozen_state) == _state(row.sequence)
                if leased:
                    answer = await store.acquire_lease(thread_id, "after", LONG)
                    assert isinstance(answer, Acquired | Held)
                    assert answer.lease.token == len(rows)


async def _follow(store: Store, thread_id: str) -> None:
    """Save the next row of a killed process's thread: a server's work for it comes first or never."""
    while True:
        latest = await store.load(thread_id)
        end = EMPTY_LOG if latest is None else latest.sequence
        if await store.save(_row(thread_id, end + 1), expected=end) == Saved(end + 1):
            return


def _killed(opener: Opener, prefix: str, writers: int, *, leased: bool) -> dict[str, int]:
    """Kill a process at a moment of its saves; return the last sequence that it said, by thread."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=save_for_ever, args=(opener, prefix, writers, leased, sender))
    process.start()
    sender.close()
    said = {f"{prefix}-{writer}": EMPTY_LOG for writer in range(writers)}
    acknowledged = 0
    try:
        while True:
            thread_id, sequence = receiver.recv()
            said[thread_id] = sequence
            acknowledged += 1
            if acknowledged == 1:
                time.sleep(random.uniform(0, 0.02))  # any moment of a save
                process.kill()
    except EOFError:
        process.join(60)
        assert process.exitcode == -9, "it ended by itself"
        assert acknowledged
        return said
    finally:
        receiver.close()
        process.close()


def save_for_ever(opener: Opener, prefix: str, writers: int, leased: bool, sender: Connection) -> None:
    """Save row after row to a thread a writer, sending each sequence once it is saved, until killed."""

    async def write(store: Store, thread_id: str) -> None:
        for sequence in range(1_000_000):
            lease = None
            if leased:
                answer = await store.acquire_lease(thread_id, "w", LONG, expected=sequence - 1)
                assert isinstance(answer, Acquired)
                lease = answer.lease
            row = _row(thread_id, sequence)
            saved = await store.save(row, expected=sequence - 1, lease=lease, release=leased)
            assert saved == Saved(sequence)
            sender.send((thread_id, sequence))

    async def save() -> None:
        async with opened(opener) as store:
            await asyncio.gather(*(write(store, f"{prefix}-{writer}") for writer in range(writers)))

    asyncio.run(save())


def _row(thread_id: str, sequence: int) -> Checkpoint:
    return sample(
        thread_id,
        Status.RUNNING,
        schema_version="1.7.0",
        next_node="N",
        frozen_state=json.dumps(_state(sequence)),
    )


def _state(sequence: int) -> dict[str, Any]:
    return {"n": sequence, "large": "x" * 20_000, "changing": f"{sequence} " * 2_000}
