"""A thread query as a condition on rows, for stores that filter by reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .instants import instant_text
from .query import decode_cursor
from .record import Checkpoint, ThreadState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .query import ThreadQuery


def matcher(query: ThreadQuery) -> Callable[[Checkpoint], bool]:
    """Whether a thread whose latest row this is belongs to the answer, cursor and all."""
    after = None if query.updated_after is None else instant_text(query.updated_after)
    before = None if query.updated_before is None else instant_text(query.updated_before)
    due_by = None if query.due_by is None else instant_text(query.due_by)
    below = None if query.cursor is None else decode_cursor(query.cursor)

    def matches(row: Checkpoint) -> bool:
        return (
            (not query.states or row.state in query.states)
            and (not query.metadata or _has_pairs(row.metadata or {}, query.metadata))
            and (after is None or row.updated_at > after)
            and (before is None or row.updated_at < before)
            and (due_by is None or _is_due(row, due_by))
            and (query.graph_id is None or _has_graph(row, query.graph_id, query.graph_version))
            and (below is None or (row.updated_at, row.thread_id) < below)
        )

    return matches


def _has_pairs(metadata: Mapping[str, str], pairs: Mapping[str, str]) -> bool:
    return all(metadata.get(key) == value for key, value in pairs.items())


def _is_due(row: Checkpoint, due_by: str) -> bool:
    wait = row.innermost.wait
    return (
        row.state is ThreadState.INTERRUPTED
        and wait is not None
        and wait.wake_at is not None
        and wait.wake_at <= due_by
    )


def _has_graph(row: Checkpoint, graph_id: str, version: str | None) -> bool:
    graph = row.graph
    return graph is not None and graph.id == graph_id and (version is None or graph.version == version)
