"""Places that the peer and we share rows in: a file, a database, a Redis prefix; each fresh.

A place has a URL for us and words for the peer's command line. `load_fixtures` fills one with
the rows that the peer wrote (see interop/fixtures).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import redis.asyncio as redis

from support.postgres import fresh_database
from support.redis import own_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"
KINDS = ("sqlite", "postgres", "redis")

ENCODED = ["--deltas", "3", "--offload", "16"]
"""The peer's options for rows as deltas and with blobs; `Storage.encoded` gives ours."""


def with_option(url: str, option: str) -> str:
    """The URL with one more option."""
    return f"{url}{'&' if '?' in url else '?'}{option}"


def given_server(kind: str) -> str:
    """A kind's server as the environment has it, for programs that are no tests."""
    return os.environ[f"OUTCROP_TEST_{kind.upper()}"]


@dataclass(frozen=True, slots=True)
class Storage:
    """One place; `url` is ours, `peer` the words that name it to the peer."""

    kind: str
    url: str
    peer: list[str] = field(default_factory=list[str])

    @property
    def encoded(self) -> Storage:
        """The same place, written as deltas, with blobs and in groups where the engine has them."""
        ours, theirs = "deltas_full_every=3&offload_threshold=16", list(ENCODED)
        if self.kind != "redis":
            ours, theirs = f"{ours}&group_commit=true", [*theirs, "--group-commit"]
        return Storage(self.kind, with_option(self.url, ours), [*self.peer, *theirs])

    @property
    def file(self) -> Path:
        """Where a SQLite place is."""
        return Path(self.peer[1])


@dataclass(frozen=True, slots=True)
class Places:
    """Makes fresh places of every kind; `server_of` tells the URL of a kind's server."""

    folder: Path
    server_of: Callable[[str], str]

    @asynccontextmanager
    async def fresh(self, kind: str) -> AsyncGenerator[Storage]:
        """An empty place, gone afterwards."""
        match kind:
            case "sqlite":
                file = self.folder / f"{uuid4().hex}.db"
                yield Storage(kind, f"sqlite:///{file}", ["--storage", str(file)])
            case "postgres":
                async with fresh_database(self.server_of(kind)) as url:
                    yield Storage(kind, url, ["--storage", url])
            case _:
                server = self.server_of(kind)
                async with own_prefix(server) as prefix:
                    peer = ["--storage", server, "--redis-prefix", prefix]
                    yield Storage(kind, with_option(server, f"prefix={prefix}"), peer)


async def load_fixtures(storage: Storage) -> None:
    """Fill an empty place with the peer's own rows."""
    match storage.kind:
        case "sqlite":
            shutil.copyfile(FIXTURES / "sqlite.db", storage.file)
        case "postgres":
            await load_place(storage, FIXTURES / "postgres.sql")
        case _:
            await load_place(storage, FIXTURES / "redis.json")


async def load_place(storage: Storage, file: Path) -> None:
    """Fill an empty place with what a file holds: SQL, or Redis keys as JSON."""
    text = await asyncio.to_thread(file.read_text, encoding="utf-8")
    match storage.kind:
        case "sqlite":
            with closing(sqlite3.connect(storage.file)) as database:
                database.executescript(text)
        case "postgres":
            connection = await asyncpg.connect(storage.url)
            await connection.execute(text)
            await connection.close()
        case _:
            url, prefix = storage.peer[1], storage.peer[3]
            async with redis.Redis.from_url(url) as client:
                for entry in json.loads(text)["keys"]:
                    await _load_key(client, entry["key"].replace("strata:", f"{prefix}:", 1), entry)


async def _load_key(client: redis.Redis, key: str, entry: dict[str, Any]) -> None:
    value = entry["value"]
    match entry["type"]:
        case "list":
            await client.rpush(key, *value)
        case "zset":
            await client.zadd(key, dict(value))
        case "hash":
            await client.hset(key, mapping=value)
        case "set":
            await client.sadd(key, *value)
        case _:
            await client.set(key, value)
    if entry["expires_at_ms"] is not None:
        await client.pexpireat(key, entry["expires_at_ms"])
