"""Bytes to commands and outcomes, and back.

Owns what makes a message on a command topic invalid. Knows no broker, store or graph.
Invariant: any bytes at all become a command or `BadCommand`, and a command that is read can be
written again unchanged: no NaN, no number beyond 64 bits, no half surrogate, no endless nesting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from uuid import UUID

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from .errors import BadCommand, BadKind, BadOutcome
from .headers import TYPE, header
from .keys import decode_key, is_thread_id
from .messages import (
    RESERVED_METADATA,
    RESERVED_PREFIXES,
    VERSION,
    AnyCommand,
    Command,
    CommandType,
    Outcome,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

    from .headers import Headers

__all__ = ["BadCommand", "decode_command", "decode_outcome", "encode_command", "encode_outcome"]

DEFAULT_LIMIT: Final = 1_000_000
"""The default limit of a command's value in bytes; Kafka's own default for a batch is a little more."""

_COMMAND: TypeAdapter[AnyCommand] = TypeAdapter(Command)
_TYPES: Final = frozenset(kind.value for kind in CommandType)
_PROBLEMS_TOLD: Final = 3
_NAME_TOLD: Final = 60


def encode_command(command: AnyCommand) -> bytes:
    """The command's JSON, without the optional fields that it doesn't have."""
    return command.model_dump_json(exclude_none=True).encode()


def encode_outcome(outcome: Outcome) -> bytes:
    """The outcome's JSON, without the optional fields that it doesn't have."""
    return outcome.model_dump_json(exclude_none=True).encode()


def decode_command(
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
    *,
    limit: int = DEFAULT_LIMIT,
) -> AnyCommand:
    """The command that a message holds; `limit` is in bytes of `value`.

    Raises `BadCommand`, and nothing else, for what is no command.
    """
    return _Reading(key, value or b"").command(headers, limit)


def decode_outcome(value: bytes | None) -> Outcome:
    """The outcome that a message holds, whatever fields a newer worker adds.

    Raises `BadOutcome`, with the command's ID where it can be read.
    """
    try:
        return Outcome.model_validate_json(value or b"")
    except ValidationError as error:
        raise BadOutcome(f"not an outcome: {problems(error)}", _command_id(_object(value or b""))) from None


class _Reading:
    """One message being read: what is known of it so far goes into every refusal."""

    def __init__(self, key: bytes | None, value: bytes) -> None:
        self._key = key
        self._value = value
        self._data: Mapping[str, object] = {}

    def command(self, headers: Headers, limit: int) -> AnyCommand:
        self._parse(limit)
        kind = self._kind(headers)
        try:
            command = _COMMAND.validate_json(self._value)
        except ValidationError as error:
            self._refuse(BadKind.INVALID, problems(error, kind))
        self._check_metadata(command.metadata)
        self._check_key(command.thread_id)
        return command

    def _parse(self, limit: int) -> None:
        if len(self._value) > limit:
            self._data = _object(self._value)
            self._refuse(
                BadKind.TOO_LARGE, f"the command has {len(self._value)} bytes; the limit is {limit} bytes"
            )
        if not self._value:
            self._refuse(BadKind.UNDECODABLE, "the message has no value")
        try:
            data: object = orjson.loads(self._value)
            exact: object = from_json(self._value)
        except ValueError as error:
            self._refuse(BadKind.UNDECODABLE, f"not JSON in UTF-8: {_cut(str(error))}")
        if not isinstance(data, dict):
            self._refuse(BadKind.INVALID, "the command is no JSON object")
        self._data = cast("dict[str, object]", data)
        try:
            orjson.dumps(exact)
        except TypeError:  # orjson would have read it as a float, and so have changed it
            self._refuse(BadKind.INVALID, "an integer is beyond 64 bits; send it as a string")

    def _kind(self, headers: Headers) -> str:
        version = self._data.get("version")
        if version is None:
            self._refuse(BadKind.INVALID, "version: the field is required")
        if type(version) is not int or version != VERSION:
            told = f"{_cut(str(version))} " if type(version) is int else ""
            self._refuse(
                BadKind.UNSUPPORTED_VERSION, f"version {told}is not {VERSION}, the only one read here"
            )
        kind = self._data.get("type")
        if not isinstance(kind, str):
            self._refuse(BadKind.INVALID, "type: the field is required, and is a string")
        if kind not in _TYPES:
            self._refuse(BadKind.UNKNOWN_TYPE, f"no command has the type {_cut(kind)!r}")
        told_type = header(headers, TYPE)
        if told_type is not None and told_type != kind.encode():
            self._refuse(BadKind.INVALID, f"type: the header {TYPE} says another type than the body")
        return kind

    def _check_metadata(self, metadata: Mapping[str, str]) -> None:
        for name in metadata:
            if not name:
                self._refuse(BadKind.INVALID_METADATA, "metadata: a key is empty")
            if name in RESERVED_METADATA or name.startswith(RESERVED_PREFIXES):
                self._refuse(BadKind.INVALID_METADATA, f"metadata: the key {_cut(name)!r} is reserved")

    def _check_key(self, thread_id: str) -> None:
        if self._key is None:
            self._refuse(BadKind.NO_KEY, "the message has no key; it must be the thread ID")
        if decode_key(self._key) != thread_id:
            self._refuse(BadKind.KEY_MISMATCH, "the message's key is not its thread_id")

    def _refuse(self, kind: BadKind, message: str) -> NoReturn:
        told = self._data.get("thread_id")
        thread_id = told if isinstance(told, str) and is_thread_id(told) else None
        if thread_id is None and "thread_id" not in self._data and self._key is not None:
            thread_id = decode_key(self._key)
        raise BadCommand(kind, message, thread_id, _command_id(self._data)) from None


def _object(value: bytes) -> Mapping[str, object]:
    try:
        data: object = orjson.loads(value)
    except ValueError:
        return {}
    return cast("dict[str, object]", data) if isinstance(data, dict) else {}


def _command_id(data: Mapping[str, object]) -> UUID | None:
    told = data.get("command_id")
    try:
        return UUID(told) if isinstance(told, str) else None
    except ValueError:
        return None


def problems(error: ValidationError, kind: str | None = None) -> str:
    """What is wrong with which field; values stay out, names are cut."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{_place(detail['loc'], kind)}: {_reason(detail)}" for detail in details[:_PROBLEMS_TOLD]]
    if len(details) > _PROBLEMS_TOLD:
        told.append(f"and {len(details) - _PROBLEMS_TOLD} more")
    return "; ".join(told)


def _reason(detail: ErrorDetails) -> str:
    if detail["type"] == "string_pattern_mismatch":  # only a thread ID has a pattern
        return "it has a control character"
    return _cut(detail["msg"].removeprefix("Value error, "))


def _place(location: Sequence[Any], kind: str | None) -> str:
    path = location[1:] if kind is not None and location[:1] == (kind,) else location
    return ".".join(_cut(str(step)) for step in path) or "message"


def _cut(text: str) -> str:
    """A short printable form of text that a stranger wrote."""
    short = text if len(text) <= _NAME_TOLD else f"{text[:_NAME_TOLD]}…"
    return short if short.isprintable() else ascii(short)[1:-1]
