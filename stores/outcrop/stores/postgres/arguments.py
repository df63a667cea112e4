"""Saves as the arguments of their functions, and what Postgres can't hold, found before any I/O.

Owns their order and the refusals: NUL and lone surrogates, which neither TEXT nor JSONB has.
A refusal names the thread and where in the row it is, never what is there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from outcrop.stores.columns import to_parameters
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.notes import named

from .numbers import with_fixed_floats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from outcrop.stores.encoding import Stored
    from outcrop.stores.record import Note
    from outcrop.stores.save import Save

_JSON: Final = ("frozen_state", "metadata", "nested", "decision", "wait")
_WITH_NUMBERS: Final = ("frozen_state", "nested", "decision")
_ESCAPED_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def to_row(save: Save, stored: Stored) -> dict[str, Any]:
    """A save in one of its stored forms, as the functions take it, in order; raises `InvalidRequest`."""
    row: dict[str, Any] = to_parameters(stored.checkpoint)
    texts = {name: value for name, value in row.items() if value is not None}
    together = "".join(texts.values())  # one look tells that there is nothing to find, mostly
    if "\0" in together or "\\u0000" in together or not together.isascii():
        for name, value in texts.items():
            _check(save.checkpoint.thread_id, name, value)
    for name in _WITH_NUMBERS:
        if row[name] is not None:
            row[name] = with_fixed_floats(row[name])
    base = stored.base
    row["expected"] = save.expected
    row["token"] = save.token
    row["release"] = save.release
    row["base_sequence"] = None if base is None else base.sequence
    row["base_token"] = None if base is None else base.token
    return row


def to_arguments(row: Mapping[str, Any], blobs: Mapping[str, bytes]) -> tuple[Any, ...]:
    """The arguments of `outcrop_append` for a row with its blobs."""
    return (*row.values(), list(blobs), list(blobs.values()))


def to_arrays(
    rows: Sequence[Mapping[str, Any]], blobs: Sequence[Mapping[str, bytes]]
) -> tuple[list[Any], ...]:
    """The arrays of `outcrop_save` for rows with their blobs, in order."""
    columns = (list(column) for column in zip(*(row.values() for row in rows), strict=True))
    placed = [(at, name, content) for at, of_row in enumerate(blobs, 1) for name, content in of_row.items()]
    places, names, contents = ([blob[at] for blob in placed] for at in range(3))
    return (*columns, places, names, contents)


def to_note_arrays(thread_id: str, notes: Sequence[Note]) -> tuple[list[str], list[str], list[str]]:
    """Notes as kinds, paths and values, of equals the last; raises `InvalidRequest`."""
    for note in notes:
        for name, text in (("path", note.path), ("value", note.value)):
            if "\0" in text:
                raise InvalidRequest(
                    f"{named(thread_id, note)} has a NUL in its {name}, and Postgres can't hold one"
                )
    last = {(note.kind, note.path): note.value for note in notes}
    return [kind.value for kind, _ in last], [path for _, path in last], list(last.values())


def to_placed_note_arrays(saves: Sequence[Save]) -> tuple[list[int], list[str], list[str], list[str]]:
    """The notes of rows in order, each with its row's number (from 1), as `outcrop_save_noted` takes them."""
    places: list[int] = []
    columns: tuple[list[str], list[str], list[str]] = ([], [], [])
    for at, save in enumerate(saves, 1):
        of_row = to_note_arrays(save.checkpoint.thread_id, save.notes)
        places += [at] * len(of_row[0])
        for column, values in zip(columns, of_row, strict=True):
            column.extend(values)
    return (places, *columns)


def has_escaped_nul(text: str) -> bool:
    """Whether a JSON text has a NUL in it, which JSON can only escape."""
    return "\\u0000" in text and _ESCAPED_NUL.search(text) is not None


def _check(thread_id: str, name: str, value: str) -> None:
    if "\0" in value:
        raise InvalidRequest(f"{_row(thread_id)} has a NUL in its {name}, and Postgres can't hold one")
    if name in _JSON and has_escaped_nul(value):
        path = next(_nuls(orjson.loads(value), name), name)
        raise InvalidRequest(f"{_row(thread_id)} has a NUL in {path}, and Postgres can't hold one")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"{_row(thread_id)} isn't valid Unicode in its {name}: {error.reason}"
            ) from None


def _row(thread_id: str) -> str:
    return f"the checkpoint of thread '{ascii(thread_id)[1:-1]}'"


def _nuls(value: object, path: str) -> Iterator[str]:
    """Where in a JSON value there is a text with a NUL."""
    match value:
        case str():
            if "\0" in value:
                yield path
        case dict():
            for key, entry in cast("dict[str, object]", value).items():
                if "\0" in key:
                    yield f"a key of {path}"
                yield from _nuls(entry, f"{path}.{key}")
        case list():
            for at, entry in enumerate(cast("list[object]", value)):
                yield from _nuls(entry, f"{path}[{at}]")
        case _:
            pass
