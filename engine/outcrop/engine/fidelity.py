"""Whether a value comes back from JSON as it went in, and which part of it doesn't.

Compares types as well as values, because Python calls too much equal: a `StrEnum` that comes
back as text would pass `==` and break the next node. Findings name parts of a state and their
types, never their contents, which may be secret.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

_MISSING: Final = object()
_PLAIN: Final = frozenset({str, bool, type(None)})
_TEXT: Final = frozenset({str})
_LOWEST_INTEGER: Final = -(2**63)  # the integers that every JSON reader of the format holds
_HIGHEST_INTEGER: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Loss:
    """What JSON would do to one part of a state; `where` leads to it from the outermost part."""

    what: str
    where: tuple[str, ...] = ()

    def within(self, part: object) -> Loss:
        """The same, told from the value that holds this part."""
        step = f".{part}" if isinstance(part, str) else f"[{part!r}]"
        return Loss(self.what, (step, *self.where))

    def __str__(self) -> str:
        if not self.where:
            return f"the state {self.what}"
        return f"field '{''.join(self.where).removeprefix('.')}' {self.what}"


def loss_between(before: object, after: object) -> Loss | None:
    """The first part of `before` that isn't the same in `after`, its round trip through JSON."""
    return None if _is_surely_same(before, after) else _find_loss(before, after)


def _is_surely_same(before: Any, after: Any) -> bool:  # noqa: ANN401, PLR0911 - what it is, is the question
    """A quick look at the states that most people have; False means that it takes the long one.

    Every committed node pays for this, and the walk that can name a loss costs several times as much.
    """
    kind = type(before)  # pyright: ignore[reportUnknownVariableType] - what it is, is the question
    if kind is not type(after):
        return False
    if kind in _PLAIN:
        return bool(before == after)
    if kind is int or kind is float:
        return _loss_of_number(before, after) is None
    if kind is list:
        if _TEXT.issuperset(map(type, before)):
            return bool(before == after) and _TEXT.issuperset(map(type, after))
        return len(before) == len(after) and all(map(_is_surely_same, before, after))
    if kind is dict:
        return _has_surely_same_items(before, after)
    if isinstance(before, BaseModel):
        plain = not (before.__pydantic_extra__ or before.__pydantic_private__)
        return plain and _has_surely_same_items(before.__dict__, after.__dict__)
    return False


def _has_surely_same_items(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> bool:
    """The same for what has parts by name, in the same order, so that they can be compared side by side."""
    if list(before) != list(after) or not _TEXT.issuperset(map(type, before)):
        return False
    for value, other in zip(before.values(), after.values(), strict=True):
        kind = type(value)  # pyright: ignore[reportUnknownVariableType] - what it is, is the question
        if kind in _PLAIN:
            if kind is not type(other) or value != other:
                return False
        elif kind is int:
            if type(other) is not int or value != other or not _LOWEST_INTEGER <= value <= _HIGHEST_INTEGER:
                return False
        elif not _is_surely_same(value, other):
            return False
    return True


def _find_loss(before: object, after: object) -> Loss | None:
    kind = type(before)
    if kind is OrderedDict:
        return Loss("is an OrderedDict, and not every store keeps the order of keys: use a list of pairs")
    if kind is not type(after):
        return _change_of_type(before, after)
    if kind in _PLAIN:
        return None if before == after else _CHANGED
    if isinstance(before, (int, float)):
        return _loss_of_number(before, after)
    parts = _parts(before)
    if parts is None:
        return _loss_of_whole(before, after)
    others = _parts(after) or {}
    loss = _loss_of_parts(parts, others)
    return _loss_of_key_types(parts, others) if loss is None and isinstance(before, dict) else loss


def _loss_of_parts(parts: Mapping[Any, Any], others: Mapping[Any, Any]) -> Loss | None:
    for part, value in parts.items():
        other = others.get(part, _MISSING)
        if type(value) in _PLAIN and type(value) is type(other) and value == other:
            continue  # most parts of most states: not worth more
        if other is _MISSING:
            return Loss("is not kept").within(part)
        if (loss := _find_loss(value, other)) is not None:
            return loss.within(part)
    return Loss("comes back from JSON with more in it") if len(others) > len(parts) else None


def unwritable_part(value: object, write: Callable[[object], object]) -> Loss:
    """The innermost part that `write` refuses, of a value that it refuses."""
    for part, child in (_parts(value) or {}).items():
        try:
            write(child)
        except Exception:  # noqa: BLE001 - whatever a serializer raises, this is the part
            return unwritable_part(child, write).within(part)
    if type(value) is str:
        return Loss("is text with half a surrogate pair, which UTF-8 doesn't have")
    return Loss(f"is a {type(value).__name__} that can't be written as JSON")


_CHANGED = Loss("comes back from JSON with another value")


def _change_of_type(before: object, after: object) -> Loss | None:
    if type(before) is int and type(after) is float and before == after:
        return None  # a whole number in a float field means the same
    if isinstance(before, float) and not math.isfinite(before):
        return Loss("is NaN or infinite, which JSON doesn't have")
    return Loss(f"is a {type(before).__name__} and comes back from JSON as a {type(after).__name__}")


def _loss_of_number(before: float, after: object) -> Loss | None:
    if isinstance(before, int):
        if not _LOWEST_INTEGER <= before <= _HIGHEST_INTEGER:
            return Loss("is an integer of more than 64 bits: keep it as text")
    elif not math.isfinite(before):
        return Loss("is NaN or infinite, which JSON doesn't have")
    return None if before == after else _CHANGED


def _loss_of_whole(before: object, after: object) -> Loss | None:
    if before != after:
        return _CHANGED
    if isinstance(before, (set, frozenset)) and isinstance(after, (set, frozenset)):
        return _loss_of_key_types(cast("AbstractSet[object]", before), cast("AbstractSet[object]", after))
    return None


def _loss_of_key_types(before: Iterable[object], after: Iterable[object]) -> Loss | None:
    """Keys or members that are equal and yet of other types."""
    kinds = set(map(type, before))
    if kinds == set(map(type, after)):
        return None
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    return Loss(f"has keys or members of type {names}, and not all come back from JSON as that")


def _parts(value: object) -> Mapping[Any, Any] | None:
    """What a value is made of, by name or index; None for one that is compared as a whole."""
    if isinstance(value, dict):
        return value  # pyright: ignore[reportUnknownVariableType] - what is in it is the question
    if isinstance(value, (list, tuple, deque)):
        return dict(enumerate(cast("Iterable[Any]", value)))
    if isinstance(value, BaseModel):
        return _parts_of_model(value)
    names: Mapping[str, Any] | None = getattr(type(value), "__dataclass_fields__", None)
    return None if names is None else {name: getattr(value, name, _MISSING) for name in names}


def _parts_of_model(model: BaseModel) -> Mapping[str, Any]:
    parts = model.__dict__
    fields = type(model).__pydantic_fields__
    if len(parts) != len(fields):  # cached properties live there too, and a deleted field doesn't
        parts = {name: parts.get(name, _MISSING) for name in fields}
    extra: dict[str, Any] = model.__pydantic_extra__ or {}
    private: dict[str, Any] = model.__pydantic_private__ or {}
    return {**parts, **extra, **private} if extra or private else parts
