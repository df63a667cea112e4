"""Telemetry that can't break a run: what it raises is logged and counted, and the run goes on.

Owns the boundary between a run and whatever it is told to; knows no telemetry of its own.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .events import RunEvent
    from .recorder import RunTelemetry, Telemetry

_log = logging.getLogger(__name__)


class Guarded:
    """One run's telemetry, whose own failures count as those of an observer."""

    def __init__(self, inner: RunTelemetry) -> None:
        self._inner = inner

    @classmethod
    def of(cls, telemetry: Telemetry | None, thread_id: str, run_id: str) -> Guarded | None:
        """The telemetry of one run; None where there is none, or it fails at once."""
        if telemetry is None:
            return None
        try:
            return cls(telemetry.run(thread_id, run_id))
        except Exception:  # noqa: BLE001 - whatever telemetry raises, the run goes on
            _log.exception("telemetry failed at the start of a run, which goes on without it")
            return None

    def observed(self, event: RunEvent) -> None:
        """See `RunTelemetry`."""
        self._try(lambda: self._inner.observed(event))

    @contextmanager
    def attempt(self, path: str, number: int) -> Generator[None]:
        """See `RunTelemetry`; what the attempt itself raises isn't shown to it."""
        leave: Callable[[], object] | None = None

        def enter() -> None:
            nonlocal leave
            around = self._inner.attempt(path, number)
            around.__enter__()
            leave = lambda: around.__exit__(None, None, None)  # noqa: E731 - set once entered

        self._try(enter)
        try:
            yield
        finally:
            if leave is not None:
                self._try(leave)

    def loaded(self, seconds: float, status: str | None) -> None:
        """See `RunTelemetry`."""
        self._try(lambda: self._inner.loaded(seconds, status))

    def held(self) -> None:
        """See `RunTelemetry`."""
        self._try(self._inner.held)

    def observer_failed(self) -> None:
        """See `RunTelemetry`."""
        try:
            self._inner.observer_failed()
        except Exception:  # noqa: BLE001 - whatever telemetry raises, the run goes on
            _log.exception("telemetry failed to count a failure")

    def _try(self, told: Callable[[], object]) -> None:
        try:
            told()
        except Exception:  # noqa: BLE001 - whatever telemetry raises, the run goes on
            _log.exception("telemetry failed; the run goes on")
            self.observer_failed()
