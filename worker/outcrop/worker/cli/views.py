"""Rows of a store as what the command shows of them. Pure.

The keys of the JSON documents are stable: add, never rename. Frozen states are checked to
be JSON and then shown as they stand, so no number loses a digit on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from outcrop.engine.metadata import RECOVERIES
from outcrop.stores import codec
from outcrop.stores.record import ThreadState, WaitKind

from .difference import raw_json
from .terminal import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outcrop.engine.questions import Question
    from outcrop.stores import (
        Checkpoint,
        Decision,
        GraphIdentity,
        Lease,
        Row,
        ThreadSummary,
        UnreadableThread,
        Wait,
    )

Document: TypeAlias = "dict[str, object]"

_GOING_ON = frozenset(
    {ThreadState.INTERRUPTED, ThreadState.FAILED, ThreadState.CANCELLED, ThreadState.RUNNING}
)


def thread_document(thread: ThreadSummary) -> Document:
    """One thread of a listing."""
    return {
        "thread_id": thread.thread_id,
        "state": thread.state.value,
        "status": thread.status.value,
        "sequence": thread.sequence,
        "suspended_node": thread.suspended_node,
        "next_node": thread.next_node,
        "waiting_at": list(thread.waiting_at),
        "wait": wait_document(thread.wait),
        "graph": graph_document(thread.graph),
        "recoveries": recoveries(thread.metadata),
        "metadata": dict(thread.metadata),
        "updated_at": thread.updated_at,
        "schema_version": thread.schema_version,
    }


def unreadable_document(thread: UnreadableThread) -> Document:
    """A thread whose latest row can't be read."""
    return {
        "thread_id": thread.thread_id,
        "sequence": thread.sequence,
        "updated_at": thread.updated_at,
        "reason": thread.reason,
    }


def thread_row(thread: ThreadSummary) -> tuple[str, ...]:
    """The same as a line of the table under `THREAD_COLUMNS`."""
    recovered = recoveries(thread.metadata)
    return (
        thread.thread_id,
        thread.state.value + (f" (recovered {recovered}x)" if recovered else ""),
        "/".join(filter(None, thread.waiting_at)) or "-",
        str(thread.sequence),
        wait_text(thread.wait) if thread.state is ThreadState.INTERRUPTED else "-",
        graph_text(thread.graph),
        thread.updated_at,
    )


THREAD_COLUMNS = ("THREAD", "STATE", "NODE", "SEQUENCE", "WAITS FOR", "GRAPH", "UPDATED")


def checkpoint_document(row: Row) -> Document:
    """One checkpoint, without its state."""
    checkpoint = row.checkpoint
    return {
        "sequence": row.sequence,
        "status": checkpoint.status.value,
        "suspended_node": checkpoint.suspended_node,
        "next_node": checkpoint.next_node,
        "waiting_at": list(checkpoint.waiting_at),
        "wait": wait_document(checkpoint.innermost.wait),
        "graph": graph_document(checkpoint.graph),
        "recoveries": recoveries(checkpoint.metadata or {}),
        "metadata": dict(checkpoint.metadata or {}),
        "created_at": checkpoint.created_at,
        "resumed_at": checkpoint.resumed_at,
        "schema_version": checkpoint.schema_version,
    }


def checkpoint_row(row: Row) -> tuple[str, ...]:
    """The same as a line of the timeline under `CHECKPOINT_COLUMNS`."""
    checkpoint = row.checkpoint
    return (
        str(row.sequence),
        checkpoint.status.value + (" (resumed)" if checkpoint.resumed_at is not None else ""),
        "/".join(filter(None, checkpoint.waiting_at)) or "-",
        resume_point(checkpoint) or "-",
        checkpoint.updated_at,
    )


CHECKPOINT_COLUMNS = ("SEQUENCE", "STATUS", "NODE", "NEXT NODE", "TIME")


def inspection_document(row: Row, lease: Lease | None, questions: Sequence[Question]) -> Document:
    """A thread's latest checkpoint in full, its lease, what it asks, and the length of its log."""
    checkpoint = row.checkpoint
    return {
        "thread_id": checkpoint.thread_id,
        "state": checkpoint.state.value,
        "checkpoints": row.sequence + 1,
        "lease": lease_document(lease),
        **checkpoint_document(row),
        "questions": [
            {"id": question.id, "path": question.path, "payload": question.payload} for question in questions
        ],
        "decision": decision_document(checkpoint.innermost.decision),
        "frozen_state": raw_json(checkpoint.frozen_state),
        "nested": None if checkpoint.nested is None else raw_json(codec.encode(checkpoint.nested)),
    }


