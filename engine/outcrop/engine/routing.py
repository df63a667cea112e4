"""Where a thread goes next: edges, boundaries and waits of one level. Pure.

Owns the choice of the next node and of what a thread waits for after a commit. Predicates
and `until` are the author's code: what they raise passes through, as their node's failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from outcrop.stores.instants import instant_text_rounded_up
from outcrop.stores.record import Wait, WaitKind

from .errors import Fatal
from .node import EventWait, TimerWait

if TYPE_CHECKING:
    from datetime import datetime

    from .compiled import CompiledGraph

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class NoWayOn:
    """The node has edges, and none of them matched."""


def next_node(graph: CompiledGraph[S], node: str, state: S) -> str | NoWayOn | None:
    """The first edge of `node` that matches `state`; None when it has no edges."""
    edges = graph.edges.get(node)
    if not edges:
        return None
    for edge in edges:
        if edge.when is None or edge.when(state):
            return edge.to
    return NoWayOn()


def freezes(graph: CompiledGraph[S], node: str) -> bool:
    """Whether a thread stops and waits after `node` commits."""
    return node in graph.boundaries or node in graph.waits


def wait_after(graph: CompiledGraph[S], node: str, state: S, now: datetime) -> Wait | None:
    """What the thread waits for at a freezing `node`; None for a person without a timeout."""
    boundary = graph.boundaries.get(node)
    if boundary is not None:
        if boundary.timeout is None:
            return None
        return Wait(WaitKind.HUMAN, None, instant_text_rounded_up(now + boundary.timeout))
    match graph.waits[node]:
        case EventWait(event=event, timeout=timeout):
            return Wait(
                WaitKind.EVENT, event, None if timeout is None else instant_text_rounded_up(now + timeout)
            )
        case TimerWait() as timer:
            return Wait(WaitKind.TIMER, None, instant_text_rounded_up(_due(timer, node, state, now)))


def _due(timer: TimerWait[S], node: str, state: S, now: datetime) -> datetime:
    if timer.until is None:
        return now + cast("timedelta", timer.delay)
    due = timer.until(state)
    if due.tzinfo is None:
        raise Fatal(f"timer '{node}' has a time without a time zone: {due.isoformat()}")
    return due


if TYPE_CHECKING:
    from datetime import timedelta
