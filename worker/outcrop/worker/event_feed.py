"""What happens in this worker's runs, on its way to the events topic.

Owns the queue between runs and the broker. Invariant: no run waits for a reader, for the broker or
for this queue: what finds no room, or isn't delivered at once, is left out and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import to_jsonable_python

from outcrop.engine import events as engine
from outcrop.engine.chunks import ChunkType
from outcrop.topics.events import Event, EventType, encode_event
from outcrop.topics.headers import EVENT_HEADERS
from outcrop.topics.keys import encode_key

from .errors import PublishFailed
from .logs import EventLog
from .ports import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine.chunks import ChunkStream
    from outcrop.engine.clock import Clock

    from .metrics import Metrics
    from .ports import Outbox

CAPACITY: Final = 16 * 1024 * 1024
"""Bytes of keys and values that wait at most."""

TYPES: Final[dict[type[engine.EventKind], EventType]] = {
    engine.RunStarted: EventType.RUN_STARTED,
    engine.Resumed: EventType.RESUMED,
    engine.Recovered: EventType.RECOVERED,
    engine.NodeStarted: EventType.NODE_STARTED,
    engine.NodeCompleted: EventType.NODE_COMPLETED,
    engine.RetryScheduled: EventType.RETRY_SCHEDULED,
    engine.BranchStarted: EventType.BRANCH_STARTED,
    engine.BranchCompleted: EventType.BRANCH_COMPLETED,
    engine.MapExpanded: EventType.MAP_EXPANDED,
    engine.JoinDecided: EventType.JOIN_DECIDED,
    engine.CheckpointSaved: EventType.CHECKPOINT_SAVED,
    engine.InterruptedAt: EventType.INTERRUPTED_AT,
    engine.HopLimitExceeded: EventType.HOP_LIMIT_EXCEEDED,
    engine.LeaseAcquired: EventType.LEASE_ACQUIRED,
    engine.LeaseWasLost: EventType.LEASE_LOST,
    engine.RunCompleted: EventType.RUN_COMPLETED,
}

_BATCH = 500
_CLOSING = 5.0
_log = EventLog("events")


class EventFeed:
    """Publishes events in batches, one after the other; made on the event loop."""

    def __init__(
        self, outbox: Outbox, topic: str, *, clock: Clock, metrics: Metrics, capacity: int = CAPACITY
    ) -> None:
        self._outbox = outbox
        self._topic = topic
        self._clock = clock
        self._metrics = metrics
        self._lock = Lock()
        self._waiting: deque[Record] = deque()
        self._room = capacity
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._publishing = asyncio.create_task(self._publish(), name="outcrop-events")

    def observe(self, event: engine.RunEvent) -> None:
        """Take a run's event, on whatever thread."""
        self._add(lambda: event_of(event))

    async def relay(self, thread_id: str, run_id: str, stream: ChunkStream) -> None:
        """Take the tokens of a run until its stream closes."""
        taken = 0
        async for chunk in stream:
            if chunk.type is not ChunkType.TOKEN:  # the others are events too
                continue
            taken += 1
            token = partial(
                Event,
                type=EventType.TOKEN,
                thread_id=thread_id,
                run_id=run_id,
                sequence=taken + stream.dropped,
                at=self._clock.now(),
                node=chunk.node_name,
                data={"content": chunk.content},
            )
            self._add(token)

    async def close(self) -> None:
        """Publish what waits, for a few seconds at most; what comes later is left out."""
        self._closing = True
        self._filled.set()
        await asyncio.wait([self._publishing], timeout=_CLOSING)
        self._publishing.cancel()
        await asyncio.wait([self._publishing])
        self._left_out(len(self._waiting), "closing")

    def _add(self, told: Callable[[], Event]) -> None:
        try:
            event = told()
            record = Record(self._topic, encode_key(event.thread_id), encode_event(event), EVENT_HEADERS)
        except Exception as error:  # noqa: BLE001 - nodes stream and raise what no JSON holds; no run may suffer
            _log.warning("events.unfit", kind=type(error).__name__)
            self._left_out(1, "unfit")
            return
        with self._lock:
            size = _size(record)
            has_room = size <= self._room and not self._closing
            is_first = has_room and not self._waiting
            if has_room:
                self._room -= size
                self._waiting.append(record)
        if not has_room:
            self._left_out(1, "closing" if self._closing else "full")
        elif is_first:
            self._loop.call_soon_threadsafe(self._filled.set)

    async def _publish(self) -> None:
        while True:
            batch = self._take()
            if batch:
                await self._send(batch)
            elif self._closing:
                return
            else:
                self._filled.clear()
                await self._filled.wait()

    def _take(self) -> list[Record]:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            self._room += sum(map(_size, batch))
        return batch

    async def _send(self, batch: list[Record]) -> None:
        lost = 0
        try:
            await self._outbox.publish(batch)
        except PublishFailed as error:
            lost = len(error.undelivered)
            _log.warning("events.lost", count=lost, reason=error.undelivered[0].reason)
        except asyncio.CancelledError:
            self._left_out(len(batch), "closing")
            raise
        self._metrics.count("outcrop_events_published_total", len(batch) - lost)
        self._left_out(lost, "undelivered")

    def _left_out(self, count: int, reason: str) -> None:
        if count:
            self._metrics.count("outcrop_events_left_out_total", count, reason=reason)


def event_of(event: engine.RunEvent) -> Event:
    """A run's event as its message."""
    told = cast("dict[str, Any]", to_jsonable_python(event.kind))
    return Event(
        type=TYPES[type(event.kind)],
        thread_id=event.thread_id,
        run_id=event.run_id,
        sequence=event.sequence,
        at=event.timestamp,
        node=event.node_path,
        attempt=event.attempt,
        data={name: value for name, value in told.items() if value is not None},
    )


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