def inspection_fields(row: Row, lease: Lease | None, questions: Sequence[Question]) -> list[tuple[str, str]]:
    """The same as names and values."""
    checkpoint = row.checkpoint
    recovered = recoveries(checkpoint.metadata or {})
    return [
        ("thread", checkpoint.thread_id),
        ("state", checkpoint.state.value),
        ("node", "/".join(filter(None, checkpoint.waiting_at)) or "-"),
        ("next node", resume_point(checkpoint) or "-"),
        ("waits for", wait_text(checkpoint.innermost.wait) if is_waiting(checkpoint) else "-"),
        *((f"asks {question.id}", to_json(question.payload)) for question in questions),
        ("graph", graph_text(checkpoint.graph)),
        ("lease", lease_text(lease)),
        ("decision", decision_text(checkpoint.innermost.decision)),
        ("recoveries", str(recovered)),
        ("checkpoints", f"{row.sequence + 1} (latest is sequence {row.sequence})"),
        ("created", checkpoint.created_at),
        ("resumed", checkpoint.resumed_at or "-"),
        ("schema", checkpoint.schema_version),
        *((f"metadata {key}", value) for key, value in sorted((checkpoint.metadata or {}).items())),
        *_state_fields(checkpoint),
    ]


def replay_document(row: Row) -> Document:
    """The thread as of one checkpoint: its state, the decision in effect, where it would go on."""
    checkpoint = row.checkpoint
    return {
        "thread_id": checkpoint.thread_id,
        "sequence": row.sequence,
        "status": checkpoint.status.value,
        "resumes_at": resume_point(checkpoint),
        "decision": decision_document(checkpoint.innermost.decision),
        "frozen_state": raw_json(checkpoint.frozen_state),
        "nested": None if checkpoint.nested is None else raw_json(codec.encode(checkpoint.nested)),
    }


def replay_fields(row: Row) -> list[tuple[str, str]]:
    """The same as names and values."""
    checkpoint = row.checkpoint
    return [
        ("thread", checkpoint.thread_id),
        ("sequence", str(row.sequence)),
        ("status", checkpoint.status.value),
        ("resumes at", resume_point(checkpoint) or "- (the thread is finished)"),
        ("decision", decision_text(checkpoint.innermost.decision)),
        *_state_fields(checkpoint),
    ]


def resume_point(checkpoint: Checkpoint) -> str | None:
    """The node that a resume or a recovery would run next, as a path; None for a finished thread."""
    *outer, last = checkpoint.levels()
    if ThreadState(checkpoint.status.value) not in _GOING_ON or last.next_node is None:
        return None
    return "/".join([*(level.suspended_node or "" for level in outer), last.next_node])


def recoveries(metadata: Mapping[str, str]) -> int:
    """How often the thread was recovered since a node last committed."""
    text = metadata.get(RECOVERIES, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def is_waiting(checkpoint: Checkpoint) -> bool:
    """Whether somebody or something has to answer the thread."""
    return checkpoint.state is ThreadState.INTERRUPTED


def wait_text(wait: Wait | None) -> str:
    """Who or what an interrupted thread waits for."""
    if wait is None:
        return wait_phrase(WaitKind.HUMAN, None, None)
    return wait_phrase(wait.kind, wait.event_type, wait.wake_at)


def wait_phrase(kind: str, event: str | None, wake_at: str | None) -> str:
    """A wait in words, from its parts."""
    whom = {WaitKind.HUMAN: "a person", WaitKind.TIMER: "a timer"}.get(WaitKind(kind), f"event {event}")
    return whom if wake_at is None else f"{whom} until {wake_at}"


def wait_document(wait: Wait | None) -> Document | None:
    """A wait; None is a person without a timeout where the thread is interrupted."""
    if wait is None:
        return None
    return {"kind": wait.kind.value, "event": wait.event_type, "wake_at": wait.wake_at}


def graph_text(graph: GraphIdentity | None) -> str:
    """`ID@VERSION`, `ID` or a dash."""
    if graph is None:
        return "-"
    return graph.id if graph.version is None else f"{graph.id}@{graph.version}"


def graph_document(graph: GraphIdentity | None) -> Document | None:
    """The identity of the graph that wrote a row."""
    return None if graph is None else {"id": graph.id, "version": graph.version}


def lease_text(lease: Lease | None) -> str:
    """Who holds the thread, and until when."""
    return (
        "free"
        if lease is None
        else f"{lease.owner} until {lease.expires_at:%Y-%m-%dT%H:%M:%S.%fZ} (token {lease.token})"
    )


def lease_document(lease: Lease | None) -> Document | None:
    """A live lease."""
    if lease is None:
        return None
    return {
        "owner": lease.owner,
        "token": lease.token,
        "expires_at": f"{lease.expires_at:%Y-%m-%dT%H:%M:%S.%fZ}",
    }


def decision_text(decision: Decision | None) -> str:
    """What was decided, where, by whom."""
    if decision is None:
        return "-"
    verdict = "approved" if decision.is_approved else "rejected"
    overrides = f", overriding {', '.join(decision.overrides)}" if decision.overrides else ""
    by = decision.reviewer or "nobody named"
    return f"{decision.boundary} {verdict} by {by} at {decision.decided_at}{overrides}"


def decision_document(decision: Decision | None) -> Document | None:
    """A decision in effect."""
    encoded = codec.encode_decision(decision)
    return None if encoded is None else {**codec.parse(encoded, "a decision")}


def _state_fields(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    levels = list(checkpoint.levels())
    if len(levels) == 1:
        return [("frozen state", checkpoint.frozen_state)]
    paths = ["/".join(filter(None, checkpoint.waiting_at[:depth])) for depth in range(len(levels))]
    return [
        (f"frozen state {path}".rstrip(), level.frozen_state)
        for path, level in zip(paths, levels, strict=True)
    ]
