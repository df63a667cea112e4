"""Redis stores for tests: a prefix of its own for each, on a real server, or a server of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import redis.asyncio as driver
from redis.exceptions import RedisError

from outcrop.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import timedelta
    from pathlib import Path


class RedisBinding:
    """A Redis store under a prefix of its own, which keeps its rows from one opening to the next."""

    def __init__(self, server: str, **options: Any) -> None:
        self.url = server
        self.prefix = fresh_prefix()
        self.options = options

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncGenerator[RedisStore]:
        store = await RedisStore.open(self.url, prefix=self.prefix, **(self.options | options))
        try:
            yield store
        finally:
            await store.close()

    async def pass_time(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds() + 0.01)  # the server's clock can't be moved

    async def elements(self, thread_id: str = "t") -> list[str]:
        """What is stored of a thread's rows."""
        async with client(self.url) as redis:
            return [str(it) for it in await redis.lrange(f"{self.prefix}:checkpoints:{thread_id}", 0, -1)]

    async def versions(self, thread_id: str = "t") -> list[str]:
        """The schema versions that a thread's rows are stored with."""
        return [json.loads(element)["schema_version"] for element in await self.elements(thread_id)]

    async def sets(self) -> dict[str, dict[str, float]]:
        """The index sets that aren't empty, with their members' scores, by the end of their names."""
        found: dict[str, dict[str, float]] = {}
        async with client(self.url) as redis:
            async for key in redis.scan_iter(f"{self.prefix}:threads*", count=1000, _type="zset"):
                members: list[Any] = await redis.zrange(key, 0, -1, withscores=True)
                found[key.removeprefix(f"{self.prefix}:")] = dict(members)
        return found

    async def keys(self) -> set[str]:
        """Every key under the prefix, by the end of its name."""
        async with client(self.url) as redis:
            found = [key async for key in redis.scan_iter(f"{self.prefix}:*", count=1000)]
        return {key.removeprefix(f"{self.prefix}:") for key in found}


def fresh_prefix() -> str:
    """A prefix that nobody else has."""
    return f"test-{uuid4().hex}"


@asynccontextmanager
async def own_prefix(server: str) -> AsyncGenerator[str]:
    """A prefix that nobody else has, whose keys are deleted afterwards."""
    prefix = fresh_prefix()
    try:
        yield prefix
    finally:
        async with client(server) as redis:
            async for key in redis.scan_iter(f"{prefix}:*", count=1000):
                await redis.delete(key)


@asynccontextmanager
async def client(server: str) -> AsyncGenerator[driver.Redis]:
    """A plain client, for what a test writes and reads by hand; replies are text."""
    redis = driver.Redis.from_url(server, decode_responses=True)
    try:
        yield redis
    finally:
        await redis.aclose()


class RedisProcess:
    """A server of the test's own, to kill, stop and start again; keeps nothing on disk."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self.process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            [
                "redis-server",
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
                *("--save", "", *self._arguments),
            ],
            stdout=subprocess.DEVNULL,
        )
        async with client(self.url) as redis:
            while True:
                try:
                    await redis.ping()
                except (RedisError, OSError):
                    await asyncio.sleep(0.02)
                else:
                    return

    def kill(self) -> None:
        """End it at once, as by a power cut."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@asynccontextmanager
async def redis_process(folder: Path, *arguments: str) -> AsyncGenerator[RedisProcess]:
    """A running server of the test's own."""
    server = RedisProcess(folder, *arguments)
    try:
        await server.start()
        yield server
    finally:
        server.kill()
