"""Stopping on request: the first signal drains, the second ends the process at once.

Exit codes: 0 drained clean; 1 the worker failed; 2 the settings or the graphs are off; 6
drained, but runs were cut off after `shutdown_timeout` (their leases expire, and a peer
goes on with them); 130 a second signal (or Ctrl-C) ended it at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from .logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

_log = EventLog("drain")


class ExitCode(IntEnum):
    """How a worker process ends."""

    CLEAN = 0
    FAILED = 1
    USAGE = 2
    CUT_OFF = 6
    AT_ONCE = 130


class Drain:
    """Whether the worker was asked to stop; made on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._signals = 0

    @property
    def asked(self) -> bool:
        """Whether it was asked to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask the worker to stop (on its loop)."""
        self._asked.set()

    async def wait(self) -> None:
        """Return when the worker was asked to stop."""
        await self._asked.wait()

    @contextmanager
    def on_signals(self) -> Generator[None, None, None]:
        """Take SIGTERM and SIGINT for requests to stop, inside; only in the main thread.

        Not through the loop's own signal handlers: those wait for the loop to turn, and the
        second signal must end a process whose loop a node blocks.
        """
        watched = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._on_signal) for number in watched}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(ExitCode.AT_ONCE)
        self._loop.call_soon_threadsafe(self._first, number)

    def _first(self, number: int) -> None:
        _log.info("drain.started", signal=signal.Signals(number).name)
        self.ask()
