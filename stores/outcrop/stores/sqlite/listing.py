"""A thread query as SQL conditions over the heads, with the parameters they take.

Every text here is a constant; what a caller brings is only ever a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.instants import instant_text
from outcrop.stores.query import decode_cursor
from outcrop.stores.record import ThreadState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcrop.stores.query import ThreadQuery

_PAIR = "EXISTS (SELECT 1 FROM json_each(h.metadata) WHERE key = ? AND value = ?)"
_ORDER = "ORDER BY h.updated_at DESC, h.thread_id DESC LIMIT ?"


def listing(select: str, query: ThreadQuery) -> tuple[str, list[str | int]]:
    """The whole statement, one thread longer than the page, and its parameters."""
    conditions: list[str] = []
    parameters: list[str | int] = []
    for condition, values in _conditions(query):
        conditions.append(condition)
        parameters.extend(values)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"{select} {where} {_ORDER}", [*parameters, query.limit + 1]


def _conditions(query: ThreadQuery) -> Iterator[tuple[str, tuple[str, ...]]]:
    if query.states:
        marks = ", ".join("?" * len(query.states))
        yield f"h.state IN ({marks})", tuple(sorted(state.value for state in query.states))
    for pair in query.metadata.items():
        yield _PAIR, pair
    if query.updated_after is not None:
        yield "h.updated_at > ?", (instant_text(query.updated_after),)
    if query.updated_before is not None:
        yield "h.updated_at < ?", (instant_text(query.updated_before),)
    if query.due_by is not None:
        due = (ThreadState.INTERRUPTED.value, instant_text(query.due_by))
        yield "h.state = ? AND h.wake_at <= ?", due
    if query.graph_id is not None:
        yield "h.graph_id = ?", (query.graph_id,)
    if query.graph_version is not None:
        yield "h.graph_version = ?", (query.graph_version,)
    if query.cursor is not None:
        yield "(h.updated_at, h.thread_id) < (?, ?)", decode_cursor(query.cursor)
