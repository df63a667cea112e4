"""One SQLite connection on one thread of its own, awaited from any event loop.

Knows no table. Calls run one after another, each to its end: cancelling whoever awaits one
neither stops it nor leaves the connection in the middle of a transaction.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from outcrop.stores.errors import InvalidRequest, StoreError
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.outlasting import outlasting

from .classify import is_busy, store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")

BUSY_TIMEOUT: Final = 5.0
"""Seconds that a call waits for the file's lock, the same in every engine."""

_LOOK_AGAIN: Final = (0.0005, 0.003)


class Database:
    """A connection to one file; `open` makes one."""

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self._path = path
        self.read_only = read_only
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="outcrop-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: str | Path, *, read_only: bool = False) -> Self:
        """Connect; a writable file is created when missing. Raises `StoreError`."""
        database = cls(path, read_only=read_only)
        async with closed_on_failure(database):
            await database._on_thread(database._connect)
        return database

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the connection's thread, behind the calls before it; raises `StoreError`."""
        return await self._on_thread(lambda: self._guarded(work))

    async def close(self) -> None:
        """Disconnect after the calls before it; idempotent."""
        if self._closed:
            return
        closing = self._executor.submit(self._disconnect)
        self._closed = True
        self._executor.shutdown(wait=False)
        await outlasting(asyncio.wrap_future(closing))

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError("the SQLite store is closed")
        return await outlasting(asyncio.get_running_loop().run_in_executor(self._executor, work))

    def _connect(self) -> None:
        file = Path(self._path).absolute()
        if self.read_only and not file.is_file():
            raise StoreError(f"there is no checkpoint database at '{self._path}'")
        target = f"{file.as_uri()}?mode={'ro' if self.read_only else 'rwc'}"
        try:
            # Autocommit: transactions are where this package begins them, always IMMEDIATE when
            # they write, because a deferred one that reads first fails at once instead of waiting.
            self._connection = sqlite3.connect(target, uri=True, timeout=0, isolation_level=None)
        except sqlite3.Error as error:
            raise type(store_error(error))(f"{error}: '{self._path}'") from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            raise StoreError("the SQLite store isn't open")
        try:
            return _patiently(work, self._connection)
        except sqlite3.Error as error:
            raise store_error(error) from error
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"a text isn't valid Unicode: {error.reason}") from error
        except OverflowError as error:
            raise InvalidRequest("a number is outside what SQLite holds") from error


def _patiently(work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    """Do `work`, again and again for `BUSY_TIMEOUT` while the file is locked.

    SQLite's own waiting sleeps up to 100 ms between looks: with several busy processes the lock
    lies idle meanwhile, and renewals queue until leases are lost. Work that found the lock
    taken has been rolled back, so it can be done again whole.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            return work(connection)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(*_LOOK_AGAIN))  # noqa: S311 - only keeps waiters apart


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str) -> Generator[None]:
    """BEGIN `kind` (IMMEDIATE to write, DEFERRED to read), then COMMIT, or ROLLBACK on an error."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
