"""The SQLite adapter: one file, shared by several processes and with the other engines."""

from __future__ import annotations

from .store import SqliteStore

__all__ = ["SqliteStore"]
