"""How long a handler waits before it looks at a thread again.

Owns the backoff of one handling. Waiting ends early when the worker has to leave the message, and
keeps no slot meanwhile, so that a held thread holds up only itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from outcrop.engine.clock import Clock

    from .control import Control

SHORTEST: Final = 0.05
LONGEST: Final = 2.0


class Pauses:
    """Doubling, jittered pauses of 50 ms to 2 s; `uniform` draws from [0, 1)."""

    def __init__(self, clock: Clock, control: Control, uniform: Callable[[], float]) -> None:
        self._clock = clock
        self._control = control
        self._uniform = uniform
        self._ceiling = SHORTEST

    async def take(self, until: datetime | None = None) -> None:
        """Wait, but hardly longer than `until`, when the lease in the way expires."""
        delay = self._ceiling * (1 + self._uniform()) / 2
        self._ceiling = min(self._ceiling * 2, LONGEST)
        if until is not None:
            left = (until - self._clock.now()).total_seconds()
            delay = min(delay, max(left, SHORTEST / 2))
        async with self._control.parked():
            await self._wait(delay)

    async def _wait(self, delay: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if not done.done():
                done.set_result(None)

        withdrawals = [token.on_fire(settle) for token in (self._control.stop, self._control.abandon)]
        timer = self._clock.call_later(delay, settle)
        try:
            await done
        finally:
            timer.cancel()
            for withdraw in withdrawals:
                withdraw()
