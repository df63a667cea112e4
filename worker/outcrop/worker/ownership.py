"""Whose work a thread's rows are: whether a command acted already, or was passed by a later one.

Pure: the first two steps of worker.md section 6, over rows and the command's identity. Knows no
store and no lease. Invariant: a command that acted is never told as refused, and one that was
answered before a later command of its partition acted never acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from outcrop.engine.metadata import COMMAND_ID, MESSAGE
from outcrop.stores.instants import instant_text
from outcrop.stores.record import Status
from outcrop.topics.ids import made_at
from outcrop.topics.messages import CommandType

from .marks import CANCEL_ID, RECOVERY_ID, RESUME_ID, RESUME_MESSAGE, Coordinates, coordinates_of, mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from outcrop.stores.record import Row

CLOCK_SLACK = timedelta(days=1)
"""How far a row's time may lie before the time in the ID of the command that wrote it, at the very most."""

CLOCK_SKEW = timedelta(seconds=2)
"""The same among clocks that are kept in step, as far as only a second send depends on it."""

_OWN_KEYS = {
    CommandType.RUN: (COMMAND_ID,),
    CommandType.RESUME: (COMMAND_ID, RESUME_ID),
    CommandType.SIGNAL: (COMMAND_ID, RESUME_ID),
    CommandType.WAKE: (COMMAND_ID, RESUME_ID),
    CommandType.UPDATE: (COMMAND_ID,),
    CommandType.RERUN: (COMMAND_ID, RESUME_ID),
    CommandType.END: (COMMAND_ID,),
    CommandType.CANCEL: (COMMAND_ID, CANCEL_ID),
    CommandType.RECOVER: (COMMAND_ID, RECOVERY_ID),
}
_ORDERED_BY_SEQUENCE = frozenset({CommandType.WAKE, CommandType.RECOVER})


@dataclass(frozen=True, slots=True)
class Claimant:
    """A command as rows know it."""

    type: CommandType
    command_id: UUID
    message: Coordinates


@dataclass(frozen=True, slots=True)
class Fresh:
    """No row is its work and none is of a later command: it may act."""


@dataclass(frozen=True, slots=True)
class Told:
    """A redelivery, whose outcome `row` tells."""

    row: Row


@dataclass(frozen=True, slots=True)
class InProgress:
    """A redelivery whose work isn't over; `row` is the thread's latest, left running."""

    row: Row


@dataclass(frozen=True, slots=True)
class Stamped:
    """A redelivery that left only the stamp `row`: nothing can continue it, if its run is dead.

    `is_over` where another command took the thread back since, so that no run of it can be alive.
    """

    row: Row
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class SecondSend:
    """The client sent the command again and the first message acted: nobody waits for this one."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A later command of the same partition acted, in `row`: this one was answered before that."""

    row: Row


Verdict: TypeAlias = Fresh | Told | InProgress | Stamped | SecondSend | Passed


def settled_by_latest(claimant: Claimant, latest: Row | None) -> bool:
    """Whether the latest row alone says that the command is fresh, so that no other need be read.

    A redelivery comes before whatever acted since, so a latest row of an earlier message rules it out.
    A second send comes behind, maybe with other commands between: it is ruled out where the
    latest row is older than the command.
    """
    if latest is None:
        return True
    message = coordinates_of(latest.checkpoint)
    if message is None or not message.is_before(claimant.message) or _is_own(claimant, latest):
        return False
    if claimant.type in _ORDERED_BY_SEQUENCE:
        return True
    made = _told_time(claimant.command_id, CLOCK_SKEW)
    return made is not None and latest.checkpoint.updated_at < made


def horizon(command_id: UUID) -> str | None:
    """The text of the time before which no row can be the command's; None if its ID has no time."""
    return _told_time(command_id, CLOCK_SLACK)


def _told_time(command_id: UUID, before: timedelta) -> str | None:
    try:
        made = made_at(command_id)
        return None if made is None else instant_text(made - before)
    except OverflowError:  # an ID that names a time past the year 9999
        return None


def judge(claimant: Claimant, rows: Sequence[Row]) -> Verdict:
    """What `rows`, the thread's latest ones in log order, say of the command."""
    own = [place for place, row in enumerate(rows) if _is_own(claimant, row)]
    if not own:
        return _passed(claimant, rows) or Fresh()
    if any(_is_of_another_message(claimant, rows[place]) for place in own):
        return SecondSend()
    tells = _telling(rows, own)
    if tells is not None:
        return Told(tells)
    latest, last_own = rows[-1], rows[own[-1]]
    if _is_stamp(last_own):
        return Stamped(last_own, is_over=latest is not last_own)
    return InProgress(latest)


def _telling(rows: Sequence[Row], own: Sequence[int]) -> Row | None:
    """The first own row at which work stopped; else the first after the last own one.

    Not the last: a peer that carries metadata on marks its later work as this command's. What another
    command did after a stamp tells nothing of it: it took the thread back.
    """
    later: Iterable[int] = range(own[-1] + 1, len(rows))
    if _is_stamp(rows[own[-1]]):
        later = (place for place in later if not mark(rows[place].checkpoint, COMMAND_ID))
    return next((rows[place] for place in (*own, *later) if _stopped(rows[place])), None)


def _passed(claimant: Claimant, rows: Sequence[Row]) -> Passed | None:
    if claimant.type in _ORDERED_BY_SEQUENCE:
        return None
    for row in rows:
        message = coordinates_of(row.checkpoint)
        if message is not None and claimant.message.is_before(message):
            return Passed(row)
    return None


def _is_own(claimant: Claimant, row: Row) -> bool:
    command_id = str(claimant.command_id)
    return any(mark(row.checkpoint, key) == command_id for key in _OWN_KEYS[claimant.type])


def _is_of_another_message(claimant: Claimant, row: Row) -> bool:
    """Whether the command wrote the row, or left its stamp, when it came in another message.

    A row that it only cancelled or recovered names the message of its own command.
    """
    return any(
        mark(row.checkpoint, wrote) == str(claimant.command_id)
        and mark(row.checkpoint, came_in) not in ("", str(claimant.message))
        for wrote, came_in in ((COMMAND_ID, MESSAGE), (RESUME_ID, RESUME_MESSAGE))
    )


def _stopped(row: Row) -> bool:
    return row.checkpoint.status is not Status.RUNNING and not _is_stamp(row)


def _is_stamp(row: Row) -> bool:
    return row.checkpoint.resumed_at is not None
