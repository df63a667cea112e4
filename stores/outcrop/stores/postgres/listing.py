"""A thread query as a Postgres statement, with the parameters it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.codec import encode_metadata
from outcrop.stores.heads import conditions_of

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
    yield from conditions_of(query)
