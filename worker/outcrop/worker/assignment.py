"""One stay of a partition with this member, and the messages that belong to it.

A partition that goes and comes back is another assignment: what a handler of the earlier
one ends with is neither published nor committed (the row tells it to the new owner), or
two handlers of one command would both answer it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outcrop.engine.cancellation import CancelReason, CancelToken

from .control import Control
from .offsets import OffsetTracker
from .slots import Slot, Slots

if TYPE_CHECKING:
    from .ports import Message, Partition, Position


@dataclass(slots=True, eq=False)
class Entry:
    """A message on its way through a lane."""

    message: Message
    assignment: Assignment
    slot: Slot
    control: Control


@dataclass(slots=True, eq=False)
class Assignment:
    """A partition's stay: `number` is new each time, also for the same partition."""

    partition: Partition
    number: int
    committed: Position | None
    tracker: OffsetTracker = field(init=False)
    stop: CancelToken = field(default_factory=CancelToken)
    abandon: CancelToken = field(default_factory=CancelToken)
    over: CancelToken = field(default_factory=CancelToken)  # nothing that its handlers end with counts
    held: deque[Message] = field(default_factory=deque["Message"])  # came while the tracker was full
    _entries: set[Entry] = field(default_factory=set[Entry])
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.tracker = OffsetTracker(self.committed)
        self._idle.set()

    @property
    def open(self) -> bool:
        """Whether what its handlers end with still counts."""
        return not self.over.fired

    @property
    def accepting(self) -> bool:
        """Whether it takes messages: not while it is handed over, nor after."""
        return self.open and not self.stop.fired

    @property
    def buffered(self) -> int:
        """Its messages in the process, in flight ones included."""
        return len(self._entries) + len(self.held)

    @property
    def in_hand(self) -> int:
        """How many of its messages are queued or in flight."""
        return len(self._entries)

    def enter(self, message: Message, slots: Slots) -> Entry:
        """Make the message one of this assignment's."""
        slot = Slot(slots)
        control = Control(stop=self.stop, abandon=self.abandon, slot=slot)
        entry = Entry(message, self, slot, control)
        self._entries.add(entry)
        self._idle.clear()
        return entry

    def leave(self, entry: Entry) -> None:
        """The entry was handled, or dropped."""
        self._entries.discard(entry)
        if not self._entries:
            self._idle.set()

    def hand_over(self) -> None:
        """Take nothing more and ask what is in flight to stop at its next commit."""
        self.held.clear()
        self.stop.fire()

    def release(self) -> None:
        """Count nothing any more; what is still in flight keeps its lease until it ends or loses it."""
        self.hand_over()
        self.over.fire()

    def close(self) -> None:
        """Count nothing any more, and drop what is still in flight."""
        self.held.clear()
        self.over.fire()
        self.abandon.fire(CancelReason.LEASE_LOST)

    async def idle(self) -> None:
        """Return when nothing of it is queued or in flight."""
        await self._idle.wait()
