"""Cancel tokens: how a run, a node or a driver is told to stop.

A token fires once, with the first reason and cause given, and stays fired. Children fire
with their parent; firing a child leaves the parent alone. Callbacks run at once, in the
thread that fires (fire tokens on the event loop's thread); one that fails is logged, since a
node's callback must not keep the run from being stopped.

Cancelling the asyncio task of a run is another thing: that drops the run, see `is_dropped`.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)


class CancelReason(StrEnum):
    """Why a run was cancelled, as rows and results tell it."""

    REQUESTED = "requested"
    DEADLINE = "deadline"
    ENDED = "ended"
    LEASE_LOST = "lease_lost"


class CancelToken:
    """Fires once; `cause` is free for whoever fires (the worker puts its command there)."""

    __slots__ = ("_callbacks", "_reason", "cause")

    def __init__(self, parent: CancelToken | None = None) -> None:
        self._reason: CancelReason | None = None
        self._callbacks: dict[object, Callable[[], None]] = {}
        self.cause: object = None
        if parent is not None:
            parent.on_fire(lambda: self.fire(parent.reason or CancelReason.REQUESTED, parent.cause))

    @property
    def fired(self) -> bool:
        """Whether the token has fired."""
        return self._reason is not None

    @property
    def reason(self) -> CancelReason | None:
        """The reason it fired with, or None."""
        return self._reason

    def fire(self, reason: CancelReason = CancelReason.REQUESTED, cause: object = None) -> None:
        """Fire; later calls do nothing."""
        if self._reason is not None:
            return
        self._reason = reason
        self.cause = cause
        callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001 - whatever it raises, the others are called
                _log.exception("a callback of a cancel token failed; the others are called all the same")

    def on_fire(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when it fires (at once if it has); returns how to withdraw that."""
        if self._reason is not None:
            callback()
            return lambda: None
        key = object()
        self._callbacks[key] = callback

        def withdraw() -> None:
            self._callbacks.pop(key, None)

        return withdraw

    async def wait(self) -> None:
        """Return when it fires."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        withdraw = self.on_fire(lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            withdraw()


def is_dropped(panic: BaseException, cancels_before: int) -> bool:
    """Whether the run was dropped: its task cancelled from outside, or its coroutine closed.

    Not so when a node lets a cancellation of something else pass through: that is a panic.
    """
    if isinstance(panic, GeneratorExit):
        return True
    return isinstance(panic, asyncio.CancelledError) and task_cancels() > cancels_before


def task_cancels() -> int:
    """How many cancellations of the current task are pending."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
