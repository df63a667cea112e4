"""From a store's URL to the long-term memory in it. Drivers are extras, and imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.location import Engine, given, locate

from .in_process import InProcessLongTermStore
from .sqlite import SqliteLongTermStore

if TYPE_CHECKING:
    from outcrop.stores.location import Location

    from .hnsw import Hnsw
    from .port import LongTermStore


async def open_long_term(
    url: str, *, dimensions: int, table: str = "memory_records", hnsw: Hnsw | None = None
) -> LongTermStore:
    """Open the long-term memory in the store that `url` names, beside its checkpoints.

    The URL is `open_store`'s; options that only checkpoints have change nothing here. Only the
    SQL engines have a `table`. Raises `InvalidRequest` for a URL that names no supported store
    and for an `hnsw` index where there is none, and as the adapter's `open`.
    """
    return await open_located(locate(url), dimensions=dimensions, table=table, hnsw=hnsw)


async def open_located(
    location: Location, *, dimensions: int, table: str, hnsw: Hnsw | None, prefix: str | None = None
) -> LongTermStore:
    """Open the memory in the store that is there, in Redis under another `prefix` if one is given."""
    options = location.options
    if hnsw is not None and location.engine in {Engine.MEMORY, Engine.SQLITE}:
        raise InvalidRequest(f"the {location.engine} memory has no HNSW index: it compares every record")
    match location.engine:
        case Engine.MEMORY:
            return InProcessLongTermStore(dimensions=dimensions)
        case Engine.SQLITE:
            return await SqliteLongTermStore.open(location.place, dimensions=dimensions, table=table)
        case Engine.POSTGRES:
            from .postgres import PostgresLongTermStore  # noqa: PLC0415 - needs an extra

            return await PostgresLongTermStore.open(
                location.place,
                dimensions=dimensions,
                table=table,
                hnsw=hnsw,
                retries=options.retries(),
                **given(
                    auto_migrate=options.flag("auto_migrate"),
                    pool_size=options.number("pool_size"),
                    prepared=options.flag("prepared"),
                ),
            )
        case Engine.REDIS:
            from .redis import RedisLongTermStore  # noqa: PLC0415 - needs an extra

            return await RedisLongTermStore.open(
                location.place,
                dimensions=dimensions,
                hnsw=hnsw,
                retries=options.retries(),
                **given(prefix=prefix or options.text("prefix")),
            )
