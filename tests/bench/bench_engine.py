"""What the engine costs over its floor, for a ten-node EveryNode run, as ratios.

Run it: `python tests/bench/bench_engine.py [ROUNDS]`. It prints, for each store, the median
over rounds of the engine's time divided by the floor's, measured in turns so that a busy
machine slows both alike.

- memory: ten awaited calls, each with one deep copy and one JSON dump of the state. Aim: 2.5.
- sqlite: the rows that the engine's run saves, saved through the same adapter without the
  engine. Aim: 1.25.
"""

from __future__ import annotations

import asyncio
import copy
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from outcrop.engine import CheckpointPolicy, Graph, Threads
from outcrop.stores.memory import MemoryStore
from outcrop.stores.record import Checkpoint
from outcrop.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.engine import CompiledGraph
    from outcrop.stores.port import Store

NODES = 10
MEMORY_RUNS = 50  # a round's runs: one alone is too short to time
SQLITE_RUNS = 5


class Order(BaseModel):
    """A state of the size that people have."""

    id: str = "order-1042"
    customer: str = "a customer's name"
    amount: int = 0
    lines: list[str] = ["a line of the order", "another line of it", "and one more"]
    paid: bool = False
    note: str | None = None


def ten_nodes() -> CompiledGraph[Order]:
    """Ten nodes in a line, each adding one."""
    graph = Graph(Order, id="ten", version="1")
    for number in range(NODES):

        @graph.node(name=f"n{number}")
        async def add(order: Order) -> None:
            order.amount += 1

    for number in range(NODES - 1):
        graph.edge(f"n{number}", f"n{number + 1}")
    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


async def memory_floor() -> None:
    """Ten awaited calls, each with one deep copy and one JSON dump."""

    async def add(order: Order) -> None:
        order.amount += 1

    order = Order()
    for _ in range(NODES):
        order = copy.deepcopy(order)
        await add(order)
        order.model_dump_json()


async def rows_of_a_run(graph: CompiledGraph[Order]) -> list[Checkpoint]:
    """What a run saves."""
    store = MemoryStore()
    await Threads(graph, store).run("t", Order())
    return [row.checkpoint for row in (await store.get_log("t")).entries]


async def save_all(store: Store, rows: list[Checkpoint], thread_id: str) -> None:
    """The saves of a run without the run."""
    for sequence, row in enumerate(rows):
        values = {name: getattr(row, name) for name in Checkpoint.__slots__}
        saved = Checkpoint(**{**values, "thread_id": thread_id})
        await store.save(saved, expected=None if sequence == 0 else sequence - 1)


async def seconds(work: Callable[[int], Awaitable[object]], times: int) -> float:
    """How long the work takes, done so many times."""
    start = time.perf_counter()
    for number in range(times):
        await work(number)
    return time.perf_counter() - start


async def memory_ratio(graph: CompiledGraph[Order]) -> tuple[float, float, float]:
    """One round on the memory store: seconds a run, seconds a floor, and the ratio."""
    threads = Threads(graph, MemoryStore())
    engine = await seconds(lambda n: threads.run(f"t{n}", Order()), MEMORY_RUNS)
    floor = await seconds(lambda _: memory_floor(), MEMORY_RUNS)
    return engine / MEMORY_RUNS, floor / MEMORY_RUNS, engine / floor


async def sqlite_ratio(
    graph: CompiledGraph[Order], store: Store, rows: list[Checkpoint], number: int
) -> tuple[float, float, float]:
    """One round on SQLite: seconds a run, seconds a floor, and the ratio."""
    threads = Threads(graph, store)
    engine = await seconds(lambda n: threads.run(f"engine-{number}-{n}", Order()), SQLITE_RUNS)
    floor = await seconds(lambda n: save_all(store, rows, f"floor-{number}-{n}"), SQLITE_RUNS)
    return engine / SQLITE_RUNS, floor / SQLITE_RUNS, engine / floor


def show(name: str, rounds: list[tuple[float, float, float]], aim: float) -> None:
    """Print the medians."""
    engine, floor, ratio = (statistics.median(column) for column in zip(*rounds, strict=True))
    told = f"{name:8} engine {engine * 1e3:8.3f} ms  floor {floor * 1e3:8.3f} ms  ratio {ratio:5.2f}"
    print(f"{told}  (aim {aim})")


async def main(rounds: int) -> None:
    """Measure both stores."""
    graph = ten_nodes()
    await memory_ratio(graph)  # warm up
    show("memory", [await memory_ratio(graph) for _ in range(rounds)], 2.5)
    rows = await rows_of_a_run(graph)
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "bench.db")
        try:
            await sqlite_ratio(graph, store, rows, -1)  # warm up
            show("sqlite", [await sqlite_ratio(graph, store, rows, n) for n in range(rounds)], 1.25)
        finally:
            await store.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
