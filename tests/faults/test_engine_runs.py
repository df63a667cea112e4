"""Leased runs of the engine through every fault: each thread ends, and each node commits once."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import Completed, Failed, Graph, LeaseOptions, NodeContext, RunOptions, Threads
from outcrop.stores import EMPTY_LOG, Status, Unavailable
from support.arenas import ENGINES
from support.engine import EVERY_NODE, Doc
from support.store_processes import whole_log

if TYPE_CHECKING:
    from outcrop.engine import CompiledGraph
    from outcrop.stores import Row
    from support.arenas import Arena, Arenas

NAMES = [f"n{at}" for at in range(10)]
LEASE = LeaseOptions("worker", timedelta(seconds=1))
ENCODED = "&deltas_full_every=4&offload_threshold=40"


class Fleet:
    """Threads that go from gate to gate, and are run again whenever a fault ended their run."""

    def __init__(self) -> None:
        self.gates = {name: asyncio.Event() for name in NAMES}
        self.told = asyncio.Event()
        self.ends: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self._arrivals = asyncio.Condition()

    def graph(self) -> CompiledGraph[Doc]:
        graph = Graph(Doc)
        for name in NAMES:
            self._add(graph, name)
        for name, following in pairwise(NAMES):
            graph.edge(name, following)
        return graph.compile(checkpoints=EVERY_NODE)

    def _add(self, graph: Graph[Doc], name: str) -> None:
        @graph.node(name=name)
        async def leave(doc: Doc, ctx: NodeContext) -> None:
            self.started[name] += 1
            async with self._arrivals:
                self._arrivals.notify_all()
            await self.gates[name].wait()
            doc.trail.append(ctx.node)

    async def at(self, name: str, threads: int) -> None:
        """Return when that many threads have come to a gate."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: self.started[name] >= threads)

    async def through(self, threads: Threads[Doc], thread_id: str) -> None:
        """Run one thread to its end, as workers would, one after the other."""
        while True:
            try:
                row = await threads.store.load(thread_id)
            except Unavailable:
                self._tell("not loaded")
                continue
            if row is None:
                options = RunOptions(lease=LEASE, expected_sequence=EMPTY_LOG)
                result = await threads.run(thread_id, Doc(), options)
            elif row.checkpoint.status is Status.RUNNING:
                result = await threads.recover(thread_id, RunOptions(lease=LEASE))
            else:
                return
            assert not isinstance(result, Failed), result
            if not isinstance(result, Completed):
                self._tell(type(result).__name__)
                await asyncio.sleep(0.05)  # nothing tells when a lease in doubt is over

    def _tell(self, what: str) -> None:
        self.ends[what] += 1
        self.told.set()


@pytest.mark.parametrize("engine", ENGINES)
async def test_runs_through_all_faults(engine: str, arenas: Arenas) -> None:
    """H4: forty threads at once, a fault or two at each of ten nodes."""
    seed = int(os.environ.get("OUTCROP_TEST_SEED", random.randrange(10**6)))
    options = ENCODED if engine == "redis" else f"{ENCODED}&group_commit=true"
    async with asyncio.timeout(120), arenas.fresh(engine) as arena, arena.store(options) as store:
        faults = list(arena.faults.items())
        random.Random(seed).shuffle(faults)
        fleet = Fleet()
        threads = Threads(fleet.graph(), store)
        names = [f"t{at}" for at in range(40)]

        async def strike() -> None:
            for at, gate in enumerate(NAMES[:-1]):  # at the last one there may be nobody left to be told
                await fleet.at(gate, len(names))
                for name, fault in faults[at % len(faults) :: len(NAMES) - 1]:
                    before = fleet.ends.total()
                    striking = asyncio.create_task(fault(fleet.told))
                    await asyncio.sleep(0)
                    fleet.gates[gate].set()
                    await striking
                    print(f"seed {seed}, {gate}, {name}: {fleet.ends.total() - before} runs ended")
            fleet.gates[NAMES[-1]].set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(strike())
            for name in names:
                tasks.create_task(fleet.through(threads, name))
        print(f"seed {seed}: {dict(fleet.ends)}, {fleet.started.total()} nodes started for 400")
        await check_logs(arena, names)


async def check_logs(arena: Arena, names: list[str]) -> None:
    """No gap, no row twice: after its first, each row commits the next node or claims the thread."""
    async with arena.reader() as reader:
        for name in names:
            rows = await whole_log(reader, name)
            assert rows[-1].checkpoint.status is Status.COMPLETED
            assert [hops_of(row) for row in rows if not is_claim(row)] == list(range(len(NAMES) + 1))
            for row, following in pairwise(rows):
                assert hops_of(following) == hops_of(row) + (not is_claim(following))
            for row in rows:
                assert Doc.model_validate_json(row.checkpoint.frozen_state).trail == NAMES[: hops_of(row)]


def hops_of(row: Row) -> int:
    return int((row.checkpoint.metadata or {})["strata.hops"])


def is_claim(row: Row) -> bool:
    return "strata.recoveries" in (row.checkpoint.metadata or {})
