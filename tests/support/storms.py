"""Many tasks that save numbered rows, each to a thread of its own, whatever happens to the store.

A task keeps what it was told: `check` holds it against the logs. It takes any failure that may
pass for what it is, a doubt, and goes on with the next number; any other failure ends the test.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from outcrop.stores import (
    EMPTY_LOG,
    Acquired,
    Checkpoint,
    InvalidRequest,
    Saved,
    Status,
    Unavailable,
)
from outcrop.stores.contract import sample
from support.store_processes import whole_log

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from outcrop.stores import Lease, Store

T = TypeVar("T")

TTL = timedelta(milliseconds=500)
ROWS_A_LEASE = 3
_AGAIN = 0.02


class Storm:
    """Writers on one store. `told` is set with each failure that one of them is told."""

    def __init__(self, store: Store, *, writers: int = 32) -> None:
        self._store = store
        self._said: dict[str, dict[int, int]] = {f"t{at}": {} for at in range(writers)}
        self._numbers: Counter[str] = Counter()
        self.told = asyncio.Event()
        self.failures: Counter[str] = Counter()
        self.enough = False

    @property
    def saved(self) -> int:
        """How many saves reported success."""
        return sum(map(len, self._said.values()))

    async def rage(self, *, leased: bool) -> None:
        """Save on until it is enough."""
        write = self._write_leased if leased else self._write
        async with asyncio.TaskGroup() as tasks:
            for thread_id in self._said:
                tasks.create_task(write(thread_id))
            tasks.create_task(self._write_nonsense())

    async def more(self, count: int) -> None:
        """Return once that many more saves reported success."""
        goal = self.saved + count
        while self.saved < goal:  # noqa: ASYNC110 - many tasks add to it
            await asyncio.sleep(0.005)

    async def check(self, store: Store) -> None:
        """What was said to be saved is where it was said to be, nothing is twice, and all is whole."""
        for thread_id, said in self._said.items():
            rows = [row.checkpoint for row in await whole_log(store, thread_id)]
            states = [json.loads(row.frozen_state) for row in rows]
            numbers = [state["number"] for state in states]
            assert states == [_state(number) for number in numbers]
            assert len(numbers) == len(set(numbers))
            assert {at: numbers[at] for at in said} == said
            tokens = [int((row.metadata or {}).get("token", 0)) for row in rows]
            assert tokens == sorted(tokens)

    async def _write(self, thread_id: str) -> None:
        while not self.enough:
            await self._save(thread_id)

    async def _write_leased(self, thread_id: str) -> None:
        """As the engine does it: lease and place in one step, fenced saves, the last of which frees."""
        end: int | None = EMPTY_LOG
        while not self.enough:
            if end is None:
                end = await self._end(thread_id)
            taken = await self._try(self._store.acquire_lease(thread_id, "w", TTL, expected=end))
            if not isinstance(taken, Acquired):
                end = None
                await asyncio.sleep(_AGAIN)  # a lease in doubt ends when its time is over
                continue
            for left in reversed(range(ROWS_A_LEASE)):
                end = await self._save(thread_id, expected=end, lease=taken.lease, release=not left)
                if end is None:
                    await self._try(self._store.release_lease(taken.lease))
                    break

    async def _write_nonsense(self) -> None:
        """A save that can't be kept, among all the others: it alone is refused, and for good."""
        while not self.enough:
            with pytest.raises((InvalidRequest, Unavailable)):
                await self._store.save(sample("\ud800"))
            await asyncio.sleep(_AGAIN)

    async def _save(self, thread_id: str, *, lease: Lease | None = None, **conditions: Any) -> int | None:
        self._numbers[thread_id] += 1
        number = self._numbers[thread_id]
        row = _row(thread_id, number, lease)
        result = await self._try(self._store.save(row, lease=lease, **conditions))
        if not isinstance(result, Saved):
            assert result is None or lease is not None, result
            return None
        assert result.sequence not in self._said[thread_id]
        self._said[thread_id][result.sequence] = number
        return result.sequence

    async def _end(self, thread_id: str) -> int | None:
        found: list[Any] = []

        async def load() -> None:
            found.append(await self._store.load(thread_id))

        await self._try(load())
        return None if not found else EMPTY_LOG if found[0] is None else found[0].sequence

    async def _try(self, call: Awaitable[T]) -> T | None:
        """What the call answered; None when it failed and may pass."""
        try:
            return await call
        except Unavailable as error:
            self.failures[str(error)] += 1
            self.told.set()
            await asyncio.sleep(0)
            return None


def _row(thread_id: str, number: int, lease: Lease | None) -> Checkpoint:
    return sample(
        thread_id,
        Status.RUNNING,
        schema_version="1.7.0",
        next_node="N",
        frozen_state=json.dumps(_state(number)),
        metadata=None if lease is None else {"token": str(lease.token)},
    )


def _state(number: int) -> dict[str, Any]:
    """Numbered, mostly the same as the one before, with a value that is large enough to be a blob."""
    return {"number": number, "kept": "x" * 500, "large": f"{number // 5} " * 400}
