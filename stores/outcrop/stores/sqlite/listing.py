"""A thread query as a SQLite statement, with the parameters it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.heads import conditions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcrop.stores.query import ThreadQuery

_PAIR = "EXISTS (SELECT 1 FROM json_each(h.metadata) WHERE key = {} AND value = {})"
_ORDER = "ORDER BY h.updated_at DESC, h.thread_id DESC LIMIT ?"


def listing(select: str, query: ThreadQuery) -> tuple[str, list[str | int]]:
    """The whole statement, one thread longer than the page, and its parameters."""
    conditions: list[str] = []
    parameters: list[str | int] = []
    for condition, values in _conditions(query):
        conditions.append(condition.format(*"?" * len(values)))
        parameters.extend(values)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"{select} {where} {_ORDER}", [*parameters, query.limit + 1]


def _conditions(query: ThreadQuery) -> Iterator[tuple[str, tuple[str, ...]]]:
    if query.states:
        marks = ", ".join(["{}"] * len(query.states))
        yield f"h.state IN ({marks})", tuple(sorted(state.value for state in query.states))
    for pair in query.metadata.items():
        yield _PAIR, pair
    yield from conditions_of(query)
