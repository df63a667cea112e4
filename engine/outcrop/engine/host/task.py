"""A task of the program's own, run by the host like its drivers.

Owns nothing but the name and the interval: the host starts it again when it returns, and
later and later when it fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from .driver import schedule_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.engine.cancellation import CancelToken

    from .driver import Done


@dataclass(frozen=True, slots=True)
class Task:
    """Calls `work` with the host's stop token; work that goes on must return once that fires."""

    name: str
    work: Callable[[CancelToken], Awaitable[None]]
    interval: timedelta = timedelta(seconds=1)

    def refusal(self) -> str | None:
        """See `Driver`."""
        return schedule_refusal(self.name, self.interval)

    async def round(self, stop: CancelToken, done: Done) -> None:  # noqa: ARG002 - a task counts no threads
        """Call it once."""
        await self.work(stop)
