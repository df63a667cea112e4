"""Graphs inside graphs: parents named in capitals, whose child leaves a trail of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outcrop.engine import Completed, Failed, Interrupted, Refused

from .engine import EVERY_NODE, Doc, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine import (
        CheckpointPolicy,
        CompiledGraph,
        Graph,
        NodeContext,
        RefusalCode,
        RunResult,
        Threads,
    )
    from outcrop.stores.record import Checkpoint


def sub(graph: Graph[Doc], name: str, child: CompiledGraph[Doc], **options: Any) -> list[Doc]:
    """Add a child as a node; returns the states that it was entered with.

    It starts with the parent's `n`, and its trail and `n` come back into the parent's state.
    """
    entered = list[Doc]()

    def enter(doc: Doc) -> Doc:
        entered.append(doc)
        return Doc(n=doc.n)

    def leave(doc: Doc, child: Doc) -> None:
        doc.trail += [f"{name}/{one}" for one in child.trail]
        doc.n = child.n

    graph.subgraph(name, child, input=enter, output=leave, **options)
    return entered


class Nested:
    """Thread `t` of `before`, the subgraph node `Work`, and `after`."""

    def __init__(
        self,
        child: Graph[Doc] | Callable[[World], Graph[Doc]],
        *,
        world: World | None = None,
        policy: CheckpointPolicy = EVERY_NODE,
        compiling: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.world = world or World()
        self.child = child(self.world) if callable(child) else child
        self.graph = self.world.graph("before")
        self.entered = sub(self.graph, "Work", self.child.compile(), **options)
        self.world.trailing(self.graph, "after")
        self.graph.edge("before", "Work")
        self.graph.edge("Work", "after")
        self.policy = policy
        self.compiling = compiling or {}

    def threads(self, **options: Any) -> Threads[Doc]:
        """Threads of the graph as it is now."""
        return self.world.threads(self.graph.compile(checkpoints=self.policy, **self.compiling), **options)


def approving(world: World) -> Graph[Doc]:
    """`draft`, the boundary `approve`, `send`."""
    graph = world.graph("draft", "approve", "send")
    graph.interrupt("approve")
    return graph


def three_deep(
    world: World, inner: Graph[Doc], policy: CheckpointPolicy = EVERY_NODE
) -> tuple[Threads[Doc], Graph[Doc]]:
    """`inner` under `Inner`, after `first`, under `Work`, after `begin`; and the outermost graph."""
    middle, outer = world.graph("first"), world.graph("begin")
    sub(middle, "Inner", inner.compile())
    middle.edge("first", "Inner")
    sub(outer, "Work", middle.compile())
    outer.edge("begin", "Work")
    return world.threads(outer.compile(checkpoints=policy)), outer


def done(result: RunResult[Doc]) -> Doc:
    """The state of a run that completed."""
    assert isinstance(result, Completed), result
    return result.state


def waiting(result: RunResult[Doc]) -> Interrupted[Doc]:
    """A run that waits."""
    assert isinstance(result, Interrupted), result
    return result


def failed(result: RunResult[Doc]) -> Failed:
    """A run that failed."""
    assert isinstance(result, Failed), result
    return result


def refused(result: RunResult[Doc], code: RefusalCode) -> str:
    """What a refusal with this code says."""
    assert isinstance(result, Refused), result
    assert result.code is code, result
    return result.message


def metadata(row: Checkpoint) -> dict[str, str]:
    """A level's metadata without its count of hops."""
    return {key: value for key, value in (row.metadata or {}).items() if key != "strata.hops"}


def versions(row: Checkpoint) -> list[str]:
    """The schema version of each level, outermost first."""
    return [level.schema_version for level in row.levels()]


def keys(contexts: list[NodeContext]) -> list[str]:
    """The idempotency keys of executions."""
    return [ctx.idempotency_key for ctx in contexts]
