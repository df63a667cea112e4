"""What other processes do to a store's file in the race tests; run by name, one a process."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from outcrop.stores import Acquired, Saved, SqliteStore, Status
from outcrop.stores.contract import sample

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

THREAD = "contended"


def race_conditional(path: str, name: str, rounds: int, start: Barrier, results: Queue[object]) -> None:
    """Both save at the same expected sequence, round after round; report the rounds won."""

    async def race() -> None:
        start.wait(60)
        store = await SqliteStore.open(path)  # both open a new file at once
        won: list[int] = []
        for sequence in range(rounds):
            start.wait(60)
            row = sample(THREAD, Status.RUNNING, next_node="N", metadata={"by": name})
            answer = await store.save(row, expected=sequence - 1)
            if answer == Saved(sequence):
                won.append(sequence)
        await store.close()
        results.put((name, won))

    asyncio.run(race())


def race_fenced(path: str, name: str, rounds: int, start: Barrier, results: Queue[object]) -> None:
    """Take the lease whenever it is free or expired, and save under it, late or not."""

    async def race() -> None:
        store = await SqliteStore.open(path)
        tokens: list[int] = []
        saved: list[tuple[int, int]] = []
        start.wait(60)
        for at in range(rounds):
            answer = await store.acquire_lease(THREAD, name, timedelta(milliseconds=1))
            if not isinstance(answer, Acquired):
                continue
            lease = answer.lease
            tokens.append(lease.token)
            for _ in range(2):
                row = sample(THREAD, Status.RUNNING, next_node="N", metadata={"token": str(lease.token)})
                result = await store.save(row, lease=lease)
                if isinstance(result, Saved):
                    saved.append((result.sequence, lease.token))
            if at % 3 == 0:
                await store.release_lease(lease)
        await store.close()
        results.put((name, tokens, saved))

    asyncio.run(race())


def save_for_ever(path: str) -> None:
    """Save row after row, printing each sequence once it is saved, until killed."""

    async def save() -> None:
        store = await SqliteStore.open(path)
        for _ in range(1_000_000):
            answer = await store.save(sample(THREAD, frozen_state=f'"{"x" * 20_000}"'))
            assert isinstance(answer, Saved)
            sys.stdout.write(f"{answer.sequence}\n")
            sys.stdout.flush()

    asyncio.run(save())


if __name__ == "__main__":
    save_for_ever(sys.argv[1])
