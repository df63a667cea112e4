"""Taking on a thread's row: every level by its own graph, migrated where a version says how.

Owns the walk down a row beside the graphs that its levels belong to, and the rule of
identities on the way. A level below a node that is no subgraph is left as it is, for the
checks that follow to refuse.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .composites import Subgraph
from .identity import identity_refusal, migration_refusal
from .rows import versioned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcrop.stores.record import Checkpoint

    from .compiled import CompiledGraph


class NotOurs(Exception):
    """A level is of another graph, or of a version that can't be migrated; `str()` says which."""


def adopted(graph: CompiledGraph[Any], row: Checkpoint, thread_id: str) -> Checkpoint:
    """The row as this graph takes it on; the same one when nothing was migrated.

    Raises `NotOurs`.
    """
    return _adopted(graph, row, thread_id, ())


def _adopted(
    graph: CompiledGraph[Any], level: Checkpoint, thread_id: str, path: tuple[str, ...]
) -> Checkpoint:
    refusal = identity_refusal(graph.identity, level, thread_id=thread_id, at=at_level(path))
    if refusal is not None:
        level = _migrated(graph, level, thread_id, at_level(path), refusal)
    if level.nested is None:
        return level
    child = child_graph(graph, level)
    if child is None:
        return level
    nested = _adopted(child, level.nested, thread_id, (*path, inner_node(level)))
    return level if nested is level.nested else versioned(replace(level, nested=nested))


def _migrated(
    graph: CompiledGraph[Any], level: Checkpoint, thread_id: str, at: str, refusal: str
) -> Checkpoint:
    own, written = graph.identity, level.graph
    if own is None or written is None or own.id != written.id or graph.migration is None:
        raise NotOurs(refusal)
    try:
        migrated = graph.migration(level)
    except Exception as error:
        told = f"failed: {type(error).__name__}: {error}"
        raise NotOurs(migration_refusal(own, written, told, thread_id=thread_id, at=at)) from error
    if migrated is None:
        raise NotOurs(migration_refusal(own, written, "refused it", thread_id=thread_id, at=at))
    return versioned(replace(migrated, thread_id=level.thread_id, nested=level.nested, graph=own))


def at_level(path: tuple[str, ...]) -> str:
    """Where a level is, as refusals say it: nothing for the outermost, else ` at level [Work/Inner]`."""
    return f" at level [{'/'.join(path)}]" if path else ""


def inner_node(level: Checkpoint) -> str:
    """The node that a level with something nested is inside of."""
    return level.suspended_node or level.next_node or ""


def child_graph(graph: CompiledGraph[Any], level: Checkpoint) -> CompiledGraph[Any] | None:
    """The graph of what the level nests, or None where this graph has no subgraph."""
    composite = graph.composites.get(inner_node(level))
    return composite.child if isinstance(composite, Subgraph) else None


def levels_of(
    graph: CompiledGraph[Any], row: Checkpoint
) -> Iterator[tuple[tuple[str, ...], CompiledGraph[Any] | None, Checkpoint]]:
    """Each level's path, graph and row, outermost first; no graph below a node that is no subgraph."""
    path: tuple[str, ...] = ()
    at: CompiledGraph[Any] | None = graph
    for level in row.levels():
        yield path, at, level
        at = None if at is None else child_graph(at, level)
        path = (*path, inner_node(level))
