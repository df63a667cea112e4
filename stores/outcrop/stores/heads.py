"""A thread query as SQL conditions over the heads `h`: those that every SQL engine has in common.

An adapter adds what its engine has words of its own for (states, metadata), puts its marks for
the `{}`, and cuts the page. Every text here is a constant; what a caller brings is only ever a
parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .instants import instant_text
from .query import decode_cursor
from .record import ThreadState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .query import ThreadQuery


def conditions_of(query: ThreadQuery) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Conditions on times, due times, graphs and the cursor, each with its parameters."""
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
