"""One life of a process that runs threads: where it has been, and its death at a chosen point.

Owns the crash. A crash strikes at the n-th failpoint: from then on the process is dead, and
whatever of it still unwinds gets `Crash` from every failpoint, effect and store call, so that it
neither saves nor does anything any more.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from outcrop.stores.testing import FailingStore, Faults

from .places import place_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.stores.port import Store

    from .clock import SkippingClock

T = TypeVar("T")

in_store: ContextVar[bool] = ContextVar("outcrop-in-store", default=False)
"""Whether a task works for the store, which outlives the process."""


class Crash(GeneratorExit):
    """The process is dead. A run that is closed writes and releases nothing."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The `number`-th point that a run comes to (from 1): a failpoint's name, and where it stands."""

    number: int
    name: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.number}. {self.name}{f' ({self.place})' if self.place else ''}"


@dataclass(slots=True)
class Life:
    """Told of every failpoint in turn; dies at the `dies_at`-th, if that is given."""

    dies_at: int | None = None
    points: list[CrashPoint] = field(default_factory=list[CrashPoint])
    is_dead: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reach(self, name: str) -> None:
        """The hook for `failpoints.armed`."""
        with self._lock:  # sync nodes reach effects on threads of their own
            self.check()
            self.points.append(CrashPoint(len(self.points) + 1, name, place_of(name)))
            if len(self.points) == self.dies_at:
                self.is_dead = True
                raise Crash(name)

    def check(self) -> None:
        """Raise `Crash` in a dead process."""
        if self.is_dead:
            raise Crash("the process is dead")


class MortalStore(FailingStore):
    """A store as one life sees it: time stands still during a call, and the dead call nothing."""

    def __init__(self, store: Store, life: Life, clock: SkippingClock) -> None:
        super().__init__(store)
        self.faults = _Mortality(life, clock)


class _Mortality(Faults):
    def __init__(self, life: Life, clock: SkippingClock) -> None:
        super().__init__()
        self._life = life
        self._clock = clock

    async def run(self, method: str, work: Callable[[], Awaitable[T]]) -> T:
        self._life.check()
        outside = in_store.set(True)
        try:
            with self._clock.held():
                answer = await super().run(method, work)
        finally:
            in_store.reset(outside)
        self._life.check()
        return answer
