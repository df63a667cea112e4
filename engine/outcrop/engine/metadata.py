"""The metadata of rows: whose key is whose, what a thread carries on and what stays behind.

A row's metadata is the caller's keys plus the engine's (`error`, `strata.…`) plus its own
marks (`outcrop.…`). Only the caller's are carried from row to row; nobody else may write the
others. Pure: mappings in, new mappings out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import Checkpoint

ERROR = "error"
ERROR_KIND = "error_kind"
ATTEMPTS = "attempts"
CANCEL_REASON = "cancel_reason"
RETRY_AFTER_MS = "strata.retry_after_ms"
HOPS = "strata.hops"
RECOVERIES = "strata.recoveries"
END_REASON = "strata.end_reason"
ENDED_BY = "strata.ended_by"

MARKS = "outcrop."
COMMAND_ID = "outcrop.command_id"
MESSAGE = "outcrop.message"

_RESERVED = frozenset({ERROR, ERROR_KIND, ATTEMPTS, CANCEL_REASON})
_RESERVED_PREFIXES = ("strata.", MARKS)
_CARRIED_MARKS = (COMMAND_ID, MESSAGE)
_LARGEST_COUNT = 2**64 - 1


def is_reserved(key: str) -> bool:
    """Whether only the engine or the worker may write this key."""
    return key in _RESERVED or key.startswith(_RESERVED_PREFIXES)


def belongs_to_row(key: str) -> bool:
    """Whether the key tells of one very row, so that no copy of the row has it: a mark, a recovery count."""
    return key.startswith(MARKS) or key == RECOVERIES


def is_text(value: object) -> bool:
    """Whether a value is text that UTF-8 can hold; half a surrogate pair isn't."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def metadata_refusal(metadata: Mapping[str, str]) -> str | None:
    """Why a call may not give this metadata, or None when it may."""
    for key in sorted(metadata, key=str):
        if not is_text(key):
            return f"run metadata key {key!r} must be text"
        if not key:
            return "run metadata keys can't be empty"
        if is_reserved(key):
            return f"run metadata key '{key}' is reserved"
        if not is_text(metadata[key]):
            return f"run metadata value of '{key}' must be text"
    return None


def caller_metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """The keys of a row that the thread carries on."""
    return {key: value for key, value in (checkpoint.metadata or {}).items() if not is_reserved(key)}


def carried_metadata(checkpoint: Checkpoint, call: Mapping[str, str]) -> dict[str, str]:
    """What the thread carries from this row on, with the call's own laid over it."""
    return {**caller_metadata(checkpoint), **call}


def carried_marks(checkpoint: Checkpoint) -> dict[str, str]:
    """The marks that a recovery keeps: which command's work the thread is in the middle of."""
    metadata = checkpoint.metadata or {}
    return {key: metadata[key] for key in _CARRIED_MARKS if key in metadata}


def hops_of(level: Checkpoint) -> int:
    """The nodes run at this level before the row's next one; 0 when the row doesn't tell."""
    return _count(level, HOPS) or 0


def hops_refusal(level: Checkpoint, *, thread_id: str, at: str = "") -> str | None:
    """Why the level's hop count can't be resumed from, or None when it can."""
    value = (level.metadata or {}).get(HOPS)
    if value is None or _count(level, HOPS) is not None:
        return None
    return f"checkpoint for thread '{thread_id}'{at} has an invalid '{HOPS}' value '{value}'"


def recoveries_of(checkpoint: Checkpoint) -> int:
    """How often a thread was recovered since a node last committed, by its latest row.

    0 when the row doesn't say, or says something unreadable.
    """
    return _count(checkpoint, RECOVERIES) or 0


def _count(checkpoint: Checkpoint, key: str) -> int | None:
    text = (checkpoint.metadata or {}).get(key, "")
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(_LARGEST_COUNT)):
        return None
    count = int(text)
    return count if count <= _LARGEST_COUNT else None
