"""What rows carry of the commands that wrote them: the `outcrop.` keys of their metadata.

Owns the keys, the coordinates of a message as text, and the marks that one handling puts on
the rows it writes (worker.md section 5). Without these marks a redelivered command couldn't know
its own work, and would be carried out twice or refused after it acted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from outcrop.engine.metadata import CANCEL_REASON, COMMAND_ID, MESSAGE
from outcrop.stores.record import Status

if TYPE_CHECKING:
    from outcrop.engine.cancellation import CancelToken
    from outcrop.stores.record import Checkpoint, Lease

TOKEN: Final = "outcrop.token"  # noqa: S105 - a lease's number, no secret
RECOVERY_ID: Final = "outcrop.recovery_id"
CANCEL_ID: Final = "outcrop.cancel_id"
RESUME_ID: Final = "outcrop.resume_id"
RESUME_MESSAGE: Final = "outcrop.resume_message"

_STOPPED_ON_REQUEST: Final = "requested"


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a message lies: topic ID, partition and offset."""

    topic_id: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}/{self.offset}"

    def is_before(self, other: Coordinates) -> bool:
        """Whether both lie in one partition and this one comes first; elsewhere there is no order."""
        return (
            self.topic_id == other.topic_id
            and self.partition == other.partition
            and self.offset < other.offset
        )


def coordinates_of(checkpoint: Checkpoint) -> Coordinates | None:
    """The message that wrote a row, be it as a stamp; None for a row of an engine without a worker."""
    match (mark(checkpoint, RESUME_MESSAGE) or mark(checkpoint, MESSAGE)).rsplit("/", 2):
        case [topic_id, partition, offset] if _is_count(partition) and _is_count(offset):
            return Coordinates(topic_id, int(partition), int(offset))
        case _:
            return None


def mark(checkpoint: Checkpoint, key: str) -> str:
    """One mark of a row, or the empty text."""
    return (checkpoint.metadata or {}).get(key, "")


class Marks:
    """The marks of one handling's rows; `last` is the row it was asked about last.

    `continues` is true for a recovery: the engine then keeps the ID and the message of the
    command that the thread is in the middle of, and this handling adds only its own.
    `cancel_id` is the cancel that is being handled itself; one behind the message comes
    as the cause of `cancellation`.
    """

    def __init__(
        self,
        command_id: str,
        message: Coordinates,
        *,
        cancellation: CancelToken,
        continues: bool = False,
        recovery_id: str | None = None,
        cancel_id: str | None = None,
    ) -> None:
        self._own = {} if continues else {COMMAND_ID: command_id, MESSAGE: str(message)}
        if recovery_id is not None:
            self._own[RECOVERY_ID] = recovery_id
        self._cancel_id = cancel_id
        self._stamp = {RESUME_ID: command_id, RESUME_MESSAGE: str(message)}
        self._cancellation = cancellation
        self.last: Checkpoint | None = None

    def __call__(self, row: Checkpoint, *, stamp: bool, lease: Lease | None) -> dict[str, str]:
        """Mark one row that is about to be saved."""
        if stamp:
            return dict(self._stamp)
        marks = dict(self._own)
        if lease is not None:
            marks[TOKEN] = str(lease.token)
        if (cause := self._cause(row)) is not None:
            marks[CANCEL_ID] = cause
        self.last = replace(row, metadata={**(row.metadata or {}), **marks})
        return marks

    def _cause(self, row: Checkpoint) -> str | None:
        if row.status is not Status.CANCELLED or mark(row, CANCEL_REASON) != _STOPPED_ON_REQUEST:
            return None
        cause = self._cancellation.cause
        return cause if isinstance(cause, str) else self._cancel_id


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()
