"""Where people come in: the decision that an answer makes, its overrides, and static interrupts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outcrop.stores.record import Decision

from .composites import Subgraph
from .waits import EventWake, HumanWake

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from outcrop.stores.record import Json

    from .compiled import CompiledGraph
    from .composites import Composite
    from .options import Answer, RunOptions
    from .waits import Wake


def decision_of(answer: Answer, boundary: str, decided_at: str) -> Decision:
    """What rows and nodes are told of the answer, until another boundary is answered."""
    return Decision(
        boundary=boundary,
        is_approved=answer.approved,
        reviewer=answer.by,
        overrides=dict(sorted(overrides_of(HumanWake(answer)).items(), key=lambda item: str(item[0]))),
        decided_at=decided_at,
    )


def overrides_of(wake: Wake) -> Mapping[str, Json]:
    """The top-level fields that this wake lays over the state."""
    match wake:
        case HumanWake(answer=answer):
            return {**answer.overrides, **answer.text_overrides}
        case EventWake(payload=payload):
            return payload
        case _:
            return {}


def answer_refusal(answer: Answer, thread_id: str) -> str | None:
    """Why the answer contradicts itself, or None when it doesn't."""
    for key in sorted(answer.overrides.keys() & answer.text_overrides.keys()):
        return (
            f"cannot resume thread '{thread_id}': override '{key}' is set as both a string and a typed value"
        )
    return None


def interrupts_refusal(graph: CompiledGraph[Any], options: RunOptions) -> str | None:
    """Why a run's static interrupts can't be, or None when they can."""
    for path in sorted(options.interrupt_before | options.interrupt_after):
        if not has_node(graph.nodes, graph.composites, path):
            return f"a run can't be interrupted at '{path}': the graph has no such node"
    return None


def inside(paths: frozenset[str], node: str) -> frozenset[str]:
    """Those of the paths that lead into the node, as they are called there."""
    prefix = f"{node}/"
    return frozenset(path.removeprefix(prefix) for path in paths if path.startswith(prefix))


def has_node(nodes: Container[str], composites: Mapping[str, Composite[Any]], path: str) -> bool:
    """Whether the path leads to a node, through subgraphs only: nothing else can be stopped inside."""
    if path in nodes:
        return True
    name, _, below = path.partition("/")
    composite = composites.get(name)
    return isinstance(composite, Subgraph) and has_node(
        composite.child.nodes, composite.child.composites, below
    )
