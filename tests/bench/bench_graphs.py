"""What groups, maps and long threads cost over their floors, as ratios.

Run it: `python tests/bench/bench_graphs.py [ROUNDS]`. Each line is the median over rounds of one
time divided by another, measured in turns so that a busy machine slows both alike.

- group, map: 100 branches, 1,000 items, each against as many bare asyncio tasks that copy the
  state, do the same and dump it as JSON; with 10 ms of waiting each, as for a service, and with
  none. Aim: 1.5.
- length: one more node of a thread with 1,000 committed nodes, against one of a thread with 10: its
  time in memory, and its bytes on SQLite with deltas. Aim: 1.1.
"""

from __future__ import annotations

import asyncio
import copy
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from outcrop.engine import CheckpointPolicy, Graph, Threads
from outcrop.stores import open_store
from outcrop.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from outcrop.engine import CompiledGraph

WAIT = 0.01
BRANCHES = 100
ITEMS = 1000
SHORT, LONG = 10, 1000


class Order(BaseModel):
    """A state of the size that people have."""

    id: str = "order-1042"
    customer: str = "a customer's name"
    amount: int = 0
    lines: list[str] = ["a line of the order", "another line of it", "and one more"]
    note: str | None = None


def work(wait: float) -> Callable[[Order], Coroutine[Any, Any, None]]:
    """What a branch, an item and a bare task do."""

    async def add(order: Order) -> None:
        if wait:
            await asyncio.sleep(wait)
        order.amount += 1

    return add


def add_up(order: Order, parts: Sequence[Order]) -> None:
    """Reduce."""
    order.amount = sum(part.amount for part in parts)


def group(wait: float) -> CompiledGraph[Order]:
    """A hundred branches."""
    graph = Graph(Order)
    parallel = graph.group("g", reduce=add_up)
    for number in range(BRANCHES):
        parallel.branch(name=f"b{number}")(work(wait))
    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


def mapped(wait: float) -> CompiledGraph[Order]:
    """A thousand items, each a graph of one node."""
    child, graph = Graph(Order), Graph(Order)
    child.node(name="work")(work(wait))
    graph.map(
        "m",
        child.compile(),
        items=lambda _: list(range(ITEMS)),
        key=str,
        input=lambda _, item: Order(amount=item),
        reduce=add_up,
        max_concurrency=ITEMS,
    )
    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


async def bare(count: int, wait: float) -> None:
    """The same by tasks."""
    state, do = Order(), work(wait)

    async def one() -> str:
        mine = copy.deepcopy(state)
        await do(mine)
        return mine.model_dump_json()

    await asyncio.gather(*(asyncio.create_task(one()) for _ in range(count)))


async def seconds(call: Awaitable[object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    await call
    return time.perf_counter() - start


def show(name: str, ratios: list[float], aim: float) -> None:
    """Print the median."""
    print(f"{name:24} ratio {statistics.median(ratios):5.2f}  (aim {aim})")


async def fan_outs(rounds: int) -> None:
    """Groups and maps."""
    for name, make, count in (("group of 100", group, BRANCHES), ("map of 1,000", mapped, ITEMS)):
        for wait in (WAIT, 0.0):
            graph, ratios = make(wait), list[float]()
            for number in range(rounds + 1):
                threads = Threads(graph, MemoryStore())
                engine = await seconds(threads.run(f"t{number}", Order()))
                ratios.append(engine / await seconds(bare(count, wait)))
            show(f"{name}, {wait * 1000:.0f} ms each", ratios[1:], 1.5)


def counter(nodes: int, starts: list[float] | None = None) -> CompiledGraph[Order]:
    """A loop that runs its node so often, and notes when."""
    graph = Graph(Order)

    @graph.node
    async def add(order: Order) -> None:
        order.amount += 1
        if starts is not None:
            starts.append(time.perf_counter())

    graph.edge("add", "add", when=lambda order: order.amount < nodes)
    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


async def lengths(rounds: int) -> None:
    """The time from node to node late in a thread, against that among its first ones."""
    ratios = list[float]()
    for _ in range(rounds + 1):
        starts, early, late = list[float](), list[float](), list[float]()
        threads = Threads(counter(LONG, starts), MemoryStore())
        for number in range(LONG // SHORT):
            starts.clear()
            await threads.run(f"t{number}", Order())
            steps = [after - before for before, after in pairwise(starts)]
            early += steps[:SHORT]
            late += steps[-SHORT:]
        ratios.append(statistics.median(late) / statistics.median(early))
    show("1,000 nodes: time", ratios[1:], 1.1)


async def sizes() -> None:
    """The same in bytes."""
    bytes_ = dict[int, float]()
    for nodes in (SHORT, LONG):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.db"
            store = await open_store(f"sqlite:///{file}?deltas_full_every=10")
            try:
                await Threads(counter(nodes), store).run("t", Order())
            finally:
                await store.close()
            with closing(sqlite3.connect(file)) as database:
                query = "SELECT SUM(LENGTH(frozen_state)), COUNT(*) FROM checkpoints"
                total, count = database.execute(query).fetchone()
                bytes_[nodes] = total / count
    show("1,000 nodes: bytes", [bytes_[LONG] / bytes_[SHORT]], 1.1)


async def main(rounds: int) -> None:
    """Measure all."""
    await fan_outs(rounds)
    await lengths(rounds)
    await sizes()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
