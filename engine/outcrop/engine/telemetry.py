"""Runs as OpenTelemetry spans and metrics; needs the API (`pip install 'outcrop[telemetry]'`).

Owns the names, attributes and parents of engine.md 9.4 and 9.5, and is the only module that
imports OpenTelemetry. Every run is told to it event by event. It reads no state: what it says
of a run are names, paths, counts, the caller's metadata and the messages of errors. Labels of
metrics are bounded: the items of a map share one path, `lines/*/Price`.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace import Status, StatusCode
except ImportError as error:
    raise ImportError(
        "opentelemetry-api is not installed: run pip install 'outcrop[telemetry]'", name=error.name
    ) from None

from .events import (
    BranchCompleted,
    BranchReason,
    BranchStarted,
    CheckpointSaved,
    ErrorType,
    HopLimitExceeded,
    JoinDecided,
    LeaseAcquired,
    LeaseWasLost,
    MapExpanded,
    NodeCompleted,
    NodeStarted,
    Recovered,
    Resumed,
    RetryScheduled,
    RunCompleted,
    RunMode,
    RunOutcome,
    RunStarted,
    WakeKind,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from datetime import timedelta

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from .events import RunEvent

SCOPE: Final = "outcrop.engine"

_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
_REASONS: Final = {
    BranchReason.TIMED_OUT: "timed_out",
    BranchReason.LOST_RACE: "lost_race",
    BranchReason.SIBLING_FAILED: "sibling_failed",
}


class OpenTelemetry:
    """Spans and metrics of the runs of any number of `Threads`, and of schedulers (as their `hook`).

    Without providers, the process's own are used. Spans take OpenTelemetry's time, durations
    the engine's clock's.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._instruments = _Instruments(metrics.get_meter(SCOPE, meter_provider=meter_provider))

    def run(self, thread_id: str, run_id: str) -> _RunTelemetry:
        """See `Telemetry`."""
        return _RunTelemetry(self._tracer, self._instruments, thread_id, run_id)

    def observed(self, name: str, outcome: str, priority: int, waited: timedelta) -> None:
        """See `SchedulerHook`."""
        labels = {"strata.scheduler.name": name, "strata.scheduler.outcome": outcome}
        self._instruments.admissions.add(1, {**labels, "strata.run.priority": priority})
        self._instruments.admission_wait.record(waited.total_seconds(), labels)

    def stands(self, name: str, *, queued: int, active: int) -> None:
        """See `SchedulerHook`."""
        self._instruments.admission_queued.set(queued, {"strata.scheduler.name": name})
        self._instruments.admission_active.set(active, {"strata.scheduler.name": name})


class _Instruments:
    """The metrics of engine.md 9.5."""

    def __init__(self, meter: metrics.Meter) -> None:
        def seconds(name: str, what: str) -> metrics.Histogram:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=_SECONDS)

        count, gauge = meter.create_counter, meter.create_gauge
        self.started = count("strata.graphs.started", "{run}", "Runs that began")
        self.active = meter.create_up_down_counter("strata.graphs.active", "{run}", "Runs at work")
        self.duration = seconds("strata.graph.duration", "How long runs took")
        self.node_duration = seconds("strata.node.duration", "How long nodes took, all attempts")
        self.retries = count("strata.node.retries", "{retry}", "Attempts that another followed")
        self.transitions = count("strata.graph.transition", "{transition}", "Ways taken between nodes")
        self.hop_limits = count("strata.graph.hop_limit_exceeded", "{run}", "Runs stopped by a hop limit")
        self.checkpoints = seconds("strata.checkpoint.latency", "How long the store took")
        self.observer_errors = count("strata.observer.errors", "{error}", "Failures of those who watch")
        self.wakes = count("strata.thread.wakes", "{wake}", "Threads woken by no person")
        self.acquisitions = count("strata.lease.acquisitions", "{lease}", "Leases asked for")
        self.losses = count("strata.lease.losses", "{lease}", "Leases lost by running runs")
        self.recoveries = count("strata.thread.recoveries", "{recovery}", "Dead threads taken over")
        self.admissions = count("strata.scheduler.admissions", "{run}", "Runs let in or kept out")
        self.admission_wait = seconds("strata.scheduler.wait", "How long runs waited for a slot")
        self.admission_queued = gauge("strata.scheduler.queued", "{run}", "Runs that wait for a slot")
        self.admission_active = gauge("strata.scheduler.active", "{run}", "Runs that have a slot")


@dataclass(slots=True)
class _Attempt:
    """The span of a node's latest attempt; it ends once it is known what came of it."""

    span: Span
    left_at: int | None = None  # nanoseconds since the epoch, as spans count

    def end(self, error_type: ErrorType | None = None, error: str | None = None) -> None:
        if error_type is not None:
            _mark(self.span, error_type, error)
        self.span.end(self.left_at)


