"""A thread query as SQL conditions over the heads, with the parameters they take.

Every text here is a constant; what a caller brings is only ever a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.codec import encode_metadata
from outcrop.stores.instants import instant_text
from outcrop.stores.query import decode_cursor
from outcrop.stores.record import ThreadState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outcrop.stores.query import ThreadQuery


def listing(statements: Mapping[str, str], query: ThreadQuery) -> tuple[str, list[object]]:
    """The whole statement, one thread longer than the page, and its parameters.

    The page is cut from the heads before their rows are looked up, so that a listing costs the
    same among many threads, whatever the planner knows of them.
    """
    conditions: list[str] = []
    parameters: list[object] = []
    for condition, values in _conditions(query):
        marks = [f"${len(parameters) + at}" for at in range(1, len(values) + 1)]
        conditions.append(condition.format(*marks))
        parameters.extend(values)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = f"ORDER BY h.updated_at DESC, h.thread_id DESC LIMIT ${len(parameters) + 1}"
    page = f"{statements['heads']} {where} {order}"
    return f"WITH page AS MATERIALIZED ({page}) {statements['list']}", [*parameters, query.limit + 1]


def _conditions(query: ThreadQuery) -> Iterator[tuple[str, tuple[object, ...]]]:
    if query.states:
        states = sorted(state.value for state in query.states)
        if len(states) == 1:  # an equality walks the index in order; a list of one would be sorted
            yield "h.state = {}", (states[0],)
        else:
            yield "h.state = ANY ({})", (states,)
    if query.metadata:
        yield "h.metadata @> {}", (encode_metadata(query.metadata),)
    if query.updated_after is not None:
        yield "h.updated_at > {}", (instant_text(query.updated_after),)
    if query.updated_before is not None:
        yield "h.updated_at < {}", (instant_text(query.updated_before),)
    if query.due_by is not None:
        due = (ThreadState.INTERRUPTED.value, instant_text(query.due_by))
        yield "h.state = {} AND h.wake_at <= {}", due
    if query.graph_id is not None:
        yield "h.graph_id = {}", (query.graph_id,)
    if query.graph_version is not None:
        yield "h.graph_version = {}", (query.graph_version,)
    if query.cursor is not None:
        yield "(h.updated_at, h.thread_id) < ({}, {})", decode_cursor(query.cursor)
