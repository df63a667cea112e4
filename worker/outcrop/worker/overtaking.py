"""Which messages stop the runs in front of them: cancels and ends.

Pure. The lanes ask this of every message they fetch, so a message is decoded only where its header
or, without one, its bytes leave room for a cancel or an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.topics.codec import decode_command
from outcrop.topics.errors import BadCommand
from outcrop.topics.headers import TYPE, header
from outcrop.topics.messages import CommandType

if TYPE_CHECKING:
    from .ports import Message

_STOPPING: Final = frozenset({CommandType.CANCEL, CommandType.END})
_LONGEST: Final = 100_000
"""Cancels and ends carry no state, so a longer message is none; in bytes."""


def overtakes(message: Message) -> str | None:
    """The command ID of a message that stops the runs in front of it, else None."""
    value = message.value
    if value is None or len(value) > _LONGEST or not _may_stop(message, value):
        return None
    try:
        command = decode_command(message.key, value, message.headers)
    except BadCommand:
        return None
    return str(command.command_id) if command.type in _STOPPING else None


def _may_stop(message: Message, value: bytes) -> bool:
    told = header(message.headers, TYPE)
    if told is not None:
        return told.decode(errors="replace") in _STOPPING
    return any(kind.value.encode() in value for kind in _STOPPING) or b"\\u" in value
