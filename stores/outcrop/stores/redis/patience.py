"""A timeout for one wait after another that leaves its timer running in between.

`asyncio.timeout` sets and cancels a timer for each wait, which is a good part of what a call to a
server nearby costs. Here the one timer looks, when it fires, whether the wait of that moment is over
its time, and otherwise sets itself for then. As with `asyncio.timeout`, a wait that is over its time
is cancelled and ends as `TimeoutError`, unless its task was cancelled by somebody else too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Patience:
    """Ends the `with` block that waits for too long; one at a time."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self._seconds = 0.0
        self._deadline = 0.0
        self._is_over = False

    def within(self, seconds: float) -> Self:
        """Allow the block that many seconds, and as many again after each `renew`."""
        self._seconds = seconds
        return self

    def renew(self) -> None:
        """Begin to count anew: something came."""
        self._deadline = asyncio.get_running_loop().time() + self._seconds

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - only coroutines wait
        self._task, self._cancels_before = task, task.cancelling()
        self.renew()
        # A timer of a longer wait before would fire too late for a shorter one.
        if self._timer is None or self._timer.when() > self._deadline:
            self._set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._is_over and task is not None:
            self._is_over = False
            if task.uncancel() <= self._cancels_before and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _set(self) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._deadline > asyncio.get_running_loop().time():
            self._set()
        else:
            self._is_over = True
            self._task.cancel()
