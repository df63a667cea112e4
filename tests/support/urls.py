"""Empty stores for tests, by URL: each engine's own, gone afterwards."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from redis.asyncio import Redis

from .postgres import fresh_database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    import pytest

ENGINES = ("sqlite", "postgres", "redis")


@asynccontextmanager
async def fresh_url(engine: str, directory: Path, request: pytest.FixtureRequest) -> AsyncGenerator[str]:
    """The URL of an empty store on one of `ENGINES`; skips the test where there is no server for it."""
    match engine:
        case "sqlite":
            yield f"sqlite:///{directory / f'{uuid4().hex}.db'}"
        case "postgres":
            async with fresh_database(request.getfixturevalue("postgres_server")) as url:
                yield url
        case _:
            server: str = request.getfixturevalue("redis_server")
            async with fresh_prefix(server) as prefix:
                yield f"{server}?prefix={prefix}"


@asynccontextmanager
async def fresh_prefix(server: str) -> AsyncGenerator[str]:
    """A key prefix that nobody uses, whose keys are deleted afterwards."""
    prefix = f"outcrop-{uuid4().hex}"
    try:
        yield prefix
    finally:
        async with Redis.from_url(server) as client:
            async for key in client.scan_iter(f"{prefix}:*", count=1000):
                await client.delete(key)


def with_option(url: str, option: str) -> str:
    """The URL with one more option."""
    return f"{url}{'&' if '?' in url else '?'}{option}"
