"""A host without Kafka: runs drivers until it is told to stop, and tells how they do.

Owns when drivers start and end, and their status. Knows nothing of what a driver does.
Invariants: nothing starts unless every driver can; no driver's failure ends the host; no
task outlives `run`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outcrop.engine.clock import SystemClock

from .errors import HostRefused
from .rounds import run_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock

    from .driver import Driver

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStatus:
    """How a driver does: what it did since the host was made, and how its last round ended.

    `rounds` counts the `failed_rounds` too. `threads` are those that it woke, recovered or
    purged. `last_failure` is the error's type only, whose text might hold a secret; a good
    round clears it.
    """

    name: str
    rounds: int = 0
    failed_rounds: int = 0
    failures_in_a_row: int = 0
    threads: int = 0
    last_round_at: datetime | None = None
    last_failure: str | None = None


class Host:
    """Runs `drivers` side by side."""

    def __init__(self, drivers: Sequence[Driver], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._driven = [_Driven(driver, self._clock) for driver in drivers]

    @property
    def status(self) -> tuple[DriverStatus, ...]:
        """How each driver does, in the order they were given."""
        return tuple(driven.status for driven in self._driven)

    async def run(self, stop: CancelToken) -> None:
        """Run every driver until `stop` fires and the rounds in flight have ended.

        A driver that waits ends at once, one in a round begins nothing new; no run is
        cancelled. Raises `HostRefused`, before anything starts, when a driver lacks what it
        needs. Cancelling this call instead drops the runs in flight.
        """
        for driven in self._driven:
            if (refused := driven.driver.refusal()) is not None:
                raise HostRefused(refused)
        async with asyncio.TaskGroup() as group:
            for driven in self._driven:
                group.create_task(driven.run(stop), name=f"outcrop {driven.driver.name}")


class _Driven:
    """A driver and its status."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self.driver = driver
        self.status = DriverStatus(name=driver.name)
        self._clock = clock

    async def run(self, stop: CancelToken) -> None:
        """Run it in rounds."""
        await run_rounds(
            lambda: self.driver.round(stop, self._done),
            interval=self.driver.interval.total_seconds,
            clock=self._clock,
            stop=stop,
            told=self._told,
        )

    def _done(self, threads: int) -> None:
        self.status = replace(self.status, threads=self.status.threads + threads)

    def _told(self, failure: BaseException | None, wait: float) -> None:
        status, kind = self.status, None if failure is None else type(failure).__name__
        self.status = replace(
            status,
            rounds=status.rounds + 1,
            failed_rounds=status.failed_rounds + (kind is not None),
            failures_in_a_row=0 if kind is None else status.failures_in_a_row + 1,
            last_round_at=self._clock.now(),
            last_failure=kind,
        )
        if kind is not None:
            _log.warning("a round of %s failed (%s); the next is in %g s", status.name, kind, wait)
