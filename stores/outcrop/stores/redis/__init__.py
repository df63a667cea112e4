"""The Redis store; needs redis-py and hiredis (`pip install 'outcrop[redis]'`)."""

from __future__ import annotations

from outcrop.stores.errors import StoreError

try:
    import hiredis as _hiredis
    import redis.asyncio as _redis
except ModuleNotFoundError as error:
    raise StoreError(f"{error.name} is not installed: run pip install 'outcrop[redis]'") from None

from .store import RedisStore

del _hiredis, _redis

__all__ = ["RedisStore"]
