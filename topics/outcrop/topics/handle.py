"""A command that was sent, and its outcome when it comes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from .errors import OutcomeTimeout

if TYPE_CHECKING:
    from uuid import UUID

    from .mailbox import Slot
    from .messages import Outcome


class Handle:
    """One sent command; keep it as long as its outcome matters."""

    def __init__(self, thread_id: str, command_id: UUID, slot: Slot) -> None:
        self.thread_id = thread_id
        self.command_id = command_id
        self._slot = slot

    async def outcome(self, *, timeout: float | timedelta | None = None) -> Outcome:  # noqa: ASYNC109 - the API promised
        """Wait for the command's outcome; again and again, if wanted.

        `timeout` is in seconds; None waits as long as it takes. Raises `OutcomeTimeout` when
        it passes (the command goes on and the handle stays usable), `ClientClosed`, `OutcomesLost`, and
        `BadOutcome` for an outcome that this version can't read.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._slot.outcome()
        except TimeoutError:
            raise OutcomeTimeout(self.thread_id, self.command_id, seconds or 0.0) from None
