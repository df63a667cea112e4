"""Databases on a real Postgres server, gone afterwards; servers and poolers of a test's own."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from outcrop.stores.postgres import PostgresStore
from support.missing import missing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence
    from datetime import timedelta


@asynccontextmanager
async def fresh_database(server: str) -> AsyncGenerator[str]:
    """The URL of a new database, dropped with whatever is connected to it."""
    url = await _new_database(server)
    try:
        yield url
    finally:
        await _drop(server, url)


async def _new_database(server: str) -> str:
    name = f"outcrop_{uuid4().hex}"
    await _administer(server, f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


async def _drop(server: str, url: str) -> None:
    name = urlsplit(url).path.removeprefix("/")
    await _administer(server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def _administer(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


_spare: dict[str, list[str]] = {}
"""Databases that bindings made and don't use now, by server; dropped when the process ends."""


@asynccontextmanager
async def spare_database(server: str) -> AsyncGenerator[str]:
    """The URL of an empty database with all its tables, quicker to have than a new one."""
    spare = _spare.setdefault(server, [])
    if spare:
        url = spare.pop()
        await _administer(url, f"TRUNCATE {', '.join(_TABLES)}")
    else:
        url = await _new_database(server)
        await PostgresStore.migrate(url)
    yield url
    spare.append(url)


_TABLES = ("checkpoints", "checkpoint_threads", "checkpoint_leases", "checkpoint_blobs", "outcrop_notes")


@atexit.register
def _drop_spare() -> None:
    for server, urls in _spare.items():
        for url in urls:
            with suppress(OSError):
                asyncio.run(_drop(server, url))


class PostgresBinding:
    """A Postgres store on an empty database; its leases' clock is the server's, so time is waited for."""

    def __init__(self, server: str, **options: Any) -> None:
        self._server = server
        self._options = options

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[PostgresStore]:
        async with spare_database(self._server) as url:
            store = await PostgresStore.open(url, **self._options)
            try:
                yield store
            finally:
                await store.close()

    async def pass_time(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


_AS = "postgres" if os.geteuid() == 0 else None  # neither program runs as root


class OwnProgram:
    """A server that a test may stop, kill and start again, on a port of its own."""

    def __init__(self, command: Sequence[str], folder: Path, port: int, probe: Sequence[str] = ()) -> None:
        self._command = command
        self._probe = probe
        self._folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, user=_AS, cwd=self._folder, start_new_session=True
            )
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self.process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop(self, how: signal.Signals) -> None:
        """SIGINT disconnects everybody and shuts down, SIGQUIT doesn't even do that well."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(30)

    def _answers(self) -> bool:
        if self._probe:
            return subprocess.run(self._probe, check=False, capture_output=True).returncode == 0
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def _program(name: str) -> str:
    places = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        missing("pgbouncer" if name == "pgbouncer" else "postgres", f"install {name}")
    return found


@contextmanager
def _folder() -> Generator[tuple[Path, int]]:
    with TemporaryDirectory(prefix="outcrop-") as name, socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        listener.close()
        if _AS is not None:
            shutil.chown(name, _AS)
        yield Path(name), port


@contextmanager
def own_server() -> Generator[tuple[str, OwnProgram]]:
    """The URL of a running Postgres server of one's own."""
    form, serve = _program("initdb"), _program("postgres")
    with _folder() as (folder, port):
        data = str(folder / "data")
        form_it = [form, "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"]
        subprocess.run(form_it, check=True, capture_output=True, cwd=folder, user=_AS)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=100"]
        command = [serve, "-D", data, "-k", str(folder), "-p", str(port), *options]
        probe = [_program("pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
        server = OwnProgram(command, folder, port, probe)
        server.start()
        try:
            yield f"postgres://postgres@127.0.0.1:{port}/postgres", server
        finally:
            server.stop(signal.SIGINT)


@contextmanager
def pgbouncer(database: str, *, connections: int) -> Generator[str]:
    """The URL of a PgBouncer in transaction mode, with a few connections to a database."""
    program = _program("pgbouncer")
    parts = urlsplit(database)
    with _folder() as (folder, port):
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": folder / "users",
            "pool_mode": "transaction",
            "default_pool_size": connections,
            "max_client_conn": 500,
        }
        lines = [f"* = host={parts.hostname} port={parts.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (folder / "users").write_text(f'"{parts.username}" ""\n')
        (folder / "settings").write_text("\n".join(["[databases]", *lines]))
        bouncer = OwnProgram([program, str(folder / "settings")], folder, port)
        bouncer.start()
        try:
            yield urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
        finally:
            bouncer.stop(signal.SIGINT)
