"""Which SQLite failures are worth retrying.

Decides by SQLite's own result code; the driver's words stay the message.
"""

from __future__ import annotations

import sqlite3

from outcrop.stores.errors import StoreError, Unavailable

_RETRYABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,  # another connection kept the lock past the busy timeout
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,  # the locking of a file in WAL mode raced
        sqlite3.SQLITE_CANTOPEN,  # file handles ran out, or the disk is away
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,  # somebody will make room; until then nothing is lost
        sqlite3.SQLITE_NOMEM,
    }
)


_LEFT_BY_A_CRASH = frozenset({sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY})
"""A read-only connection met a journal that only a writing one may clear."""


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the file's lock."""
    return _primary_code(error) == sqlite3.SQLITE_BUSY


def store_error(error: sqlite3.Error) -> StoreError:
    """The port's error for the driver's."""
    if getattr(error, "sqlite_errorcode", None) in _LEFT_BY_A_CRASH:
        return Unavailable(f"{error}: a writer crashed, and the next one to open the file puts it right")
    return Unavailable(str(error)) if _primary_code(error) in _RETRYABLE else StoreError(str(error))


def _primary_code(error: sqlite3.Error) -> int | None:
    """The low byte of the result code, whatever the extended code adds."""
    code: int | None = getattr(error, "sqlite_errorcode", None)  # absent when the driver itself refused
    return None if code is None else code & 0xFF
