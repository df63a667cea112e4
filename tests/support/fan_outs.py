"""Groups whose branches end when a test says so, and what a run tells meanwhile.

Events are told in short, like `end checks/a Succeeded`, so that a test can say the whole order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from outcrop.engine import Graph, NodeContext, RunOptions
from outcrop.engine.composites import Joined
from outcrop.engine.events import BranchCompleted, JoinDecided, MapExpanded, NodeCompleted, RetryScheduled

from .engine import EVERY_NODE, Doc, World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from outcrop.engine import RunResult, Threads
    from outcrop.engine.events import RunEvent
    from outcrop.engine.group_builder import GroupBuilder

_SHOWN = {
    "BranchStarted": "start",
    "NodeStarted": "node",
}


class Watch:
    """Telemetry that writes the run's events down, in line."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def run(self, _thread_id: str, _run_id: str) -> Watch:
        """One log for all runs."""
        return self

    def observed(self, event: RunEvent) -> None:
        """Write it down."""
        self.events.append(event)

    def attempt(self, _path: str, _number: int) -> AbstractContextManager[None]:
        """No span."""
        return nullcontext()

    def loaded(self, _seconds: float, _status: str | None) -> None:
        """Nothing to tell."""

    def held(self) -> None:
        """Nothing to tell."""

    def observer_failed(self) -> None:
        """Nothing to tell."""

    def told(self) -> list[str]:
        """Events of nodes, branches, items and joins in short."""
        return [short for event in self.events if (short := _short(event)) is not None]

    def ends(self) -> dict[str, BranchCompleted]:
        """How branches and items ended, by path; the last attempt's."""
        return {
            event.node_path or "": event.kind
            for event in self.events
            if isinstance(event.kind, BranchCompleted)
        }


def _short(event: RunEvent) -> str | None:
    kind, path = event.kind, event.node_path
    match kind:
        case BranchCompleted():
            result = kind.result.value
            told = f"{result} {kind.reason.value}" if kind.reason is not None else result
            return f"end {path} {told}{' kept' if kind.kept else ''}"
        case NodeCompleted():
            return f"done {path} {kind.result.value}"
        case JoinDecided():
            return f"join {path} {kind.policy} {'met' if kind.met else 'lost'} {list(kind.deciding)}"
        case MapExpanded():
            return f"map {path} {list(kind.keys)}"
        case RetryScheduled():
            return f"retry {path}"
        case _:
            shown = _SHOWN.get(type(kind).__name__)
            return None if shown is None else f"{shown} {path}"


async def settle() -> None:
    """Let everything that can go on do so."""
    for _ in range(30):
        await asyncio.sleep(0)


class Stage:
    """A graph with a group `g` between `in` and `out`, in a world that is watched."""

    def __init__(self, world: World | None = None, **options: Any) -> None:
        self.world = world or World()
        self.watch = Watch()
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.contexts: list[NodeContext] = []
        self.stopped: list[str] = []
        self.joined: list[Joined[Doc]] = []
        self.graph: Graph[Doc] = self.world.graph("in")
        if "reduce_outcomes" not in options:
            options.setdefault("reduce", gather)
        self.group: GroupBuilder[Doc] = self.graph.group("g", **options)
        self.world.trailing(self.graph, "out")
        self.graph.edge("in", "g")
        self.graph.edge("g", "out")

    @classmethod
    def told_outcomes(cls, **options: Any) -> Stage:
        """One whose reducer is told of every outcome."""
        joined = list[Joined[Doc]]()

        def reduce(entry: Doc, outcomes: Joined[Doc]) -> None:
            joined.append(outcomes)
            entry.trail += [doc.trail[-1] for doc in outcomes.succeeded]

        stage = cls(reduce_outcomes=reduce, **options)
        stage.joined = joined
        return stage

    def branch(self, name: str, *errors: Exception, n: int = 0) -> None:
        """Add a branch that ends once its gate is open: with the next error, or a state with `n`."""
        left = list(errors)

        @self.group.branch(name=name)
        async def work(doc: Doc, ctx: NodeContext) -> None:
            self.contexts.append(ctx)
            try:
                await self.gates[name].wait()
            except asyncio.CancelledError:
                self.stopped.append(name)
                raise
            if left:
                raise left.pop(0)
            doc.trail.append(name)
            doc.n = n

    def branches(self, *names: str) -> None:
        """Add branches that succeed."""
        for name in names:
            self.branch(name)

    @property
    def started(self) -> list[str]:
        """The branches that ran, in the order they started."""
        return [ctx.node for ctx in self.contexts]

    def threads(self, **compiling: Any) -> Threads[Doc]:
        """Threads of the graph as it is now."""
        compiled = self.graph.compile(**{"checkpoints": EVERY_NODE, **compiling})
        return self.world.threads(compiled, telemetry=self.watch)

    async def run(self, *order: str, options: RunOptions | None = None) -> RunResult[Doc]:
        """Run thread `t`, opening the gates in this order; the rest stay shut."""
        task = asyncio.create_task(self.threads().run("t", Doc(), options or RunOptions()))
        for name in order:
            await settle()
            self.gates[name].set()
        return await task


def gather(entry: Doc, states: Sequence[Doc]) -> None:
    """Put the last step of each branch or item on the entry state's trail, in the order given."""
    entry.trail += [doc.trail[-1] for doc in states]
