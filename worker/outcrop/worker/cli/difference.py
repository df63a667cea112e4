"""What changed between two frozen states: the top-level fields, by JSON value. Pure.

Values are compared as JSON: `1`, `1.0` and `true` differ, the order of keys doesn't count.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, cast

import orjson

from outcrop.stores import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.stores import Json

_fragment = cast("Callable[[str], object]", orjson.Fragment)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # its stub hides the name


class Change(StrEnum):
    """What happened to a field."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of the state; None as `field` is a state that isn't an object, as a whole."""

    field: str | None
    change: Change
    before: Json
    after: Json


def raw_json(text: str) -> object:
    """JSON text to be shown as it stands; raises `CorruptRow` when it isn't JSON."""
    codec.parse(text, "a frozen state")
    return _fragment(text)


def differences(before_text: str, after_text: str) -> tuple[FieldChange, ...]:
    """The fields that differ: those of the first state in its order, then what the second adds."""
    before: Json = codec.parse(before_text, "a frozen state")
    after: Json = codec.parse(after_text, "a frozen state")
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return () if _same(before, after) else (FieldChange(None, Change.CHANGED, before, after),)
    changes: list[FieldChange] = []
    for name, value in before.items():
        if name not in after:
            changes.append(FieldChange(name, Change.REMOVED, value, None))
        elif not _same(value, after[name]):
            changes.append(FieldChange(name, Change.CHANGED, value, after[name]))
    changes.extend(FieldChange(name, Change.ADDED, None, after[name]) for name in after if name not in before)
    return tuple(changes)


def _same(one: Json, other: Json) -> bool:
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
