"""The notes that a run carries from row to row, until the node that they belong to commits.

Owns which notes go with the next row: answers, results of finished branches and questions of
the nodes that the thread is in the middle of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.record import Note, NoteKind

from .questions import answer_note, answers_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .questions import Reply


class OpenNotes:
    """One run's open notes, by kind and path."""

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        carried = [note for note in notes if note.kind in (NoteKind.ANSWER, NoteKind.FINISHED)]
        self._notes = {(note.kind, note.path): note for note in carried}
        self._answers = answers_in(carried)

    def put(self, note: Note) -> None:
        """Carry this one too."""
        self._notes[note.kind, note.path] = note

    def answer(self, answers: Mapping[str, tuple[Reply, ...]]) -> None:
        """Carry these answers, by path."""
        self._answers = dict(answers)
        for path, replies in answers.items():
            self.put(answer_note(path, replies))

    def answers(self, path: str) -> tuple[Reply, ...]:
        """What the node or branch at `path` was answered, in the order of its questions."""
        return self._answers.get(path, ())

    def forget_finished(self) -> None:
        """The states that the kept results came from are no more."""
        self._notes = {key: note for key, note in self._notes.items() if note.kind is not NoteKind.FINISHED}

    def finished(self, path: str) -> str | None:
        """The kept result of the branch or item at `path`: its state as JSON text."""
        note = self._notes.get((NoteKind.FINISHED, path))
        return None if note is None else note.value

    def close(self, path: str) -> None:
        """What the node at `path` and its branches left is done with."""
        self._forget(self.of(path))

    def close_level(self, prefix: str) -> None:
        """A node below `prefix` committed: what its level left is done with, a dead run's fallback too."""
        self._forget(tuple(note for note in self._notes.values() if note.path.startswith(prefix)))

    def of(self, path: str) -> tuple[Note, ...]:
        """What the node at `path`, and all that is below it, left."""
        below = f"{path}/"
        return tuple(
            note for note in self._notes.values() if note.path == path or note.path.startswith(below)
        )

    def restore(self, path: str, notes: Sequence[Note]) -> None:
        """Go back to these notes for the node at `path`, and all that is below it: it begins again."""
        self.close(path)
        for note in notes:
            self.put(note)
        self._answers.update(answers_in(notes))

    def _forget(self, notes: Iterable[Note]) -> None:
        for note in notes:
            del self._notes[note.kind, note.path]
            self._answers.pop(note.path, None)

    def all(self) -> tuple[Note, ...]:
        """What goes with the next row."""
        return tuple(self._notes.values())
