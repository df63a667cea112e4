"""The rows of one level: what is the same on all of them, and what each adds. Pure but for the time.

Owns a level's name in rows, its graph's identity, its metadata and the schema version; knows
no store. Under EveryNode, and wherever a hop limit holds, rows count hops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from outcrop.stores.codec import schema_version_for
from outcrop.stores.instants import instant_text
from outcrop.stores.record import Checkpoint, Decision, GraphIdentity, Status, Wait, WaitKind

from .composites import Subgraph
from .metadata import HOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .clock import Clock
    from .compiled import CompiledGraph
    from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRows:
    """Builds a level's rows; `name` is the thread's ID, or the subgraph node's for a child."""

    name: str
    identity: GraphIdentity | None
    clock: Clock
    caller: Mapping[str, str]
    counts_hops: bool

    def row(
        self,
        status: Status,
        suspended: str | None,
        following: str | None,
        at: Position,
        *,
        hops: int | None = None,
        state: str | None = None,
        wait: Wait | None = None,
        nested: Checkpoint | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """A row as of now, with the position's state, hops and decision unless told otherwise."""
        metadata = dict(self.caller)
        if self.counts_hops:
            metadata[HOPS] = str(at.hops if hops is None else hops)
        if extra:
            metadata.update(extra)
        decision = at.decision
        row = Checkpoint(
            schema_version=_flat_version(
                status, wait is not None, decision is not None, self.identity is not None
            ),
            thread_id=self.name,
            status=status,
            suspended_node=suspended,
            next_node=following,
            frozen_state=at.state if state is None else state,
            metadata=metadata or None,
            created_at=instant_text(self.clock.now()),
            decision=decision,
            wait=wait,
            graph=self.identity,
            nested=nested,
        )
        return row if nested is None else versioned(row)

    def below(self, node: str, graph: CompiledGraph[Any], *, durable: bool) -> LevelRows:
        """Those of the child that the node is."""
        return LevelRows(
            name=node,
            identity=graph.identity,
            clock=self.clock,
            caller=self.caller,
            counts_hops=durable or graph.max_node_hops is not None,
        )

    def standing(
        self, graph: CompiledGraph[Any], at: Position, status: Status, *, durable: bool
    ) -> Checkpoint | None:
        """The row of the child that the level was to go on inside of, where it stands."""
        inner, composite = at.nested, graph.composites.get(at.node)
        if inner is None or not isinstance(composite, Subgraph):
            return None
        below = self.below(at.node, composite.child, durable=durable)
        nested = below.standing(composite.child, inner, status, durable=durable)
        return below.row(status, inner.node, inner.node, inner, nested=nested)

    def claim(
        self,
        graph: CompiledGraph[Any],
        loaded: Checkpoint,
        at: Position,
        *,
        extra: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """The `running` row with which a durable run takes on the `loaded` one, to go on from `at`.

        Every level that the run goes on inside of is claimed; `extra` is for the outermost.
        """
        nested, composite = None, graph.composites.get(at.node)
        if at.nested is not None and loaded.nested is not None and isinstance(composite, Subgraph):
            below = self.below(at.node, composite.child, durable=True)
            nested = below.claim(composite.child, loaded.nested, at.nested)
        return self.row(Status.RUNNING, loaded.suspended_node, at.node, at, nested=nested, extra=extra)


@cache
def _flat_version(status: Status, waits: bool, decided: bool, identified: bool) -> str:  # noqa: FBT001 - flags of a table
    """The schema version of a row with nothing nested; building the row twice would cost a save more."""
    return schema_version_for(
        Checkpoint(
            schema_version="",
            thread_id="",
            status=status,
            suspended_node=None,
            next_node=None,
            frozen_state="",
            metadata=None,
            created_at="",
            wait=Wait(WaitKind.TIMER) if waits else None,
            decision=Decision("", is_approved=True, reviewer="", overrides={}, decided_at="")
            if decided
            else None,
            graph=GraphIdentity("") if identified else None,
        )
    )


def versioned(row: Checkpoint) -> Checkpoint:
    """The row with the schema version that its content asks for."""
    version = schema_version_for(row)
    return row if row.schema_version == version else replace(row, schema_version=version)


def each_level(row: Checkpoint, change: Callable[[Checkpoint], Checkpoint]) -> Checkpoint:
    """The row with every level changed, innermost first, and its schema versions put right."""
    nested = None if row.nested is None else each_level(row.nested, change)
    return versioned(change(replace(row, nested=nested)))
