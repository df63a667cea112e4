"""A run's events, numbered and handed out: to telemetry at once, to the observer off the loop.

Owns the numbering and the delivery. An observer is called on a thread of its own pool, one
event at a time and in order; what it raises is counted and logged, and nothing it does holds
the run up. Telemetry is called in line, because spans have to be current while nodes run.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeAlias

from .events import RunEvent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .clock import Clock
    from .events import EventKind

_log = logging.getLogger(__name__)

Observer: TypeAlias = Callable[[RunEvent], None]
"""Told of every event of a run, in order, on a thread that isn't the event loop's."""


class RunTelemetry(Protocol):
    """One run as telemetry sees it; called on the event loop, and must be quick.

    What it raises is logged and counted (`observer_failed`), and never the run's concern.
    """

    def observed(self, event: RunEvent) -> None:
        """An event, as it happens."""
        ...

    def attempt(self, path: str, number: int) -> AbstractContextManager[None]:
        """Around one attempt of the node or branch at `path`; entered and left in the task that runs it."""
        ...

    def loaded(self, seconds: float, status: str | None) -> None:
        """The thread's latest row was loaded; `status` is None where there was none."""
        ...

    def held(self) -> None:
        """Another live lease kept the call out."""
        ...

    def observer_failed(self) -> None:
        """The run's observer raised, or this telemetry did; called on any thread."""
        ...


class Telemetry(Protocol):
    """What an engine is given to be watched by: one object for all its runs."""

    def run(self, thread_id: str, run_id: str) -> RunTelemetry:
        """A run begins."""
        ...


class Recorder:
    """One run's events."""

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        clock: Clock,
        *,
        observer: Observer | None = None,
        telemetry: RunTelemetry | None = None,
    ) -> None:
        self._thread_id = thread_id
        self._run_id = run_id
        self._clock = clock
        self._telemetry = telemetry
        self._delivery = None if observer is None else _Delivery(observer, self._observer_failed)
        self._sequence = 0

    def emit(self, kind: EventKind, path: str | None = None, attempt: int | None = None) -> None:
        """Hand an event out."""
        self._sequence += 1
        event = RunEvent(
            thread_id=self._thread_id,
            run_id=self._run_id,
            sequence=self._sequence,
            timestamp=self._clock.now(),
            kind=kind,
            node_path=path,
            attempt=attempt,
        )
        if self._telemetry is not None:
            self._telemetry.observed(event)
        if self._delivery is not None:
            self._delivery.add(event)

    @property
    def telemetry(self) -> RunTelemetry | None:
        """Who is told in line."""
        return self._telemetry

    def _observer_failed(self) -> None:
        if self._telemetry is not None:
            self._telemetry.observer_failed()


class _Delivery:
    """Events on their way to one observer, drained by one thread at a time."""

    def __init__(self, observer: Observer, failed: Callable[[], None]) -> None:
        self._observer = observer
        self._failed = failed
        self._events: deque[RunEvent] = deque()
        self._lock = threading.Lock()
        self._draining = False

    def add(self, event: RunEvent) -> None:
        with self._lock:
            self._events.append(event)
            if self._draining:
                return
            self._draining = True
        _threads().submit(self._drain)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._events:
                    self._draining = False
                    return
                event = self._events.popleft()
            try:
                self._observer(event)
            except Exception:  # noqa: BLE001 - whatever it raises, the run goes on
                self._failed()
                _log.exception("a run's observer failed at event %s", event.sequence)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, thread_name_prefix="outcrop-observer")
