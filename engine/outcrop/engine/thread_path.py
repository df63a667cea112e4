"""Where a thread has been in its graph and where it stands, by its log. Pure.

Knows rows and names of nodes, and no graph. A log tells what its policy writes: every node
of a durable run, only the stops of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from outcrop.stores.record import Status

from .history import tree_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.stores.record import Checkpoint

    from .history import HistoryEntry

Place: TypeAlias = tuple[str, ...]
"""A node by the names of the levels down to it: `("Work", "Approve")`."""

_WENT_ON = frozenset({Status.RUNNING, Status.INTERRUPTED, Status.COMPLETED})


@dataclass(frozen=True, slots=True)
class ThreadPath:
    """The nodes that a thread has left behind, and the one where it is; None once it has completed."""

    visited: frozenset[Place]
    current: Place | None


def thread_path(entries: Sequence[HistoryEntry]) -> ThreadPath:
    """The path along the branch of the log that goes on; `entries` are the whole history."""
    on_branch = tree_of(entries).current
    visited = set[Place]()
    at: Place | None = None
    was_running = False
    for entry in entries:
        if entry.sequence not in on_branch:
            continue
        row = entry.checkpoint
        now = _place(row)
        follows = was_running and entry.parent == entry.sequence - 1 and row.status is not Status.ENDED
        if follows and at is not None and (now is None or now[: len(at)] != at):
            visited.add(at)  # it was left behind: a subgraph's last node has no row of its own
        committed = _committed(row)
        if committed is not None:
            visited.add(committed)
        at, was_running = now, row.status is Status.RUNNING
    return ThreadPath(frozenset(visited), at)


def _place(row: Checkpoint) -> Place | None:
    """The node that the thread runs next, waits at or stopped at."""
    match row.status:
        case Status.COMPLETED:
            return None
        case Status.RUNNING:
            return tuple(level.next_node for level in row.levels() if level.next_node is not None)
        case _:
            return row.waiting_at


def _committed(row: Checkpoint) -> Place | None:
    """The node whose commit the row tells of; one that names the same node twice is a stop in front of it."""
    inner = row.innermost
    if inner.status not in _WENT_ON or inner.suspended_node in {None, inner.next_node}:
        return None
    return row.waiting_at
