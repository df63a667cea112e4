"""What a failure leaves in a row: its text, its kind, and the row of a run that just failed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from outcrop.stores.instants import instant_text
from outcrop.stores.record import Checkpoint, Status

from .attempts import Cut, Raised
from .commit import each_level
from .errors import NodeError, Transient
from .metadata import ATTEMPTS, ERROR, ERROR_KIND, RECOVERIES, RETRY_AFTER_MS

if TYPE_CHECKING:
    from datetime import datetime

    from .node import NodeSpec

S = TypeVar("S")

TRANSIENT: Final = "transient"
FATAL: Final = "fatal"
_LONGEST_HINT: Final = 1e12  # seconds; in milliseconds, still a number that every reader holds


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The last attempt failed."""

    error: Exception
    is_fatal: bool
    attempts: int
    timed_out: bool

    @property
    def hint(self) -> float | None:
        """Seconds that the failure asked to wait; a wait without end is no hint."""
        hint: object = self.error.retry_after if isinstance(self.error, Transient) else None
        # A node may have put anything there, and a row has whole milliseconds.
        if not isinstance(hint, (int, float)) or not abs(hint) <= _LONGEST_HINT:
            return None
        return max(hint, 0.0)


def give_up(spec: NodeSpec[S], end: Raised | Cut, attempts: int) -> GaveUp:
    """What the failed attempt is, should no other follow it."""
    if isinstance(end, Raised):
        return GaveUp(end.error, spec.retry.is_fatal(end.error), attempts, timed_out=False)
    milliseconds = round((spec.timeout or 0) * 1000)
    error = Transient(f"node '{spec.name}' timed out after {milliseconds} ms")
    return GaveUp(error, is_fatal=False, attempts=attempts, timed_out=True)


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
