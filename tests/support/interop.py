"""Comparing what two engines say: their answers and rows with the times masked."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from outcrop.stores import codec, open_store

if TYPE_CHECKING:
    from support.storages import Storage

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def masked(value: Any) -> Any:
    """The value with every time replaced, and lease expiries left out."""
    if isinstance(value, str):
        return TIME.sub("$TIME", value)
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, dict):
        return {key: masked(item) for key, item in value.items() if key != "expires_at"}
    return value


async def rows(storage: Storage, thread: str) -> list[Any]:
    """The thread's whole log as JSON values, times masked."""
    store = await open_store(storage.url)
    try:
        page = await store.get_log(thread, limit=1000)
        return [masked(json.loads(codec.encode(row.checkpoint))) for row in page.entries]
    finally:
        await store.close()
