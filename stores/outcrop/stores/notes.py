"""Notes on their way into a store and out of it: what every adapter checks, and the order they come back in.

Knows no store. The texts of a note are a caller's, so a refusal names kind and thread, never the text.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from .errors import CorruptRow, InvalidRequest
from .record import Note, NoteKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_BY_KIND_AND_PATH: Final = attrgetter("kind", "path")


def check_notes(thread_id: str, notes: Sequence[Note]) -> None:
    """Raise `InvalidRequest` for a note whose texts aren't Unicode."""
    for note in notes:
        text = f"{note.path}{note.value}"
        if text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{named(thread_id, note)} isn't valid Unicode: {error.reason}") from None


def named(thread_id: str, note: Note) -> str:
    """The note as messages call it."""
    return f"a note '{note.kind}' of thread '{ascii(thread_id)[1:-1]}'"


def by_sequence(found: Iterable[tuple[int, str, str, str]]) -> Mapping[int, tuple[Note, ...]]:
    """Stored notes (sequence, kind, path, value) as the port answers them; raises `CorruptRow`."""
    rows: defaultdict[int, list[Note]] = defaultdict(list)
    for sequence, kind, path, value in found:
        rows[sequence].append(Note(_kind(kind), path, value))
    return {sequence: tuple(sorted(rows[sequence], key=_BY_KIND_AND_PATH)) for sequence in sorted(rows)}


def _kind(text: str) -> NoteKind:
    try:
        return NoteKind(text)
    except ValueError:
        raise CorruptRow(f"this build knows no notes '{text}': upgrade the runtime") from None
