"""One URL opens any store: the one place that turns configuration into an adapter.

    memory:                      in this process only
    sqlite:///a.db               a file, relative; sqlite:////a.db from the root
    a.db                         a file's path
    postgres://HOST/DATABASE     or postgresql://; TLS and credentials as asyncpg has them
    redis://HOST:PORT/DB         or rediss:// for TLS, as redis-py has them

Options stand in the query (`location`). An adapter is imported when its URL is opened, because
its driver is an extra. Never repeats a URL in a message, because one may carry a password.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .diagnosis import Diagnosis
from .location import Engine, Options, given, locate
from .memory import MemoryStore
from .sqlite import SqliteStore

if TYPE_CHECKING:
    from .location import Location
    from .port import Store


async def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open the store that `url` names.

    `read_only` opens an existing store and changes nothing in it. Raises `InvalidRequest` for
    a URL that names no supported store, or has a bad option; `StoreError` when the store can't
    be opened, or the extra that it needs isn't installed.
    """
    return await open_located(locate(url), read_only=read_only)


async def open_located(location: Location, *, read_only: bool = False) -> Store:
    """Open the store that is there; raises as `open_store`."""
    match location.engine:
        case Engine.MEMORY:
            return MemoryStore()
        case Engine.SQLITE:
            return await _open_sqlite(location, read_only=read_only)
        case Engine.POSTGRES:
            return await _open_postgres(location, read_only=read_only)
        case Engine.REDIS:
            return await _open_redis(location, read_only=read_only)


async def migrate(url: str) -> None:
    """Bring the store that `url` names to this build's version, whatever its `auto_migrate` says.

    Creates what isn't there. Raises as `open_store`.
    """
    location = locate(url)
    others = {name: text for name, text in location.options.texts.items() if name != "auto_migrate"}
    await (await open_located(replace(location, options=Options(others)))).close()


async def diagnose(url: str) -> Diagnosis:
    """Look at the store that `url` names, changing nothing in it.

    Raises `Unavailable` when it can't be reached, otherwise as `open_store`.
    """
    location = locate(url)
    match location.engine:
        case Engine.MEMORY:
            return Diagnosis(engine="memory")
        case Engine.SQLITE:
            from .sqlite import diagnosis as sqlite  # noqa: PLC0415 - only a check needs it

            return await sqlite.diagnose(location.place)
        case Engine.POSTGRES:
            from .postgres import diagnosis as postgres  # noqa: PLC0415 - needs an extra

            prepared = location.options.flag("prepared")
            return await postgres.diagnose(location.place, prepared=prepared is not False)
        case Engine.REDIS:
            from .redis import diagnosis as redis  # noqa: PLC0415 - needs an extra

            return await redis.diagnose(location.place, **given(prefix=location.options.text("prefix")))


async def _open_sqlite(location: Location, *, read_only: bool) -> SqliteStore:
    options = location.options
    if read_only:
        return await SqliteStore.open_read_only(location.place, offload=options.offload())
    return await SqliteStore.open(
        location.place,
        deltas=options.deltas(),
        offload=options.offload(),
        group_commit=options.group_commit(),
    )


async def _open_postgres(location: Location, *, read_only: bool) -> Store:
    from .postgres import PostgresStore  # noqa: PLC0415 - needs an extra

    options = location.options
    shared = given(
        pool_size=options.number("pool_size"),
        prepared=options.flag("prepared"),
        answer_timeout=options.duration("answer_timeout"),
    )
    if read_only:
        return await PostgresStore.open_read_only(
            location.place, retries=options.retries(), offload=options.offload(), **shared
        )
    return await PostgresStore.open(
        location.place,
        retries=options.retries(),
        deltas=options.deltas(),
        offload=options.offload(),
        group_commit=options.group_commit(),
        **shared,
        **given(auto_migrate=options.flag("auto_migrate")),
    )


async def _open_redis(location: Location, *, read_only: bool) -> Store:
    from .redis import RedisStore  # noqa: PLC0415 - needs an extra

    options = location.options
    shared = given(prefix=options.text("prefix"))
    if read_only:
        return await RedisStore.open_read_only(
            location.place, retries=options.retries(), offload=options.offload(), **shared
        )
    return await RedisStore.open(
        location.place,
        retries=options.retries(),
        deltas=options.deltas(),
        offload=options.offload(),
        **shared,
        **given(
            finished_thread_ttl=options.duration("finished_thread_ttl"),
            wait_replicas=options.number("wait_replicas"),
            wait_timeout=options.duration("wait_timeout"),
        ),
    )
