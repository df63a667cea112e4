"""A store, a hand-driven clock and graphs for tests of running threads.

Rows are told as `status:suspended>next`, with `-` for none, as in the case list.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from outcrop.engine import (
    CheckpointPolicy,
    Graph,
    LeaseOptions,
    ManualClock,
    NodeContext,
    RunOptions,
    Threads,
)
from outcrop.stores.memory import MemoryStore
from outcrop.stores.testing import FailingStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine import CompiledGraph
    from outcrop.stores.port import Store
    from outcrop.stores.record import Checkpoint, Row

S = TypeVar("S")

BOUNDARIES, EVERY_NODE = CheckpointPolicy.BOUNDARIES, CheckpointPolicy.EVERY_NODE
TTL = timedelta(seconds=30)
LEASED = RunOptions(lease=LeaseOptions("w1", TTL))
OTHER = RunOptions(lease=LeaseOptions("w2", TTL))


class Doc(BaseModel):
    """The state of most tests: a trail of the nodes that committed, and fields to branch on."""

    trail: list[str] = []
    n: int = 0
    note: str | None = None


class Crash(GeneratorExit):
    """Ends a run as a killed process would: a run that is closed writes and releases nothing."""


class World:
    """One store and one clock, and what the nodes of its graphs were told."""

    def __init__(self, store: Store | None = None) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock.now)
        self.store = FailingStore(store or self.memory)
        self.contexts: list[NodeContext] = []

    def threads(self, graph: CompiledGraph[S], **options: Any) -> Threads[S]:
        """Threads of the graph in this world, with delays at their longest."""
        return Threads(graph, self.store, clock=self.clock, uniform=lambda: 1.0, **options)

    def line(
        self, *names: str, policy: CheckpointPolicy = EVERY_NODE, **identity: Any
    ) -> tuple[Graph[Doc], Threads[Doc]]:
        """A line of nodes that leave a trail."""
        graph = self.graph(*names, **identity)
        return graph, self.threads(graph.compile(checkpoints=policy))

    def graph(self, *names: str, **identity: Any) -> Graph[Doc]:
        """A line of nodes that leave a trail, to be added to."""
        graph = Graph(Doc, **identity)
        for name in names:
            self.trailing(graph, name)
        for name, following in pairwise(names):
            graph.edge(name, following)
        return graph

    def trailing(self, graph: Graph[Doc], name: str, **options: Any) -> None:
        """Add a node that notes its context and puts its name on the trail."""

        @graph.node(name=name, **options)
        async def leave(doc: Doc, ctx: NodeContext) -> None:
            self.contexts.append(ctx)
            doc.trail.append(name)

    def failing(self, graph: Graph[Doc], name: str, *errors: Exception, **options: Any) -> list[int]:
        """Add a node that raises the errors one after the other, then works; returns its attempts."""
        left, attempts = list(errors), list[int]()

        @graph.node(name=name, **options)
        async def fail(doc: Doc, ctx: NodeContext) -> None:
            attempts.append(ctx.attempt)
            self.contexts.append(ctx)
            doc.trail.append(f"{name} half done")
            if left:
                raise left.pop(0)
            doc.trail[-1] = name

        return attempts

    async def entries(self, thread_id: str = "t") -> list[Row]:
        """The thread's log."""
        return list((await self.memory.get_log(thread_id)).entries)

    async def rows(self, thread_id: str = "t") -> list[Checkpoint]:
        """The thread's checkpoints."""
        return [row.checkpoint for row in await self.entries(thread_id)]

    async def log(self, thread_id: str = "t") -> list[str]:
        """The thread's log in short."""
        return [told(row) for row in await self.rows(thread_id)]

    async def last(self, thread_id: str = "t") -> Checkpoint:
        """The thread's latest checkpoint."""
        return (await self.rows(thread_id))[-1]

    @property
    def ran(self) -> list[str]:
        """The nodes that noted their contexts, in order."""
        return [ctx.node for ctx in self.contexts]


class Gate:
    """A node's stop in the middle: it tells that it came, and waits to be let through."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self) -> None:
        """Wait at the gate."""
        self.reached.set()
        await self.opened.wait()


def gated(graph: Graph[Doc], name: str, gate: Gate, **options: Any) -> list[NodeContext]:
    """Add a node that waits at the gate; returns the contexts it is given."""
    contexts = list[NodeContext]()

    @graph.node(name=name, **options)
    async def wait(doc: Doc, ctx: NodeContext) -> None:
        contexts.append(ctx)
        await gate()
        doc.trail.append(name)

    return contexts


def told(row: Checkpoint) -> str:
    """The row in short, nested levels after slashes."""
    return " / ".join(
        f"{level.status}:{level.suspended_node or '-'}>{level.next_node or '-'}" for level in row.levels()
    )


def crashing(point: str, count: int) -> Callable[[str], None]:
    """A failpoint hook that crashes at the n-th hit of a point."""
    left = count

    def hit(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                raise Crash

    return hit
