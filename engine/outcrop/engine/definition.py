"""A graph as data: what it is made of, without what its nodes do. Plain values and their JSON.

Owns the exported format (engine.md 1.5) and its versions: each level has the lowest that its
own content asks for. A definition may be of a graph that doesn't compile; `structure` says
what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import GraphIdentity, Json

VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0")


class NodeKind(StrEnum):
    """What a node is, when it is more than a function."""

    GROUP = "parallel_group"
    SUBGRAPH = "subgraph"
    MAP = "map"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class BranchDefinition:
    """A branch of a group."""

    name: str
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinDefinition:
    """How a group or a map is decided, when not by everything having to succeed."""

    policy: str
    count: int | None = None
    condition: str | None = None
    partial: str = "fail_group"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitDefinition:
    """What a wait node waits for; spans are in whole milliseconds."""

    kind: str
    event_type: str | None = None
    delay_ms: int | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InterruptDefinition:
    """A person's answer is waited for after the node."""

    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDefinition:
    """A node: what is there depends on its kind."""

    name: str
    metadata: Mapping[str, str] | None = None
    kind: NodeKind | None = None
    branches: tuple[BranchDefinition, ...] | None = None
    graph: GraphDefinition | None = None
    join: JoinDefinition | None = None
    wait: WaitDefinition | None = None
    interrupt: InterruptDefinition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeDefinition:
    """A way from node to node; `condition` names a route out of trouble (`on_failure`, …)."""

    from_: str
    to: str
    guarded: bool
    condition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDefinition:
    """One level of a graph."""

    entry_point: str
    nodes: tuple[NodeDefinition, ...]
    edges: tuple[EdgeDefinition, ...]
    identity: GraphIdentity | None = None
    schema_version: str

    def to_json(self) -> str:
        """The definition as indented JSON text."""
        return orjson.dumps(as_json(self), option=orjson.OPT_INDENT_2).decode()


def version_for(nodes: tuple[NodeDefinition, ...], identity: GraphIdentity | None) -> str:
    """The lowest version of the format that a level of these nodes fits."""
    kinds = {node.kind for node in nodes}
    if any(node.interrupt is not None for node in nodes):
        return "1.6.0"
    if identity is not None:
        return "1.5.0"
    if NodeKind.WAIT in kinds:
        return "1.4.0"
    if NodeKind.MAP in kinds:
        return "1.3.0"
    if any(node.join is not None for node in nodes):
        return "1.2.0"
    return "1.0.0" if kinds <= {None} else "1.1.0"


def as_json(definition: GraphDefinition) -> dict[str, Json]:
    """The definition as JSON values."""
    level: dict[str, Json] = {"schema_version": definition.schema_version}
    if definition.identity is not None:
        level["identity"] = {"id": definition.identity.id, "version": definition.identity.version}
    level["entry_point"] = definition.entry_point
    level["nodes"] = [_node(node) for node in definition.nodes]
    level["edges"] = [
        {"from": edge.from_, "to": edge.to, "guarded": edge.guarded, "condition": edge.condition}
        for edge in definition.edges
    ]
    return level


def _node(node: NodeDefinition) -> dict[str, Json]:
    told: dict[str, Json] = {"name": node.name, "metadata": _metadata(node.metadata)}
    if node.kind is not None:
        told["kind"] = node.kind.value
    if node.branches is not None:
        told["branches"] = [
            {"name": branch.name, "metadata": _metadata(branch.metadata)} for branch in node.branches
        ]
    if node.graph is not None:
        told["graph"] = as_json(node.graph)
    if (join := node.join) is not None:
        told["join"] = {
            "policy": join.policy,
            "count": join.count,
            "condition": join.condition,
            "partial": join.partial,
        }
    if (wait := node.wait) is not None:
        told["wait"] = {
            "kind": wait.kind,
            "event_type": wait.event_type,
            "delay_ms": wait.delay_ms,
            "timeout_ms": wait.timeout_ms,
        }
    if node.interrupt is not None:
        told["interrupt"] = {"timeout_ms": node.interrupt.timeout_ms}
    return told


def _metadata(metadata: Mapping[str, str] | None) -> dict[str, Json] | None:
    return dict(sorted(metadata.items())) if metadata else None
