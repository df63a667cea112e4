"""The thread of tests/golden/places: a group half done, whose row was forked; and how its place was made.

`python -m support.golden sqlite FILE` (or postgres, redis; run in tests/) writes a new one, for a build
that stores another form. Those that are there stay as they are for ever.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import redis

from outcrop.engine import Answer, CheckpointPolicy, CompiledGraph, Graph, NodeContext, Threads
from outcrop.stores import open_store

from .storages import Places, Storage, given_server

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACES = Path(__file__).parents[1] / "golden" / "places"
THREAD = "order-1"
State = dict[str, Any]


def graph(ran: list[str]) -> CompiledGraph[State]:
    """A group of a branch that keeps its result and one that asks twice."""
    orders = Graph(dict[str, Any], id="golden", version="1")

    def merge(state: State, branches: Sequence[State]) -> None:
        for branch in branches:
            state.update(branch)

    checks = orders.group("checks", reduce=merge, keep_finished=True)

    @checks.branch
    async def score(state: State, ctx: NodeContext) -> None:
        ran.append(ctx.node_path)
        state["score"] = 7

    @checks.branch
    async def review(state: State, ctx: NodeContext) -> None:
        ran.append(ctx.node_path)
        state["review"] = [
            await ctx.interrupt({"is": "it é?"}, id="first"),
            await ctx.interrupt(None, id="second"),
        ]

    return orders.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


async def write(storage: Storage) -> None:
    """Bring the thread to where it is, in an empty place."""
    store = await open_store(storage.url)
    try:
        threads = Threads(graph([]), store)
        await threads.run(THREAD, {})
        await threads.resume(THREAD, Answer(replies={"first": {"yes": True}}))
        await threads.fork(THREAD, 3)
    finally:
        await store.close()


def dump(storage: Storage) -> str:
    """All that is in the place, as text that `load_place` takes."""
    match storage.kind:
        case "sqlite":
            with sqlite3.connect(storage.file) as connection:
                return "\n".join(connection.iterdump())
        case "postgres":
            command = ["pg_dump", "--inserts", "--no-owner", "--no-privileges", storage.url]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            return "\n".join(line for line in text.splitlines() if not line.startswith("\\"))
        case _:
            return json.dumps(_keys(storage), indent=1)


def _keys(storage: Storage) -> dict[str, Any]:
    url, prefix = storage.peer[1], storage.peer[3]
    entries = list[dict[str, Any]]()
    with redis.Redis.from_url(url, decode_responses=True) as client:
        for key in client.scan_iter(f"{prefix}:*"):
            kind = str(client.type(key))
            value: Any = None
            match kind:
                case "list":
                    value = client.lrange(key, 0, -1)
                case "zset":
                    value = client.zrange(key, 0, -1, withscores=True)
                case "hash":
                    value = client.hgetall(key)
                case "set":
                    value = sorted(client.smembers(key))
                case _:
                    value = client.get(key)
            name = key.replace(f"{prefix}:", "strata:", 1)
            entries.append({"key": name, "type": kind, "value": value, "expires_at_ms": None})
    return {"keys": sorted(entries, key=lambda entry: str(entry["key"]))}


async def _dumped(kind: str, folder: Path) -> str:
    async with Places(folder, given_server).fresh(kind) as storage:
        await write(storage)
        return await asyncio.to_thread(dump, storage)


def main(kind: str, file: str) -> None:
    """Write a new place."""
    with TemporaryDirectory() as folder:
        text = asyncio.run(_dumped(kind, Path(folder)))
    Path(file).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
