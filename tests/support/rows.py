"""Rows for the worker's pure parts, made shortly."""

from __future__ import annotations

from typing import Any

from outcrop.stores.record import Checkpoint, GraphIdentity, Row, Status, Wait, WaitKind

NOW = "2026-01-02T03:04:05Z"


def checkpoint(status: str = "running", marks: dict[str, str] | None = None, **more: Any) -> Checkpoint:
    """A row of thread `t` between nodes `a` and `b`."""
    fields: dict[str, Any] = {
        "schema_version": "1.7.0",
        "thread_id": "t",
        "status": Status(status),
        "suspended_node": "a",
        "next_node": "b",
        "frozen_state": '{"amount":5}',
        "metadata": marks,
        "created_at": NOW,
        "graph": GraphIdentity("line", "1"),
    }
    return Checkpoint(**fields | more)


def row(sequence: int, status: str = "running", marks: dict[str, str] | None = None, **more: Any) -> Row:
    return Row(sequence, checkpoint(status, marks, **more))


def event(name: str, wake_at: str | None = None) -> Wait:
    return Wait(WaitKind.EVENT, name, wake_at)


def timer(wake_at: str) -> Wait:
    return Wait(WaitKind.TIMER, None, wake_at)
