"""The Postgres adapter; needs asyncpg (`pip install 'outcrop[postgres]'`)."""

from __future__ import annotations

from outcrop.stores.errors import StoreError

try:
    import asyncpg as _asyncpg
except ModuleNotFoundError as error:
    raise StoreError(f"{error.name} is not installed: run pip install 'outcrop[postgres]'") from None

from .store import PostgresStore

del _asyncpg

__all__ = ["PostgresStore"]
