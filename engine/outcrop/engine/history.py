"""A thread's log as the tree that it is: which row hangs on which, and which branch is the newest.

The log only ever grows, and its newest row is the thread's latest wherever it hangs. A row
hangs on the one before it, unless a note says on which, or a fresh run wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from outcrop.stores.record import Note, NoteKind, Status

from .metadata import recoveries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outcrop.stores.port import Store
    from outcrop.stores.record import Checkpoint, Row

PAGE = 1000


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A row and the sequence of the one that it hangs on; None where a run began."""

    sequence: int
    checkpoint: Checkpoint
    parent: int | None


@dataclass(frozen=True, slots=True)
class HistoryTree:
    """The same by parents: `roots` and `children` are in the order written."""

    entries: Mapping[int, HistoryEntry]
    roots: tuple[int, ...]
    children: Mapping[int, tuple[int, ...]]

    @property
    def current(self) -> frozenset[int]:
        """The rows from the latest one back to where its run began: the branch that goes on."""
        line = set[int]()
        at = max(self.entries, default=None)
        while at is not None and at not in line:
            line.add(at)
            at = self.entries[at].parent if at in self.entries else None
        return frozenset(line)


def parent_note(sequence: int) -> Note:
    """The note of a row that hangs on an earlier one than the last."""
    return Note(NoteKind.PARENT, "", orjson.dumps({"sequence": sequence}).decode())


async def history(store: Store, thread_id: str) -> tuple[HistoryEntry, ...]:
    """The whole log of a thread, oldest row first; empty for an unknown thread."""
    entries = list[HistoryEntry]()
    after: int | None = None
    while True:
        page = await store.get_log(thread_id, after=after, limit=PAGE)
        if page.entries:
            notes = await store.get_notes(page.entries)
            entries += [
                HistoryEntry(row.sequence, row.checkpoint, _parent(row, notes)) for row in page.entries
            ]
        if page.next_after is None:
            return tuple(entries)
        after = page.next_after


def tree_of(entries: Sequence[HistoryEntry]) -> HistoryTree:
    """The tree of a whole history."""
    known = {entry.sequence: entry for entry in entries}
    children: dict[int, list[int]] = {}
    roots = list[int]()
    for entry in entries:
        if entry.parent is None or entry.parent not in known:
            roots.append(entry.sequence)
        else:
            children.setdefault(entry.parent, []).append(entry.sequence)
    return HistoryTree(known, tuple(roots), {at: tuple(below) for at, below in children.items()})


def _parent(row: Row, notes: Mapping[int, tuple[Note, ...]]) -> int | None:
    told = _told_parent(notes.get(row.sequence, ()))
    if told is not None:
        return told
    return None if row.sequence == 0 or _starts(row.checkpoint) else row.sequence - 1


def _starts(row: Checkpoint) -> bool:
    """Whether a fresh run wrote the row, and no recovery of one that died before its first node committed."""
    return row.status is Status.RUNNING and row.suspended_node is None and not recoveries_of(row)


def _told_parent(notes: Iterable[Note]) -> int | None:
    for note in notes:
        if note.kind is NoteKind.PARENT:
            parent: int = orjson.loads(note.value)["sequence"]
            return parent
    return None
