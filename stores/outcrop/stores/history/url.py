"""From a store's URL to the history in it. Drivers are extras, and imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.location import Engine, given, locate

from .in_process import InProcessHistoryStore
from .sqlite import SqliteHistoryStore

if TYPE_CHECKING:
    from outcrop.stores.location import Location

    from .port import HistoryStore


async def open_history(url: str) -> HistoryStore:
    """Open the history in the store that `url` names, beside its checkpoints.

    The URL is `open_store`'s; options that only checkpoints have change nothing here. Raises
    `InvalidRequest` for a URL that names no supported store, `StoreError` when it can't be opened.
    """
    return await open_located(locate(url))


async def open_located(location: Location) -> HistoryStore:
    """Open the history in the store that is there; raises as `open_history`."""
    options = location.options
    match location.engine:
        case Engine.MEMORY:
            return InProcessHistoryStore()
        case Engine.SQLITE:
            return await SqliteHistoryStore.open(location.place)
        case Engine.POSTGRES:
            from .postgres import PostgresHistoryStore  # noqa: PLC0415 - needs an extra

            return await PostgresHistoryStore.open(
                location.place,
                retries=options.retries(),
                **given(
                    auto_migrate=options.flag("auto_migrate"),
                    pool_size=options.number("pool_size"),
                    prepared=options.flag("prepared"),
                ),
            )
        case Engine.REDIS:
            from .redis import RedisHistoryStore  # noqa: PLC0415 - needs an extra

            return await RedisHistoryStore.open(
                location.place, retries=options.retries(), **given(prefix=options.text("prefix"))
            )
