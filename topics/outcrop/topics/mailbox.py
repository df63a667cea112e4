"""Outcomes on their way to whoever awaits them, by command ID.

Knows no broker. Invariant: memory is bounded by the slots that somebody holds, plus a fixed number of
bytes of outcomes that came when nobody did (a command sent again after an unclear send finds
its outcome there). The first outcome of a command stands; repeats are ignored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from .codec import decode_outcome
from .errors import BadOutcome, TopicsError

if TYPE_CHECKING:
    from uuid import UUID

    from .messages import Outcome

UNCLAIMED_BYTES: Final = 8 * 1024 * 1024


class Slot:
    """The place of one command's outcome; whoever holds it can await it, any number of times."""

    def __init__(self) -> None:
        self._filled = asyncio.Event()
        self._answer: Outcome | TopicsError | None = None

    def fill(self, answer: Outcome | TopicsError) -> None:
        """Set the answer, unless there is one."""
        if self._answer is None:
            self._answer = answer
            self._filled.set()

    async def outcome(self) -> Outcome:
        """Wait for the answer; raises it where it is an error."""
        await self._filled.wait()
        if isinstance(self._answer, TopicsError):
            raise self._answer
        assert self._answer is not None  # noqa: S101 - `fill` sets it before the event
        return self._answer


class Mailbox:
    """Sorts outcomes into slots."""

    def __init__(self, unclaimed_bytes: int = UNCLAIMED_BYTES) -> None:
        self._slots: WeakValueDictionary[UUID, Slot] = WeakValueDictionary()
        self._unclaimed: dict[UUID, bytes] = {}
        self._room = unclaimed_bytes
        self._closed: TopicsError | None = None

    def slot(self, command_id: UUID) -> Slot:
        """The command's slot, filled where its outcome has come already."""
        slot = self._slots.get(command_id)
        if slot is None:
            slot = self._slots[command_id] = Slot()
            if (value := self._unclaimed.pop(command_id, None)) is not None:
                self._room += len(value)
                slot.fill(decode_outcome(value))
            elif self._closed is not None:
                slot.fill(self._closed)
        return slot

    def deliver(self, value: bytes | None) -> None:
        """Take in a message of the outcome topic; what can't be read goes to its slot as an error."""
        try:
            outcome = decode_outcome(value)
        except BadOutcome as error:
            slot = None if error.command_id is None else self._slots.get(error.command_id)
            if slot is not None:
                slot.fill(error)
            return
        slot = self._slots.get(outcome.command_id)
        if slot is not None:
            slot.fill(outcome)
        elif value is not None:
            self._keep(outcome.command_id, value)

    def close(self, error: TopicsError) -> None:
        """Give every slot that is and will be open this answer: no outcome comes any more."""
        self._closed = error
        for slot in list(self._slots.values()):
            slot.fill(error)

    def _keep(self, command_id: UUID, value: bytes) -> None:
        if command_id in self._unclaimed:
            return
        self._unclaimed[command_id] = value
        self._room -= len(value)
        while self._room < 0:
            oldest = next(iter(self._unclaimed))
            self._room += len(self._unclaimed.pop(oldest))
