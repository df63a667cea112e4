"""States and their JSON text: freezing after a commit, thawing for each attempt.

A state is a pydantic model, a dataclass or a dict. The committed state *is* its JSON text:
every attempt thaws its own copy, so a node always sees what a recovery would see. JSON is
read strictly (`"7"` is no number), and errors name fields, never what is in them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, get_args, get_origin

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from .errors import StateError
from .fidelity import loss_between, unwritable_part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outcrop.stores.record import Json

S = TypeVar("S")


class StateCodec(Protocol[S]):
    """One state type's way to JSON text and back."""

    @property
    def type_name(self) -> str:
        """What the state type is called."""
        ...

    def freeze(self, state: S) -> str:
        """The state as compact JSON text that thaws to an equal state.

        Raises `StateError`, naming the field, when it wouldn't (NaN, a tuple in an
        untyped field, a type JSON doesn't have).
        """
        ...

    def thaw(self, text: str) -> S:
        """A new state from JSON text; raises `StateError` when it doesn't fit the type."""
        ...


def codec_for(state_type: type[S]) -> StateCodec[S]:
    """The codec of a state type; raises `StateError` for a type that pydantic can't read.

    `dict` and `dict[str, Any]` are JSON objects of any shape; everything else is held to
    its fields. Fields go by their aliases in JSON, where they have any.
    """
    if state_type is dict or (get_origin(state_type) is dict and get_args(state_type) == (str, Any)):
        return cast("StateCodec[S]", _UNTYPED)
    try:
        adapter = TypeAdapter(state_type)
    except Exception as error:
        message = f"{_type_name(state_type)} can't be the type of a graph's states: {error}"
        raise StateError(message) from error
    return _Codec(
        _type_name(state_type),
        write=partial(adapter.serializer.to_json, by_alias=True, round_trip=True, warnings=False),
        read=partial(adapter.validator.validate_json, strict=True),
        write_part=to_json,
    )


def apply_overrides(text: str, overrides: Mapping[str, Json]) -> str:
    """The state with top-level fields replaced or added; a state that is no object stays as it is.

    Raises `StateError` when an override isn't JSON, or the text isn't.
    """
    if not overrides:
        return text
    try:
        state = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise StateError(f"the state is not JSON: {error.msg}") from None  # its `doc` is the state
    if not isinstance(state, dict):
        return text
    laid_over = orjson.loads(_UNTYPED.freeze(dict(overrides)))
    return orjson.dumps({**state, **laid_over}).decode()


def json_value(value: object) -> Json:
    """The value as JSON gives it back; raises `StateError` for what would come back otherwise."""
    text = _UNTYPED.freeze({"value": value})
    read: Json = orjson.loads(text)["value"]
    return read


class _Codec(Generic[S]):
    """Writes, and reads back what it wrote to see whether anything is lost."""

    def __init__(
        self,
        type_name: str,
        *,
        write: Callable[[S], bytes],
        read: Callable[[str | bytes], S],
        write_part: Callable[[object], bytes],
    ) -> None:
        self.type_name = type_name
        self._write = write
        self._read = read
        self._write_part = write_part

    def freeze(self, state: S) -> str:
        """See `StateCodec`."""
        try:
            return self._checked(state)
        except RecursionError:
            raise StateError("the state is nested too deeply for JSON, or holds itself") from None

    def _checked(self, state: S) -> str:
        try:
            text = self._write(state)
        except Exception:  # noqa: BLE001 - serializers raise what they like; the part tells why
            raise StateError(f"{unwritable_part(state, self._write_part)}") from None
        try:
            loss = loss_between(state, self._read(text))
        except Exception as error:  # noqa: BLE001 - a validator of the state type may raise anything
            # a number that JSON doesn't have explains more than the null it was written as
            reason = loss_between(state, state) or f"{_misfit(error)}, so it would not be read back"
            raise StateError(f"{reason}") from None
        if loss is not None:
            raise StateError(f"{loss} (a state of type {self.type_name})")
        return text.decode()

    def thaw(self, text: str) -> S:
        """See `StateCodec`."""
        try:
            return self._read(text)
        except Exception as error:  # noqa: BLE001 - a validator of the state type may raise anything
            raise StateError(_misfit(error)) from None  # the cause's own text holds the state


def _misfit(error: Exception) -> str:
    """What doesn't fit, without the value that doesn't."""
    if not isinstance(error, ValidationError):
        return f"the state is not JSON of the graph's type ({type(error).__name__})"
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(str(step) for step in problems[0]["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    owner = f"field '{where}'" if where else "the state"
    return f"{owner}: {problems[0]['msg']}{more}"


def _read_object(text: str | bytes) -> dict[str, Any]:
    state: Any = orjson.loads(text)
    if not isinstance(state, dict):
        raise TypeError("a JSON object is needed")
    return cast("dict[str, Any]", state)


def _type_name(state_type: object) -> str:
    return state_type.__name__ if isinstance(state_type, type) else str(state_type)


_UNTYPED = _Codec[dict[str, Any]]("dict", write=orjson.dumps, read=_read_object, write_part=orjson.dumps)
