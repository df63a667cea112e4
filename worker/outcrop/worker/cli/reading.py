"""Opening a store to look at it: an existing one, read-only, safe beside running workers."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from outcrop.stores.url import open_store
from outcrop.worker.settings import load_settings

from .exits import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import AsyncGenerator

    from outcrop.stores import Store

_VARIABLE = "OUTCROP_STORAGE"


def add_storage(parser: ArgumentParser) -> None:
    """`--storage`, for commands that read a store."""
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="the checkpoint store: a SQLite file or sqlite:///PATH (default: "
        f"${_VARIABLE}, else the workers' setting `store`); it is only read, also while workers use it",
    )


@asynccontextmanager
async def reading(url: str | None) -> AsyncGenerator[Store]:
    """The store at `url`, or the configured one, for the length of a block; nothing is written."""
    place = url or os.environ.get(_VARIABLE) or load_settings().store.get_secret_value()
    if place.lower() == "memory:":
        raise UsageError("a memory: store lives inside its own process: name a stored one with --storage")
    store = await open_store(place, read_only=True)
    try:
        yield store
    finally:
        await store.close()
