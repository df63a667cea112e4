"""What is told of one call: that it started and how it ended, and what befell its lease.

Owns the events around a run's nodes; each run that started is told to have completed, once.
Silent where nobody watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cancellation import CancelReason
from .events import ErrorType, LeaseAcquired, LeaseWasLost, RunCompleted, RunOutcome, RunStarted
from .failures import error_text
from .guarded import Guarded
from .outcome import Cancelled, Completed, Failed, FailureKind, Interrupted, Refused, Stopped
from .recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import Lease, Row

    from .call import Engine
    from .events import RunMode
    from .options import RunOptions
    from .outcome import RunResult
    from .recorder import RunTelemetry


class RunRecord:
    """One call as observers and telemetry see it; `recorder` is None where there are none."""

    def __init__(self, engine: Engine[Any], recorder: Recorder | None, mode: RunMode, priority: int) -> None:
        self.recorder = recorder
        self.queued_for: float | None = None
        self._engine = engine
        self._mode = mode
        self._priority = priority
        self._started_at: float | None = None
        self._lease: Lease | None = None

    @classmethod
    def of(
        cls, engine: Engine[Any], thread_id: str, run_id: str, options: RunOptions, mode: RunMode
    ) -> RunRecord:
        """The record of a call with these options."""
        recorder = None
        if options.observer is not None or engine.telemetry is not None:
            telemetry = Guarded.of(engine.telemetry, thread_id, run_id)
            recorder = Recorder(
                thread_id, run_id, engine.clock, observer=options.observer, telemetry=telemetry
            )
        return cls(engine, recorder, mode, options.priority)

    def started(self, node: str, metadata: Mapping[str, str]) -> None:
        """The run begins at `node`, with this metadata of its callers."""
        if self.recorder is None:
            return
        self._started_at = self._engine.clock.monotonic()
        graph = self._engine.graph.identity
        self.recorder.emit(
            RunStarted(self._mode, node, dict(metadata), graph, self.queued_for, self._priority)
        )

    def started_nowhere(self, metadata: Mapping[str, str]) -> None:
        """The run ends before a row was found to begin from."""
        if self._started_at is None:
            self.started("", metadata)

    def loaded(self, since: float, row: Row | None) -> None:
        """The thread's latest row was asked for at `since`, and is this one."""
        if (telemetry := self._telemetry) is not None:
            status = None if row is None else row.checkpoint.status.value
            telemetry.loaded(self._engine.clock.monotonic() - since, status)

    def holding(self, lease: Lease) -> None:
        """The run has its lease."""
        self._lease = lease
        if self.recorder is not None:
            self.recorder.emit(LeaseAcquired(lease.owner, lease.token, lease.expires_at))

    def held(self) -> None:
        """Somebody else's lease keeps the call out."""
        if (telemetry := self._telemetry) is not None:
            telemetry.held()

    def lost(self) -> None:
        """The lease is lost; told once."""
        lease, self._lease = self._lease, None
        if lease is not None and self.recorder is not None:
            self.recorder.emit(LeaseWasLost(lease.owner, lease.token))

    def ended(self, result: RunResult[Any]) -> None:
        """The call came to this."""
        if isinstance(result, Cancelled) and result.reason is CancelReason.LEASE_LOST:
            self.lost()
        self._complete(result)

    def died(self, error: BaseException, *, dropped: bool) -> None:
        """The call ended in what is no result; a dropped one leaves its thread as it is."""
        if self.recorder is None or self._started_at is None:
            return
        took = self._engine.clock.monotonic() - self._started_at
        if dropped:
            self.recorder.emit(RunCompleted(RunOutcome.STOPPED, took))
        else:
            self.recorder.emit(RunCompleted(RunOutcome.FAILED, took, error_text(error), ErrorType.PANIC))

    def _complete(self, result: RunResult[Any]) -> None:
        if self.recorder is None or self._started_at is None:
            return
        took = self._engine.clock.monotonic() - self._started_at
        self._started_at = None
        match result:
            case Completed():
                told = RunCompleted(RunOutcome.COMPLETED, took)
            case Interrupted():
                told = RunCompleted(RunOutcome.INTERRUPTED, took)
            case Stopped():
                told = RunCompleted(RunOutcome.STOPPED, took)
            case Cancelled(reason=reason):
                told = RunCompleted(RunOutcome.CANCELLED, took, cancel_reason=reason.value)
            case Failed(kind=kind, message=message):
                type_ = ErrorType.HOP_LIMIT if kind is FailureKind.HOP_LIMIT else None
                told = RunCompleted(RunOutcome.FAILED, took, message, type_)
            case Refused(message=message):
                told = RunCompleted(RunOutcome.FAILED, took, message)
        self.recorder.emit(told)

    @property
    def _telemetry(self) -> RunTelemetry | None:
        return None if self.recorder is None else self.recorder.telemetry
