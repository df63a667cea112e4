"""A compiled graph: immutable, validated, ready to run threads.

Lookups only; what runs next is `routing`, how it runs is `runner`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from .defining import define

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outcrop.stores.record import Checkpoint, GraphIdentity

    from .composites import Composite
    from .definition import GraphDefinition
    from .node import Boundary, Edge, EventWait, NodeSpec, TimerWait
    from .options import CheckpointPolicy
    from .state import StateCodec

S = TypeVar("S")

Migration: TypeAlias = "Callable[[Checkpoint], Checkpoint | None]"
"""Turns a level of another version of a graph into one of this version; None refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphParts(Generic[S]):
    """What a graph is made of, whether it compiles or not.

    A name is in exactly one of `nodes` (it does something) and `waits` (it passes the
    state through, then the thread waits); a node that is a group, a map or a subgraph is in
    `composites` too. `names` are in the order declared, `ways` are the edges as inserted.
    `boundaries` marks nodes only, and `metadata` describes them in exports.
    """

    entry: str
    names: tuple[str, ...]
    nodes: Mapping[str, NodeSpec[S]]
    waits: Mapping[str, EventWait | TimerWait[S]]
    composites: Mapping[str, Composite[S]] = field(default_factory=dict[str, "Composite[S]"])
    boundaries: Mapping[str, Boundary]
    ways: tuple[tuple[str, Edge[S]], ...]
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, "Mapping[str, str]"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph(GraphParts[S]):
    """What `Graph.compile()` returns.

    `edges` are the ways by the node they start at. `streaming` are the nodes that run in
    streaming runs only, themselves or by what is inside. `migration` turns a level that
    another version wrote into this version's, or refuses it with None.
    """

    identity: GraphIdentity | None
    policy: CheckpointPolicy
    states: StateCodec[S]
    edges: Mapping[str, tuple[Edge[S], ...]]
    max_node_hops: int | None = None
    migration: Migration | None = None
    interrupt_before: frozenset[str] = frozenset()
    interrupt_after: frozenset[str] = frozenset()
    streaming: frozenset[str] = frozenset()

    def definition(self) -> GraphDefinition:
        """The graph as data: what its builder's `definition` says, and its identity."""
        return define(self, self.identity)

    def owns(self, checkpoint: Checkpoint) -> bool:
        """Whether this graph takes on the thread of this row: its own, one of no graph, or one to migrate."""
        written, own = checkpoint.graph, self.identity
        if written is None or written == own:
            return True
        return own is not None and written.id == own.id and self.migration is not None
