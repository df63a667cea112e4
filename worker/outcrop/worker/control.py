"""How a lane steers the handling of one message, and what comes of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from outcrop.engine.cancellation import CancelToken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from .ports import Message, Record
    from .slots import Slot


@dataclass(frozen=True, slots=True)
class Control:
    """Given to the handler with each message.

    `cancel` fires when a cancel or an end of the same thread was fetched behind this message (its
    `cause` is that command's ID as text): the run in flight stops at once, a queued one
    before its first node. `stop` fires when the partition is being handed over or the
    worker stops: the run stops at its next commit. `abandon` fires when the partition is lost or the
    handover's time is up: the run is dropped as on a lost lease. `slot` is the handler's place
    among those at work, already taken; without one nothing limits it.
    """

    cancel: CancelToken = field(default_factory=CancelToken)
    stop: CancelToken = field(default_factory=CancelToken)
    abandon: CancelToken = field(default_factory=CancelToken)
    slot: Slot | None = None

    @asynccontextmanager
    async def parked(self) -> AsyncGenerator[None, None]:
        """Wait inside (for a lease, a retry) without keeping another thread from running.

        On the way out a slot is waited for again, unless `stop` or `abandon` fires: then
        the handler has only to come to its end.
        """
        if self.slot is None:
            yield
            return
        self.slot.free()
        try:
            yield
        finally:
            await self.slot.take(unless=(self.stop, self.abandon))


@dataclass(frozen=True, slots=True)
class Handled:
    """The message is done once `records` are published: its outcome, copies, dead letters."""

    records: Sequence[Record] = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The message is not done and this worker won't finish it: its offset stays uncommitted."""


class MessageHandler(Protocol):
    """Carries out one message; never raises for anything a message or a node can do."""

    async def handle(self, message: Message, control: Control) -> Handled | Unfinished:
        """Run the message to its outcome, waiting out leases and store failures as needed."""
        ...
