"""A compiled graph: immutable, validated, ready to run threads.

Lookups only; what runs next is `routing`, how it runs is `runner`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import Checkpoint, GraphIdentity

    from .node import Boundary, Edge, EventWait, NodeSpec, TimerWait
    from .options import CheckpointPolicy
    from .state import StateCodec

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph(Generic[S]):
    """What `Graph.compile()` returns.

    A name is in exactly one of `nodes` (it has a handler) and `waits` (it passes the
    state through, then the thread waits). `boundaries` marks nodes only.
    """

    identity: GraphIdentity | None
    policy: CheckpointPolicy
    entry: str
    states: StateCodec[S]
    nodes: Mapping[str, NodeSpec[S]]
    waits: Mapping[str, EventWait | TimerWait[S]]
    edges: Mapping[str, tuple[Edge[S], ...]]
    boundaries: Mapping[str, Boundary]

    def owns(self, checkpoint: Checkpoint) -> bool:
        """Whether the thread of this row is this graph's: of the same identity, or of none."""
        return checkpoint.graph is None or checkpoint.graph == self.identity