class _RunTelemetry:
    """One run, from its first event to its last."""

    def __init__(self, tracer: trace.Tracer, instruments: _Instruments, thread_id: str, run_id: str) -> None:
        self._tracer = tracer
        self._instruments = instruments
        self._ids = {"strata.thread_id": thread_id, "strata.run_id": run_id}
        self._mode = RunMode.RUN
        self._run: Span = trace.INVALID_SPAN
        self._nodes: dict[str, Span] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._branches: dict[str, Span] = {}
        self._maps: set[str] = set()

    def observed(self, event: RunEvent) -> None:
        """See `recorder.RunTelemetry`."""
        kind, path, number = event.kind, event.node_path or "", event.attempt or 1
        match kind:
            case RunStarted():
                self._run_started(kind)
            case RunCompleted():
                self._run_completed(kind)
            case NodeStarted():
                self._nodes[path] = self._span(path, {"strata.node.path": path}, self._above(path))
            case NodeCompleted():
                self._node_completed(kind, path, number)
            case RetryScheduled():
                self._retry_scheduled(kind, path)
            case BranchStarted():
                self._branches[path] = self._span(path, _attempted(path, number), self._above(path))
            case BranchCompleted():
                self._branch_completed(kind, path)
            case MapExpanded() | JoinDecided() | HopLimitExceeded():
                self._told_inside(kind, path)
            case _:
                self._told_of_thread(kind)

    @contextmanager
    def attempt(self, path: str, number: int) -> Generator[None]:
        """See `recorder.RunTelemetry`: the attempt's span, or the branch's, is the current one."""
        span, attempt = self._branches.get(path), None
        if span is None:
            node = self._nodes.get(path, self._run)
            span = self._span(f"{path} #{number}", _attempted(path, number), node)
            attempt = self._attempts[path] = _Attempt(span)
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield
        finally:
            context.detach(token)
            if attempt is not None:
                attempt.left_at = time.time_ns()

    def loaded(self, seconds: float, status: str | None) -> None:
        """See `recorder.RunTelemetry`."""
        self._checkpoint("load", status or "none", seconds)

    def held(self) -> None:
        """See `recorder.RunTelemetry`."""
        self._instruments.acquisitions.add(1, {"strata.lease.outcome": "held"})

    def observer_failed(self) -> None:
        """See `recorder.RunTelemetry`."""
        self._instruments.observer_errors.add(1)

    def _run_started(self, kind: RunStarted) -> None:
        self._mode = kind.mode
        about: dict[str, AttributeValue] = {
            "strata.run.mode": kind.mode.value,
            "strata.run.priority": kind.priority,
        }
        if kind.metadata:
            about["strata.metadata"] = json.dumps(dict(kind.metadata), ensure_ascii=False)
        if kind.graph is not None:
            about |= {"strata.graph.id": kind.graph.id, "strata.graph.version": kind.graph.version}
        if kind.queued_for is not None:
            about["strata.scheduler.wait_ms"] = _milliseconds(kind.queued_for)
        self._run = self._span(f"strata.{kind.mode.value}", about)
        self._run.add_event("run started")
        self._instruments.started.add(1, {"strata.run.mode": kind.mode.value})
        self._instruments.active.add(1)

    def _run_completed(self, kind: RunCompleted) -> None:
        outcome = kind.outcome.value.lower()
        labels = {"strata.run.mode": self._mode.value, "strata.outcome": outcome}
        self._instruments.active.add(-1)
        self._instruments.duration.record(kind.duration, labels)
        for branch in self._branches.values():  # of a run that was dropped: nobody tells of them
            branch.end()
        run = self._run
        run.set_attribute("strata.outcome", outcome)
        if kind.cancel_reason is not None:
            run.set_attribute("strata.cancel_reason", kind.cancel_reason)
        if kind.error_type is ErrorType.HOP_LIMIT:
            run.set_attribute("error.type", kind.error_type.value)
        if kind.outcome is RunOutcome.FAILED:
            run.set_status(Status(StatusCode.ERROR, kind.error))
        run.add_event("run completed")
        run.end()

    def _node_completed(self, kind: NodeCompleted, path: str, number: int) -> None:
        result, label = kind.result.value.lower(), self._label(path)
        labels = {"strata.node.path": label, "strata.node.result": result}
        self._instruments.node_duration.record(kind.duration, labels)
        following = kind.following or kind.fallback
        if following is not None:
            head, slash, _ = label.rpartition("/")
            way = {"strata.node.path": label, "strata.next_node.path": f"{head}{slash}{following}"}
            self._instruments.transitions.add(1, way)
        if (attempt := self._attempts.pop(path, None)) is not None:
            attempt.end(kind.error_type, kind.error)
        if (span := self._nodes.pop(path, None)) is None:
            return
        span.set_attributes({"strata.retry_count": number - 1, "strata.node.result": result})
        if kind.error_type is not None:
            span.add_event(f"node failed: {kind.error}")
            _mark(span, kind.error_type, kind.error)
        span.end()

    def _retry_scheduled(self, kind: RetryScheduled, path: str) -> None:
        type_ = ErrorType.TIMEOUT if kind.timed_out else ErrorType.TRANSIENT
        labels = {"strata.node.path": self._label(path), "error.type": type_.value}
        self._instruments.retries.add(1, labels)
        if (attempt := self._attempts.pop(path, None)) is not None:
            attempt.end(type_, kind.error)
        about = {"strata.retry.delay_ms": _milliseconds(kind.delay)}
        self._nodes.get(path, self._run).add_event(f"retry scheduled: {kind.error}", about)

    def _branch_completed(self, kind: BranchCompleted, path: str) -> None:
        if (span := self._branches.pop(path, None)) is None:
            return
        if kind.reason is not None:
            span.set_attribute("strata.branch.reason", _REASONS[kind.reason])
        if kind.error_type is not None:
            _mark(span, kind.error_type, kind.error)
        span.end()

    def _told_inside(self, kind: MapExpanded | JoinDecided | HopLimitExceeded, path: str) -> None:
        match kind:
            case MapExpanded(keys=keys):
                self._maps.add(path)
                about: Mapping[str, AttributeValue] = {
                    "strata.map.item_count": len(keys),
                    "strata.map.keys": keys,
                }
                self._inside(path).add_event("map expanded", about)
            case JoinDecided(policy=policy, met=met, deciding=deciding):
                about = {
                    "strata.join.policy": policy,
                    "strata.join.met": met,
                    "strata.join.deciding": deciding,
                }
                self._inside(path).add_event("join decided", about)
            case HopLimitExceeded():
                self._instruments.hop_limits.add(1, {"strata.node.path": self._label(path)})
                self._above(path).add_event("hop limit exceeded")

    def _told_of_thread(self, kind: object) -> None:
        run, instruments = self._run, self._instruments
        match kind:
            case CheckpointSaved(status=status, resume_stamp=stamp, duration=duration):
                about: dict[str, AttributeValue] = {
                    "strata.checkpoint.status": status.value,
                    "strata.checkpoint.resume_stamp": stamp,
                    "strata.checkpoint.duration_ms": _milliseconds(duration),
                }
                run.add_event("checkpoint saved", about)
                self._checkpoint("save", status.value, duration)
            case Resumed(wake=wake) if wake is not WakeKind.HUMAN:
                run.set_attribute("strata.wake.reason", wake.value)
                instruments.wakes.add(1, {"strata.wake.reason": wake.value})
            case Recovered(recoveries=recoveries):
                run.set_attribute("strata.recoveries", recoveries)
                instruments.recoveries.add(1)
            case LeaseAcquired(owner=owner, token=token):
                run.set_attributes({"strata.lease.owner": owner, "strata.lease.token": token})
                instruments.acquisitions.add(1, {"strata.lease.outcome": "acquired"})
            case LeaseWasLost():
                run.add_event("lease lost")
                instruments.losses.add(1)
            case _:
                pass

    def _checkpoint(self, operation: str, status: str, seconds: float) -> None:
        labels = {"strata.checkpoint.operation": operation, "strata.checkpoint.status": status}
        self._instruments.checkpoints.record(seconds, labels)

    def _span(self, name: str, about: Mapping[str, AttributeValue], parent: Span | None = None) -> Span:
        above = None if parent is None else trace.set_span_in_context(parent)
        return self._tracer.start_span(name, above, attributes={**self._ids, **about})

    def _inside(self, path: str) -> Span:
        """The span of what goes on in the node at `path` now."""
        attempt = self._attempts.get(path)
        return self._nodes.get(path, self._run) if attempt is None else attempt.span

    def _above(self, path: str) -> Span:
        """The span around the node or branch at `path`: an item's, an attempt's, or the run's."""
        head = path.rpartition("/")[0]
        while head:
            if head in self._branches:
                return self._branches[head]
            if head in self._nodes:
                return self._inside(head)
            head = head.rpartition("/")[0]
        return self._run

    def _label(self, path: str) -> str:
        """The path as a metric may have it: without the keys of maps' items."""
        head, slash, name = path.rpartition("/")
        if not slash:
            return path
        return f"{self._label(head)}/{'*' if head in self._maps else name}"


def _attempted(path: str, number: int) -> dict[str, AttributeValue]:
    return {"strata.node.path": path, "strata.attempt": number}


def _mark(span: Span, error_type: ErrorType, error: str | None) -> None:
    span.set_attribute("error.type", error_type.value)
    span.set_status(Status(StatusCode.ERROR, error))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
