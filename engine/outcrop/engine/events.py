"""What happens in a run, as facts: for observers, telemetry and the events topic.

Owns the values only; `recorder` numbers and delivers them. Names and fields are those of the
format's run events; paths are `Work/Draft`, `checks/score`, `lines/k1/Price`, times are aware,
durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from outcrop.stores.record import GraphIdentity, Status, Wait


class RunMode(StrEnum):
    """What kind of call the run is."""

    RUN = "run"
    RESUME = "resume"
    END = "end"
    RECOVER = "recover"


class NodeResult(StrEnum):
    """How a node ended."""

    COMMITTED = "Committed"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"
    CANCELLED = "Cancelled"


class BranchResult(StrEnum):
    """How a branch or an item ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    INTERRUPTED = "Interrupted"  # it asks a question


class BranchReason(StrEnum):
    """Why a branch or an item failed or was cancelled, when not by itself."""

    TIMED_OUT = "TimedOut"
    LOST_RACE = "LostRace"
    SIBLING_FAILED = "SiblingFailed"


class RunOutcome(StrEnum):
    """How a run ended; `Stopped` is ours: left running, on request or because its task was dropped."""

    COMPLETED = "Completed"
    INTERRUPTED = "Interrupted"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    STOPPED = "Stopped"


class WakeKind(StrEnum):
    """Who or what answered a waiting thread."""

    HUMAN = "human"
    EVENT = "event"
    TIMER = "timer"
    TIMEOUT = "timeout"


class ErrorType(StrEnum):
    """What kind of failure it was, for telemetry."""

    TRANSIENT = "transient"
    FATAL = "fatal"
    TIMEOUT = "timeout"
    PANIC = "panic"
    HOP_LIMIT = "hop_limit"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run begins at `node`; empty when there is no row to begin from."""

    mode: RunMode
    node: str
    metadata: Mapping[str, str]
    graph: GraphIdentity | None = None
    queued_for: float | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """A waiting, failed or cancelled thread goes on."""

    from_status: Status
    waiting_at: tuple[str, ...]
    is_approved: bool = True
    reviewer: str = ""
    rejected_to: str | None = None
    wake: WakeKind = WakeKind.HUMAN
    event_type: str | None = None
    timed_out_to: str | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """A dead run's thread goes on, at the node of each level, for the `recoveries`-th time."""

    at: tuple[str, ...]
    recoveries: int


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node's first attempt begins."""


@dataclass(frozen=True, slots=True)
class NodeCompleted:
    """A node ended, after all its attempts; `fallback` is the node that takes over from a failed one.

    `following` is where the level goes on after a commit, when it goes on.
    """

    result: NodeResult
    duration: float
    error: str | None = None
    error_type: ErrorType | None = None
    fallback: str | None = None
    following: str | None = None


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """An attempt failed and another follows after `delay` seconds."""

    error: str
    timed_out: bool
    delay: float


@dataclass(frozen=True, slots=True)
class BranchStarted:
    """A branch or an item begins."""


@dataclass(frozen=True, slots=True)
class BranchCompleted:
    """A branch or an item ended."""

    result: BranchResult
    duration: float
    error: str | None = None
    error_type: ErrorType | None = None
    reason: BranchReason | None = None
    kept: bool = False  # its result was read back, and it didn't run


@dataclass(frozen=True, slots=True)
class MapExpanded:
    """A map's items are known."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinDecided:
    """A join other than `all` is met, or can't be any more."""

    policy: str
    met: bool
    deciding: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A row was appended; `resume_stamp` marks the copy that a Boundaries resume starts with."""

    status: Status
    waiting_at: tuple[str, ...]
    resume_stamp: bool
    duration: float


@dataclass(frozen=True, slots=True)
class InterruptedAt:
    """The thread waits."""

    waiting_at: tuple[str, ...]
    next_node: str | None
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class HopLimitExceeded:
    """The node would be hop `hops` + 1 of `limit`."""

    hops: int
    limit: int


@dataclass(frozen=True, slots=True)
class LeaseAcquired:
    """The thread is the run's."""

    owner: str
    token: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class LeaseWasLost:
    """The thread is the run's no more."""

    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The run is over; always the last."""

    outcome: RunOutcome
    duration: float
    error: str | None = None
    error_type: ErrorType | None = None
    cancel_reason: str | None = None


EventKind: TypeAlias = (
    RunStarted
    | Resumed
    | Recovered
    | NodeStarted
    | NodeCompleted
    | RetryScheduled
    | BranchStarted
    | BranchCompleted
    | MapExpanded
    | JoinDecided
    | CheckpointSaved
    | InterruptedAt
    | HopLimitExceeded
    | LeaseAcquired
    | LeaseWasLost
    | RunCompleted
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One fact of one run; `sequence` counts from 1 without gaps, in the order of delivery.

    `node_path` and `attempt` are there where the fact is one of a node or a branch.
    """

    thread_id: str
    run_id: str
    sequence: int
    timestamp: datetime
    kind: EventKind
    node_path: str | None = None
    attempt: int | None = None
