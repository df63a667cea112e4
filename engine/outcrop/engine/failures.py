"""What a failure leaves in a row: its text, its kind, and the row of a run that just failed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from outcrop.stores.instants import instant_text
from outcrop.stores.record import Checkpoint, Status

from .ends import CutShort, Raised
from .errors import NodeError, Transient
from .metadata import ATTEMPTS, ERROR, ERROR_KIND, RECOVERIES, RETRY_AFTER_MS
from .rows import each_level

if TYPE_CHECKING:
    from datetime import datetime

    from .node import NodeSpec

S = TypeVar("S")

TRANSIENT: Final = "transient"
FATAL: Final = "fatal"
HOP_LIMIT: Final = "hop_limit"
_LONGEST_HINT: Final = 1e12  # seconds; in milliseconds, still a number that every reader holds


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The last attempt failed; `nested` is the row of the child that failed inside it."""

    error: Exception
    is_fatal: bool
    attempts: int
    timed_out: bool
    nested: Checkpoint | None = None

    @property
    def hint(self) -> float | None:
        """Seconds that the failure asked to wait."""
        return hint_of(self.error)


def hint_of(error: Exception) -> float | None:
    """Seconds that a failure asks to wait; a wait without end is no hint."""
    hint: object = error.retry_after if isinstance(error, Transient) else None
    # A node may have put anything there, and a row has whole milliseconds.
    if not isinstance(hint, (int, float)) or not abs(hint) <= _LONGEST_HINT:
        return None
    return max(hint, 0.0)


def give_up(spec: NodeSpec[S], end: Raised | CutShort, attempts: int) -> GaveUp:
    """What the failed attempt is, should no other follow it."""
    if isinstance(end, Raised):
        is_fatal = spec.retry.is_fatal(end.error)
        return GaveUp(end.error, is_fatal, attempts, timed_out=False, nested=end.nested)
    milliseconds = round((spec.timeout or 0) * 1000)
    error = Transient(f"node '{spec.name}' timed out after {milliseconds} ms")
    return GaveUp(error, is_fatal=False, attempts=attempts, timed_out=True, nested=end.nested)


def error_text(error: BaseException) -> str:
    """What an exception says, as text that JSON can hold.

    A node's own errors (`Transient`, `Fatal`) speak for themselves; any other is named, since
    `KeyError('x')` alone says only `'x'`.
    """
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an exception that can't be printed must not hide the failure
        said = ""
    if not isinstance(error, NodeError):
        said = f"{name}: {said}" if said else name
    return (said or name).encode("utf-8", "backslashreplace").decode()


def failure_metadata(message: str, *, is_fatal: bool, attempts: int, hint: float | None) -> dict[str, str]:
    """The metadata of a `failed` row; `hint` is the last failure's `retry_after` in seconds."""
    told = {ERROR: message, ERROR_KIND: FATAL if is_fatal else TRANSIENT, ATTEMPTS: str(attempts)}
    if hint is not None:
        told[RETRY_AFTER_MS] = str(int(hint * 1000))
    return told


def hop_limit_metadata(message: str) -> dict[str, str]:
    """The metadata of the `failed` row of a level that reached its hop limit."""
    return {ERROR: message, ERROR_KIND: HOP_LIMIT}


def failing(running: Checkpoint, message: str, now: datetime) -> Checkpoint:
    """A `running` row as the `failed` one of a run that failed with no other record of it."""

    def fail(level: Checkpoint) -> Checkpoint:
        metadata = {key: value for key, value in (level.metadata or {}).items() if key != RECOVERIES}
        return replace(
            level,
            status=Status.FAILED,
            suspended_node=level.next_node,
            metadata={**metadata, ERROR: message, ERROR_KIND: FATAL},
            created_at=instant_text(now),
        )

    return each_level(running, fail)
