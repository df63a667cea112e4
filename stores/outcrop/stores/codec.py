"""The canonical JSON of a checkpoint: the text that every engine of the format shares.

Owns key order, which keys may be absent, and the schema version that a row's content
asks for. Knows no store. A state goes through as text: writing embeds it unread, reading
a whole row gives each level its state as compact text again.

Values are the contract, not their text: metadata order and float notation differ between
writers, so compare rows with `same_as`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import orjson

from .errors import CorruptRow, InvalidRequest
from .record import Checkpoint, Decision, GraphIdentity, Status, ThreadState, Wait, WaitKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

READABLE_VERSIONS: Final = frozenset({f"1.{minor}.0" for minor in range(8)})
"""The schema versions that an engine may read; stores hand out any other unjudged."""

_Object: TypeAlias = "dict[str, Any]"

# orjson's type stub leaves its Fragment out of what it exports.
_Fragment = cast("Callable[[str | bytes], object]", orjson.Fragment)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # see above


def schema_version_for(checkpoint: Checkpoint) -> str:  # noqa: PLR0911 - the table of versions, a line each
    """The lowest schema version that this level's content fits; nested levels have their own."""
    levels = tuple(checkpoint.levels())
    if checkpoint.status is Status.RUNNING:
        return "1.7.0"
    if any(level.graph is not None for level in levels):
        return "1.6.0"
    if checkpoint.status is Status.ENDED:
        return "1.4.0"
    if levels[-1].wait is not None:
        return "1.5.0"
    if any(level.decision is not None for level in levels):
        return "1.3.0"
    if any(level.status is Status.CANCELLED for level in levels):
        return "1.2.0"
    return "1.1.0" if checkpoint.nested is not None else "1.0.0"


