"""Stores for tests: each kind bound to a clock moved by hand."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from outcrop.stores import MemoryStore
from outcrop.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from outcrop.stores import Store


class HandClock:
    """A lease clock that stands until it is moved."""

    def __init__(self, now: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    async def pass_time(self, duration: timedelta) -> None:
        self.now += duration


class StoreBinding(Protocol):
    """A kind of store with a clock of its own."""

    clock: HandClock

    def open(self) -> AbstractAsyncContextManager[Store]: ...

    async def pass_time(self, duration: timedelta) -> None: ...


class MemoryBinding:
    """A fresh in-memory store."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.pass_time = self.clock.pass_time

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Store]:
        store = MemoryStore(clock=self.clock)
        yield store
        await store.close()


class SqliteBinding:
    """A SQLite store on a file, which keeps its rows from one opening to the next."""

    def __init__(self, path: Path) -> None:
        self.clock = HandClock()
        self.pass_time = self.clock.pass_time
        self.path = path

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[SqliteStore]:
        store = await SqliteStore.open(self.path, clock=self.clock)
        try:
            yield store
        finally:
            await store.close()


STORE_KINDS = ("memory", "sqlite")


def store_binding(kind: str, directory: Path) -> StoreBinding:
    """The binding of one of `STORE_KINDS`."""
    return MemoryBinding() if kind == "memory" else SqliteBinding(directory / "store.db")
