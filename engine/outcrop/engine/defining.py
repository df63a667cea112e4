"""From a graph's parts to its definition, for a builder and for a compiled graph. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .composites import Composite, Group, JoinPolicy, Map, Partial, Subgraph
from .definition import (
    BranchDefinition,
    EdgeDefinition,
    GraphDefinition,
    InterruptDefinition,
    JoinDefinition,
    NodeDefinition,
    NodeKind,
    WaitDefinition,
    version_for,
)
from .node import EventWait, TimerWait

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

    from outcrop.stores.record import GraphIdentity

    from .compiled import GraphParts
    from .composites import FanOut
    from .node import Boundary


def define(parts: GraphParts[Any], identity: GraphIdentity | None = None) -> GraphDefinition:
    """The definition of a level of these parts."""
    nodes = tuple(
        _node(
            name,
            parts.waits.get(name),
            parts.composites.get(name),
            parts.boundaries.get(name),
            parts.metadata.get(name),
        )
        for name in parts.names
    )
    return GraphDefinition(
        entry_point=parts.entry,
        nodes=nodes,
        edges=(*_edges(parts), *_routes(parts)),
        identity=identity,
        schema_version=version_for(nodes, identity),
    )


def _node(
    name: str,
    wait: EventWait | TimerWait[Any] | None,
    composite: Composite[Any] | None,
    boundary: Boundary | None,
    metadata: Mapping[str, str] | None,
) -> NodeDefinition:
    kind = branches = graph = join = None
    match composite:
        case Group():
            kind, join = NodeKind.GROUP, _join(composite.fan_out)
            branches = tuple(
                BranchDefinition(branch.name, composite.branch_metadata.get(branch.name))
                for branch in composite.branches
            )
        case Map():
            kind, join = NodeKind.MAP, _join(composite.fan_out)
            graph = composite.child.definition()
        case Subgraph():
            kind, graph = NodeKind.SUBGRAPH, composite.child.definition()
        case None:
            kind = None if wait is None else NodeKind.WAIT
    return NodeDefinition(
        name=name,
        metadata=metadata,
        kind=kind,
        branches=branches,
        graph=graph,
        join=join,
        wait=None if wait is None else _wait(wait),
        interrupt=InterruptDefinition(_milliseconds(boundary.timeout))
        if boundary is not None and wait is None
        else None,
    )


def _join(fan_out: FanOut) -> JoinDefinition | None:
    join, partial = fan_out.join, fan_out.partial
    if join.policy is JoinPolicy.ALL and partial is Partial.FAIL_GROUP:
        return None
    return JoinDefinition(policy=join.policy.value, count=join.count, partial=partial.value)


def _wait(wait: EventWait | TimerWait[Any]) -> WaitDefinition:
    match wait:
        case EventWait():
            return WaitDefinition(kind="event", event_type=wait.event, timeout_ms=_milliseconds(wait.timeout))
        case TimerWait():
            return WaitDefinition(kind="timer", delay_ms=_milliseconds(wait.delay))


def _edges(parts: GraphParts[Any]) -> Iterator[EdgeDefinition]:
    for start, edge in parts.ways:
        yield EdgeDefinition(from_=start, to=edge.to, guarded=edge.when is not None)


def _routes(parts: GraphParts[Any]) -> Iterator[EdgeDefinition]:
    """Ways out of trouble: fallbacks, then rejections, then timeouts, in node order."""
    for name in parts.names:
        node = parts.nodes.get(name)
        if node is not None and node.fallback is not None:
            yield EdgeDefinition(from_=name, to=node.fallback, guarded=True, condition="on_failure")
    for name in parts.names:
        boundary = parts.boundaries.get(name)
        if boundary is not None and boundary.on_reject is not None:
            yield EdgeDefinition(from_=name, to=boundary.on_reject, guarded=True, condition="on_reject")
    for name in parts.names:
        wait = parts.waits.get(name)
        waiting = wait if isinstance(wait, EventWait) else parts.boundaries.get(name)
        if waiting is not None and waiting.on_timeout is not None:
            yield EdgeDefinition(from_=name, to=waiting.on_timeout, guarded=True, condition="on_timeout")


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else round(span.total_seconds() * 1000)
