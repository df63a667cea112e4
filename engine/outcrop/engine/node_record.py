"""What is told of one node while it runs: its events, each exactly once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from .cancellation import is_dropped, task_cancels
from .commit import Overtaken
from .events import ErrorType, NodeCompleted, NodeResult, NodeStarted, RetryScheduled
from .failures import error_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .failures import GaveUp
    from .run import Run


_NOTHING = nullcontext()


class NodeRecord:
    """One execution of the node at `path`, attempt after attempt. Silent where nobody watches."""

    __slots__ = ("_attempt", "_cancels_before", "_completed", "_recorder", "_run", "_started_at", "path")

    def __init__(self, run: Run, path: str) -> None:
        self.path = path
        self._run = run
        self._recorder = run.recorder
        self._attempt = 1
        self._completed = self._recorder is None
        self._started_at = 0.0
        self._cancels_before = 0 if self._recorder is None else task_cancels()

    def started(self) -> None:
        """The first attempt begins."""
        if self._recorder is not None:
            self._started_at = self._run.clock.monotonic()
            self._recorder.emit(NodeStarted(), self.path, 1)

    def attempt(self, number: int) -> AbstractContextManager[None]:
        """Around the handler of this attempt."""
        self._attempt = number
        telemetry = None if self._recorder is None else self._recorder.telemetry
        return _NOTHING if telemetry is None else telemetry.attempt(self.path, number)

    def retrying(self, event: RetryScheduled) -> None:
        """The attempt failed, and another follows."""
        if self._recorder is not None:
            self._recorder.emit(event, self.path, self._attempt)

    def committed(self, following: str | None) -> None:
        """The node committed, and its level goes on at `following`, if it goes on."""
        self._complete(NodeResult.COMMITTED, following=following)

    def interrupted(self) -> None:
        """The node waits for somebody, inside it."""
        self._complete(NodeResult.INTERRUPTED)

    def cancelled(self) -> None:
        """The node was stopped."""
        self._complete(NodeResult.CANCELLED)

    def failed(self, end: GaveUp, message: str, fallback: str | None) -> None:
        """The node failed for good, and `fallback` takes over, if it has one."""
        if end.timed_out:
            type_ = ErrorType.TIMEOUT
        else:
            type_ = ErrorType.FATAL if end.is_fatal else ErrorType.TRANSIENT
        self._complete(NodeResult.FAILED, error=message, error_type=type_, fallback=fallback)

    def panicked(self, panic: BaseException) -> None:
        """The run ends in this node; a lost lease, or a run that was dropped, is no failure of it."""
        if isinstance(panic, Overtaken) or is_dropped(panic, self._cancels_before):
            self._complete(NodeResult.CANCELLED)
        else:
            self._complete(NodeResult.FAILED, error=error_text(panic), error_type=ErrorType.PANIC)

    def _complete(
        self,
        result: NodeResult,
        *,
        error: str | None = None,
        error_type: ErrorType | None = None,
        fallback: str | None = None,
        following: str | None = None,
    ) -> None:
        if self._completed or self._recorder is None:
            return
        self._completed = True
        took = self._run.clock.monotonic() - self._started_at
        event = NodeCompleted(result, took, error, error_type, fallback, following)
        self._recorder.emit(event, self.path, self._attempt)
