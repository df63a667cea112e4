"""Rows stored as the difference to the row before them: reading the envelopes back (`encoding` writes them).

Owns the envelope in a level's `frozen_state` and its refusals. Knows no store and does no
I/O: a store reads a row with the rows it builds on (`unfold`), fetches the blobs that those
it wants refer to (`blob_hashes`), and gets plain rows (`fill`). A reader decodes envelopes
whatever its own options are, and never shows their versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import orjson

from .codec import embedded, parse
from .errors import CorruptRow
from .offload import OFFLOADED_VERSION, BlobReference, references_of
from .record import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .record import Checkpoint

DELTA_VERSION: Final = "1.8.0"
ENCODED_VERSIONS: Final = frozenset({DELTA_VERSION, OFFLOADED_VERSION})
"""The versions that exist only inside stores."""

_Object: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A row out of its envelopes; `states` has each level's value, None for a plain row.

    `depth` is how many rows before this one it says that it builds on.
    """

    row: Row
    states: tuple[object, ...] | None
    depth: int = 0

    def values(self) -> tuple[object, ...]:
        """Each level's state, to build the next row on."""
        if self.states is not None:
            return self.states
        return tuple(parse(level.frozen_state, "a state") for level in self.row.checkpoint.levels())


def unfold(rows: Iterable[Row]) -> list[Unfolded]:
    """Each row of a run of a thread's log, built on the one before; raises `CorruptRow`."""
    unfolded: list[Unfolded] = []
    for row in rows:
        unfolded.append(_unfold(row, unfolded[-1] if unfolded else None))
    return unfolded


def blob_hashes(unfolded: Sequence[Unfolded]) -> set[str]:
    """The names of the blobs that these rows refer to."""
    return {
        value.hash
        for entry in unfolded
        for state in entry.states or ()
        if isinstance(state, dict)
        for value in cast("_Object", state).values()
        if isinstance(value, BlobReference)
    }


def fill(unfolded: Unfolded, contents: Mapping[str, bytes]) -> Row:
    """The plain row, with its blobs' contents in place; raises `CorruptRow`."""
    if unfolded.states is None:
        return unfolded.row
    texts = [_text(state, contents) for state in unfolded.states]
    return replace(unfolded.row, checkpoint=with_states(unfolded.row.checkpoint, texts))


def with_states(level: Checkpoint, texts: Sequence[str]) -> Checkpoint:
    """The row with each level's state replaced, outermost first."""
    nested = None if level.nested is None else with_states(level.nested, texts[1:])
    return replace(level, frozen_state=texts[0], nested=nested)


def depth_of(row: Row) -> int:
    """How many rows before this one it builds on."""
    return _depth(_envelope(row)[1]) if row.checkpoint.schema_version in ENCODED_VERSIONS else 0


def stored_version(thread_id: str, sequence: int, stored: str, inner: object) -> str:
    """The engine's version of a row, given its envelope's `checkpoint_version` (for listings)."""
    if stored not in ENCODED_VERSIONS:
        return stored
    return _version(_name(thread_id, sequence), inner)


def _unfold(row: Row, before: Unfolded | None) -> Unfolded:
    stored = row.checkpoint
    if stored.schema_version not in ENCODED_VERSIONS:
        return Unfolded(row, None)
    name, envelope = _envelope(row)
    version = _version(name, envelope.get("checkpoint_version"))
    base: tuple[object, ...] = ()
    if (delta_of := envelope.get("delta_of")) is not None:
        if before is None or before.row.sequence != delta_of:
            raise CorruptRow(f"{name} is a delta of #{delta_of}, which wasn't read with it")
        base = before.values()
    states = tuple(
        _state(name, at, envelope if at == 0 else parse(level.frozen_state, "an envelope"), base)
        for at, level in enumerate(stored.levels())
    )
    return Unfolded(Row(row.sequence, replace(stored, schema_version=version)), states, _depth(envelope))


def _depth(envelope: _Object) -> int:
    depth = envelope.get("depth")
    return max(depth, 0) if isinstance(depth, int) else 0


def _envelope(row: Row) -> tuple[str, _Object]:
    name = _name(row.checkpoint.thread_id, row.sequence)
    envelope = parse(row.checkpoint.frozen_state, "an envelope")
    if not isinstance(envelope, dict):
        raise CorruptRow(f"{name} is stored as {row.checkpoint.schema_version} without an envelope")
    return name, cast("_Object", envelope)


def _state(name: str, at: int, level: object, base: tuple[object, ...]) -> object:
    fields = cast("_Object", level) if isinstance(level, dict) else {}
    changed, removed = fields.get("set"), fields.get("unset")
    if "state" in fields:
        state: object = fields["state"]
    elif isinstance(changed, dict) and isinstance(removed, list):
        before = base[at] if at < len(base) else None
        if not isinstance(before, dict):
            raise CorruptRow(f"{name} has a delta at level {at}, and the row before has no object there")
        gone = set(cast("list[str]", removed))
        kept = {key: value for key, value in cast("_Object", before).items() if key not in gone}
        state = kept | cast("_Object", changed)
    else:
        raise CorruptRow(f"{name} has a level without an envelope")
    references = references_of(name, at, fields.get("blobs"), state)
    return cast("_Object", state) | references if references else state


def _text(state: object, contents: Mapping[str, bytes]) -> str:
    if isinstance(state, dict):
        state = {
            key: embedded(value.content(contents)) if isinstance(value, BlobReference) else value
            for key, value in cast("_Object", state).items()
        }
    return orjson.dumps(state).decode()


def _version(name: str, inner: object) -> str:
    if not isinstance(inner, str):
        raise CorruptRow(f"{name} has no checkpoint_version")
    return inner


def _name(thread_id: str, sequence: int) -> str:
    return f"checkpoint '{thread_id}' #{sequence}"
