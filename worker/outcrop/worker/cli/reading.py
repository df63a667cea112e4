"""Opening a store to look at it: an existing one, read-only, safe beside running workers.

A URL may carry a password, and other users of the host see a command line: it can come from
the environment instead.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from outcrop.stores.url import open_store
from outcrop.worker.settings import load_settings

from .exits import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import AsyncGenerator

    from outcrop.stores import Store

STORAGE_VARIABLE: Final = "OUTCROP_STORAGE"
STORE_URLS: Final = "a SQLite file, sqlite:///PATH, postgres://… or redis://…"


def add_storage(parser: ArgumentParser) -> None:
    """`--storage`, for commands that read a store."""
    parser.add_argument(
        "--storage",
        metavar="URL",
        help=f"the checkpoint store: {STORE_URLS} (default: ${STORAGE_VARIABLE}, else the workers' setting "
        "`store`); it is only read, also while workers use it",
    )


@asynccontextmanager
async def reading(url: str | None) -> AsyncGenerator[Store]:
    """The store at `url`, or the configured one, for the length of a block; nothing is written."""
    store = await open_store(stored_at(url), read_only=True)
    try:
        yield store
    finally:
        await store.close()


def stored_at(url: str | None) -> str:
    """`url`, or the configured one; raises `UsageError` for one that another process can't see."""
    place = url or os.environ.get(STORAGE_VARIABLE) or load_settings().store.get_secret_value()
    if place.lower() == "memory:":
        raise UsageError("a memory: store lives inside its own process: name a stored one")
    return place