def same_as(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two rows have the same JSON values, whatever their key order, whitespace and number text.

    -0.0 is 0.0: Postgres keeps no sign of zero.
    """
    return _alike(orjson.loads(encode(one)), orjson.loads(encode(other)))


def encode(checkpoint: Checkpoint) -> str:
    """The whole row as compact JSON, nested levels inside; raises `InvalidRequest` when it has no JSON."""
    try:
        return orjson.dumps(_to_object(checkpoint)).decode()
    except TypeError as error:
        raise InvalidRequest(
            f"the checkpoint of thread '{checkpoint.thread_id}' has no JSON form: {error}"
        ) from error


def decode(text: str | bytes) -> Checkpoint:
    """The row of a whole JSON text; unknown keys are ignored. Raises `CorruptRow`."""
    return _to_checkpoint(parse(text, "a checkpoint"))


def encode_metadata(metadata: Mapping[str, str] | None) -> str | None:
    """Metadata as an object of strings; raises `InvalidRequest` for a value that isn't one."""
    if metadata is None:
        return None
    check_metadata(metadata)
    return orjson.dumps(dict(metadata)).decode()


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raise `InvalidRequest` unless keys and values are strings.

    One value of another type would break every listing of the thread, in every engine.
    """
    for key, value in cast("Mapping[object, object]", metadata).items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidRequest(f"metadata '{key}' isn't a string but {type(value).__name__}")
        if key.isascii() and value.isascii():
            continue
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"metadata {key!r} isn't valid Unicode: {error.reason}") from error


def decode_metadata(text: str | None) -> dict[str, str] | None:
    """Metadata from a row's text; raises `CorruptRow`."""
    return None if text is None else _to_metadata(parse(text, "metadata"))


def encode_decision(decision: Decision | None) -> str | None:
    """A decision in its key order; raises `InvalidRequest` for overrides that JSON can't hold (NaN)."""
    if decision is None:
        return None
    try:
        # The standard encoder, because orjson writes NaN as null without a word.
        return json.dumps(
            {
                "boundary": decision.boundary,
                "is_approved": decision.is_approved,
                "reviewer": decision.reviewer,
                "overrides": dict(decision.overrides),
                "decided_at": decision.decided_at,
            },
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the overrides at '{decision.boundary}' have no JSON form: {error}") from error


def decode_decision(text: str | None) -> Decision | None:
    """A decision from a row's text; raises `CorruptRow`."""
    return None if text is None else _to_decision(parse(text, "a decision"))


def encode_wait(wait: Wait | None) -> str | None:
    """A wait in its key order, all three keys present."""
    if wait is None:
        return None
    return orjson.dumps(
        {"kind": wait.kind.value, "event_type": wait.event_type, "wake_at": wait.wake_at}
    ).decode()


def decode_wait(text: str | None) -> Wait | None:
    """A wait from a row's text; raises `CorruptRow`."""
    return None if text is None else _to_wait(parse(text, "a wait"))


def decode_status(text: str) -> Status:
    """The status by its wire name; raises `CorruptRow` for an unknown one."""
    try:
        return Status(text)
    except ValueError:
        raise CorruptRow(f"unknown checkpoint status '{text}' in the checkpoint log") from None


def decode_state(text: str) -> ThreadState:
    """The thread state by its name in a head; raises `CorruptRow` for an unknown one."""
    try:
        return ThreadState(text)
    except ValueError:
        raise CorruptRow(f"unknown thread state '{text}' in the checkpoint log") from None


def parse(text: str | bytes, what: str) -> Any:  # noqa: ANN401 - the readers below judge the value's type
    """The value of a JSON text out of a row; raises `CorruptRow` naming `what` isn't JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CorruptRow(f"{what} in the checkpoint log isn't JSON: {error}") from error


def embedded(text: str | bytes) -> object:
    """JSON text as a value that `orjson.dumps` writes as it is, unread."""
    return _Fragment(text)


def _alike(one: object, other: object) -> bool:
    if one.__class__ is not other.__class__:  # in Python, True == 1 == 1.0
        return False
    if isinstance(one, dict):
        first, second = cast("_Object", one), cast("_Object", other)
        return first.keys() == second.keys() and all(_alike(first[key], second[key]) for key in first)
    if isinstance(one, list):
        firsts, seconds = cast("list[object]", one), cast("list[object]", other)
        return len(firsts) == len(seconds) and all(map(_alike, firsts, seconds))
    return one == other


def _to_object(level: Checkpoint) -> _Object:
    metadata, wait, graph = level.metadata, encode_wait(level.wait), level.graph
    decision = encode_decision(level.decision)
    if metadata is not None:
        check_metadata(metadata)
        metadata = dict(metadata)
    fields: _Object = {
        "schema_version": level.schema_version,
        "thread_id": level.thread_id,
        "status": level.status.value,
        "suspended_node": level.suspended_node,
        "next_node": level.next_node,
        "frozen_state": embedded(level.frozen_state),
        "metadata": metadata,
        "created_at": level.created_at,
        "resumed_at": level.resumed_at,
    }
    if level.nested is not None:
        fields["nested"] = _to_object(level.nested)
    if decision is not None:
        fields["decision"] = embedded(decision)
    if wait is not None:
        fields["wait"] = embedded(wait)
    if graph is not None:
        fields["graph"] = {"id": graph.id, "version": graph.version}
    return fields


def _to_checkpoint(value: Any) -> Checkpoint:  # noqa: ANN401 - parsed JSON of any shape
    fields = _object(value, "a checkpoint")
    if "frozen_state" not in fields:
        raise CorruptRow("a checkpoint in the checkpoint log has no 'frozen_state'")
    metadata, nested, decision = fields.get("metadata"), fields.get("nested"), fields.get("decision")
    wait, graph = fields.get("wait"), fields.get("graph")
    return Checkpoint(
        schema_version=_text(fields, "schema_version"),
        thread_id=_text(fields, "thread_id"),
        status=decode_status(_text(fields, "status")),
        suspended_node=_optional_text(fields, "suspended_node"),
        next_node=_optional_text(fields, "next_node"),
        frozen_state=_state_text(fields["frozen_state"]),
        metadata=None if metadata is None else _to_metadata(metadata),
        created_at=_text(fields, "created_at"),
        resumed_at=_optional_text(fields, "resumed_at"),
        nested=None if nested is None else _to_checkpoint(nested),
        decision=None if decision is None else _to_decision(decision),
        wait=None if wait is None else _to_wait(wait),
        graph=None if graph is None else _to_graph(graph),
    )


def _state_text(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # orjson reads deeper than it writes
        raise CorruptRow(f"a state in the checkpoint log can't be written again: {error}") from error


def _to_metadata(value: Any) -> dict[str, str]:  # noqa: ANN401 - parsed JSON of any shape
    metadata = _object(value, "metadata")
    for key, entry in metadata.items():
        if not isinstance(entry, str):
            raise CorruptRow(f"metadata '{key}' in the checkpoint log isn't a string")
    return cast("dict[str, str]", metadata)


def _to_decision(value: Any) -> Decision:  # noqa: ANN401 - parsed JSON of any shape
    fields = _object(value, "a decision")
    is_approved = fields.get("is_approved")
    if not isinstance(is_approved, bool):
        raise CorruptRow("a decision in the checkpoint log has no boolean 'is_approved'")
    return Decision(
        boundary=_text(fields, "boundary"),
        is_approved=is_approved,
        reviewer=_text(fields, "reviewer"),
        overrides=_object(fields.get("overrides"), "a decision's overrides"),
        decided_at=_text(fields, "decided_at"),
    )


def _to_wait(value: Any) -> Wait:  # noqa: ANN401 - parsed JSON of any shape
    fields = _object(value, "a wait")
    kind = _text(fields, "kind")
    try:
        known = WaitKind(kind)
    except ValueError:
        raise CorruptRow(f"unknown wait kind '{kind}' in the checkpoint log") from None
    return Wait(known, _optional_text(fields, "event_type"), _optional_text(fields, "wake_at"))


def _to_graph(value: Any) -> GraphIdentity:  # noqa: ANN401 - parsed JSON of any shape
    fields = _object(value, "a graph identity")
    return GraphIdentity(_text(fields, "id"), _optional_text(fields, "version"))


def _object(value: Any, what: str) -> _Object:  # noqa: ANN401 - parsed JSON of any shape
    if not isinstance(value, dict):
        raise CorruptRow(f"{what} in the checkpoint log isn't an object")
    return cast("_Object", value)


def _text(fields: _Object, key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise CorruptRow(f"'{key}' in the checkpoint log isn't a text")
    return value


def _optional_text(fields: _Object, key: str) -> str | None:
    return None if fields.get(key) is None else _text(fields, key)
