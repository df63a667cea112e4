"""Who or what answers a waiting thread, and whether it may. Pure.

Owns the four kinds of wake and the words for a wake that doesn't fit the wait. A thread's
wait is what its row says; the graph is asked only whether it still knows such a wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from outcrop.stores.record import Status, Wait, WaitKind

from .node import EventWait, TimerWait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import Checkpoint, Json

    from .compiled import CompiledGraph
    from .options import Answer

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class HumanWake:
    """A person answers a boundary, or retries a failed or cancelled thread."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class EventWake:
    """An event answers a wait for it."""

    event: str
    payload: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class TimerWake:
    """A timer is due."""


@dataclass(frozen=True, slots=True)
class TimeoutWake:
    """A boundary or an event wait has waited for too long."""


Wake: TypeAlias = HumanWake | EventWake | TimerWake | TimeoutWake


def where(row: Checkpoint) -> str:
    """The waiting level's full path, as messages have it: `[work/approve]`."""
    return f"[{'/'.join(row.waiting_at)}]"


def waited_for(wait: Wait | None) -> str:
    """What a thread waits for, in words."""
    match wait:
        case Wait(kind=WaitKind.EVENT, event_type=event):
            return f"event '{event}'"
        case Wait(kind=WaitKind.TIMER):
            return "a timer"
        case _:
            return "a human"


def due_wake(row: Checkpoint) -> TimerWake | TimeoutWake:
    """What being due means for this row: its timer fires, or its timeout passes."""
    wait = row.innermost.wait
    return TimerWake() if wait is not None and wait.kind is WaitKind.TIMER else TimeoutWake()


def not_due(row: Checkpoint, thread_id: str, now: str) -> str | None:
    """Why the thread isn't due at `now` (a row's time text), or None when it is."""
    if row.status is not Status.INTERRUPTED:
        return f"thread '{thread_id}' is not due: its latest checkpoint is {row.state}"
    wait = row.innermost.wait
    waiting = f"it is waiting for {waited_for(wait)} at {where(row)}"
    if wait is None or wait.wake_at is None:
        return f"thread '{thread_id}' is not due: {waiting}, with no timeout"
    if wait.wake_at > now:
        return f"thread '{thread_id}' is not due until {wait.wake_at}: {waiting}"
    return None


def mismatch(graph: CompiledGraph[S], row: Checkpoint, wake: Wake, thread_id: str) -> str | None:
    """Why this wake doesn't answer what the thread waits for, or None when it does."""
    wait = row.innermost.wait if row.status is Status.INTERRUPTED else None
    match wake:
        case HumanWake():
            return _human_mismatch(row, wait, thread_id)
        case EventWake(event=event):
            return _event_mismatch(graph, row, wait, event, thread_id)
        case TimerWake():
            return _timer_mismatch(graph, row, wait, thread_id)
        case TimeoutWake():
            return _timeout_mismatch(graph, row, wait, thread_id)


def _human_mismatch(row: Checkpoint, wait: Wait | None, thread_id: str) -> str | None:
    if wait is None or wait.kind is WaitKind.HUMAN:
        return None
    waiting = f"thread '{thread_id}' is waiting for {waited_for(wait)} at {where(row)}"
    if wait.kind is WaitKind.EVENT:
        return f"{waiting}: only a signal of that event answers it"
    return f"{waiting} until {wait.wake_at}: it wakes when due"


def _event_mismatch(
    graph: CompiledGraph[S], row: Checkpoint, wait: Wait | None, event: str, thread_id: str
) -> str | None:
    refused = f"thread '{thread_id}' is not waiting for event '{event}'"
    if row.status is not Status.INTERRUPTED:
        return f"{refused}: its latest checkpoint is {row.status}"
    if wait is None or wait.kind is not WaitKind.EVENT or wait.event_type != event:
        return f"{refused}: it is waiting for {waited_for(wait)} at {where(row)}"
    known = graph.waits.get(row.innermost.suspended_node or "")
    if not (isinstance(known, EventWait) and known.event == event):
        unknown = f"which is not a wait for event '{event}' in this graph"
        return f"thread '{thread_id}' waits at {where(row)}, {unknown}"
    return None


def _timer_mismatch(
    graph: CompiledGraph[S], row: Checkpoint, wait: Wait | None, thread_id: str
) -> str | None:
    if wait is None or wait.kind is not WaitKind.TIMER:
        return f"thread '{thread_id}' is not waiting for a timer at {where(row)}"
    if not isinstance(graph.waits.get(row.innermost.suspended_node or ""), TimerWait):
        return f"thread '{thread_id}' waits at {where(row)}, which is not a timer in this graph"
    return None


def _timeout_mismatch(
    graph: CompiledGraph[S], row: Checkpoint, wait: Wait | None, thread_id: str
) -> str | None:
    if wait is None or wait.kind is WaitKind.TIMER or wait.wake_at is None:
        return f"thread '{thread_id}' is not waiting with a timeout at {where(row)}"
    if not has_timeout(graph, row.innermost.suspended_node or ""):
        return f"thread '{thread_id}' waits at {where(row)}, which has no timeout in this graph"
    return None


def has_timeout(graph: CompiledGraph[S], node: str) -> bool:
    """Whether a thread that waits at `node` can be timed out in this graph."""
    boundary, wait = graph.boundaries.get(node), graph.waits.get(node)
    if boundary is not None:
        return boundary.timeout is not None
    return isinstance(wait, EventWait) and wait.timeout is not None


def timeout_route(graph: CompiledGraph[S], node: str) -> str | None:
    """Where a thread that timed out at `node` goes; None ends it."""
    boundary, wait = graph.boundaries.get(node), graph.waits.get(node)
    if boundary is not None:
        return boundary.on_timeout
    return wait.on_timeout if isinstance(wait, EventWait) else None
