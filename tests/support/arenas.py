"""A store's server of one's own with a proxy before it, and all that may happen to either.

An `Arena` says where a store opens, and has faults by name. A fault begins, waits where it has
to for somebody to be told of it, ends itself, and leaves the server as it was.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

import asyncpg

from outcrop.stores import open_store
from support.postgres import fresh_database
from support.proxy import proxied
from support.redis import client, redis_process
from support.store_processes import opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
    from pathlib import Path

    from outcrop.stores import Store
    from support.postgres import OwnProgram
    from support.proxy import Proxy

Fault: TypeAlias = "Callable[[asyncio.Event], Coroutine[Any, Any, None]]"
"""Does its worst; the event is set when a caller is told of a failure."""

SHORT: Final = 0.1
"""Seconds of a fault that every call outlasts."""

ENGINES: Final = ("sqlite", "postgres", "redis")

_WIRE: Final = "retry_max_attempts=2&retry_initial_delay=20ms"
_HOLDER: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM checkpoints")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@dataclass(frozen=True, slots=True)
class Arena:
    """`url` leads through the proxy, `direct` past it; options may be added to `url` with an `&`."""

    url: str
    direct: str
    faults: Mapping[str, Fault]

    @asynccontextmanager
    async def store(self, options: str = "") -> AsyncGenerator[Store]:
        """A store whose wire and server may break."""
        async with opened(lambda: open_store(f"{self.url}{options}")) as store:
            yield store

    @asynccontextmanager
    async def reader(self) -> AsyncGenerator[Store]:
        """A store that no fault can reach."""
        async with opened(lambda: open_store(self.direct)) as store:
            yield store


@dataclass(frozen=True, slots=True)
class Arenas:
    """Makes fresh arenas; `postgres` starts the server that all of its kind share."""

    folder: Path
    postgres: Callable[[], tuple[str, OwnProgram]]

    @asynccontextmanager
    async def fresh(self, engine: str) -> AsyncGenerator[Arena]:
        """An empty one."""
        match engine:
            case "sqlite":
                arena = sqlite_arena(self.folder)
            case "postgres":
                arena = postgres_arena(*self.postgres())
            case _:
                arena = redis_arena(self.folder)
        async with arena as fresh:
            yield fresh


@asynccontextmanager
async def sqlite_arena(folder: Path) -> AsyncGenerator[Arena]:
    """One file, locked by other processes for longer or shorter than a call's patience."""
    path = folder / "store.db"
    url = f"sqlite:///{path}?deltas=false"

    @asynccontextmanager
    async def held() -> AsyncGenerator[asyncio.subprocess.Process]:
        pipe = asyncio.subprocess.PIPE
        arguments = (sys.executable, "-c", _HOLDER, str(path))
        holder = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe)
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        yield holder
        await holder.communicate(b"\n")

    async def shortly(_: asyncio.Event) -> None:
        async with held():
            await asyncio.sleep(SHORT)  # the fault is the time that passes

    async def for_too_long(told: asyncio.Event) -> None:
        async with held():
            await several(told)

    async def killed(told: asyncio.Event) -> None:
        async with held() as holder:
            await several(told)
            holder.kill()

    yield Arena(url, url, {"locked": shortly, "locked for long": for_too_long, "holder killed": killed})


@asynccontextmanager
async def postgres_arena(server: str, program: OwnProgram) -> AsyncGenerator[Arena]:
    """A database on a server that may be restarted."""
    async with fresh_database(server) as url, proxied(url) as proxy:

        async def terminated(_: asyncio.Event) -> None:
            administrator = await asyncpg.connect(url)
            for _again in range(5):
                await administrator.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            await administrator.close()

        def restarted(how: signal.Signals) -> Fault:
            async def restart(_: asyncio.Event) -> None:
                await asyncio.to_thread(program.stop, how)
                await asyncio.to_thread(program.start)

            return restart

        faults = {
            "restarted": restarted(signal.SIGINT),
            "restarted at once": restarted(signal.SIGQUIT),
            "backends terminated": terminated,
            **_of_the_wire(proxy),
        }
        patience = "connect_timeout=0.5&answer_timeout=500ms"
        yield Arena(f"{proxy.url(url)}?{_WIRE}&{patience}", f"{url}?pool_size=4", faults)


@asynccontextmanager
async def redis_arena(folder: Path) -> AsyncGenerator[Arena]:
    """A server with its rows on disk, that may be killed."""
    kept = ("--appendonly", "yes", "--appendfsync", "always")
    async with redis_process(folder, *kept) as server, proxied(server.url) as proxy:

        async def restarted(_: asyncio.Event) -> None:
            server.kill()
            await server.start()

        async def disconnected(_: asyncio.Event) -> None:
            async with client(server.url) as administrator:
                for _again in range(5):
                    await administrator.client_kill_filter(_type="normal", skipme=True)

        async def forgot_scripts(_: asyncio.Event) -> None:
            async with client(server.url) as administrator:
                await administrator.script_flush()

        faults = {
            "killed": restarted,
            "clients killed": disconnected,
            "scripts flushed": forgot_scripts,
            **_of_the_wire(proxy),
        }
        prefix, patience = f"prefix=t{uuid4().hex}", "socket_timeout=0.5&socket_connect_timeout=0.5"
        url = f"{proxy.url(server.url)}?{prefix}&{_WIRE}&{patience}"
        yield Arena(url, f"{server.url}?{prefix}", faults)


async def several(told: asyncio.Event) -> None:
    """Return when callers were told of a few failures more."""
    for _ in range(4):
        told.clear()
        await told.wait()


def _of_the_wire(proxy: Proxy) -> Mapping[str, Fault]:
    async def shortly(_: asyncio.Event) -> None:
        proxy.stall()
        await asyncio.sleep(SHORT)  # the fault is the time that passes
        proxy.resume()

    async def for_too_long(told: asyncio.Event) -> None:
        proxy.stall()
        await several(told)
        proxy.resume()

    async def old_ones_only(_: asyncio.Event) -> None:
        proxy.stall(new_ones=False)
        await asyncio.sleep(10 * SHORT)  # the same; what was held back arrives after its own repetition
        proxy.resume()

    async def cut(_: asyncio.Event) -> None:
        for _again in range(5):
            proxy.cut()
            await asyncio.sleep(0.02)  # apart, so that the next one hits what has begun anew

    async def unreachable(told: asyncio.Event) -> None:
        proxy.refuse()
        await several(told)
        proxy.resume()

    def dropped(drop: Callable[[int], None]) -> Fault:
        async def drop_some(_: asyncio.Event) -> None:
            before = proxy.dropped
            drop(5)
            while proxy.dropped < before + 5:  # noqa: ASYNC110 - many connections add to it
                await asyncio.sleep(0.005)

        return drop_some

    return {
        "stalled": shortly,
        "stalled for long": for_too_long,
        "old connections stalled": old_ones_only,
        "cut": cut,
        "unreachable": unreachable,
        "answers lost": dropped(proxy.drop_answers),
        "requests lost": dropped(proxy.drop_requests),
    }
