"""The Postgres adapter: one database, shared by several processes and with the other engines."""

from __future__ import annotations

from .store import PostgresStore

__all__ = ["PostgresStore"]
