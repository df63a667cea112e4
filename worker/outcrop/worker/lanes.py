"""Lanes: messages of one thread one after the other, threads side by side.

A lane is the messages of one key in one assignment, in log order; a message without a key
is a lane of its own. Knows nothing of what handling means. A `cancel` or an `end` keeps its
place, but fires the cancel token of everything in front of it, in flight or queued.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from outcrop.engine.cancellation import CancelReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .assignment import Assignment, Entry
    from .ports import Message

Overtakes: TypeAlias = "Callable[[Message], str | None]"
"""The command ID of a message that stops the runs in front of it, else None."""

_Key: TypeAlias = "tuple[int, bytes | int]"


@dataclass(slots=True)
class _Lane:
    front: Entry | None = None
    queue: deque[Entry] = field(default_factory=deque["Entry"])


class Lanes:
    """Runs `work` for each entry; where it returns False the rest of the lane is dropped."""

    def __init__(self, work: Callable[[Entry], Awaitable[bool]], overtakes: Overtakes) -> None:
        self._work = work
        self._overtakes = overtakes
        self._lanes: dict[_Key, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """The lanes at work now."""
        return frozenset(self._tasks)

    def add(self, entry: Entry) -> int:
        """Queue the entry behind its thread's earlier ones; returns how many runs it stops."""
        key = _key(entry)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
            lane.queue.append(entry)
            task = asyncio.get_running_loop().create_task(self._run(key, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return 0
        stopped = self._overtake(lane, entry)
        lane.queue.append(entry)
        return stopped

    def drop(self, assignment: Assignment) -> int:
        """Forget the assignment's queued entries, not those in flight; returns how many."""
        lanes = [lane for (number, _), lane in self._lanes.items() if number == assignment.number]
        return sum(_clear(lane) for lane in lanes)

    def _overtake(self, lane: _Lane, entry: Entry) -> int:
        cause = self._overtakes(entry.message)
        if cause is None:
            return 0
        in_front = [*([lane.front] if lane.front else []), *lane.queue]
        for other in in_front:
            other.control.cancel.fire(CancelReason.REQUESTED, cause)
        return len(in_front)

    async def _run(self, key: _Key, lane: _Lane) -> None:
        try:
            while lane.queue:
                lane.front = lane.queue.popleft()
                if not await self._work(lane.front):
                    _clear(lane)
                lane.front.assignment.leave(lane.front)
                lane.front = None
        finally:
            del self._lanes[key]
            if lane.front is not None:
                lane.front.assignment.leave(lane.front)
            _clear(lane)


def _key(entry: Entry) -> _Key:
    """A number stands for a missing key: the message's own offset."""
    return entry.assignment.number, entry.message.key or entry.message.offset


def _clear(lane: _Lane) -> int:
    dropped = len(lane.queue)
    for entry in lane.queue:
        entry.assignment.leave(entry)
    lane.queue.clear()
    return dropped
