"""What a verb on a thread comes to: a closed union, one value a call.

    Completed    the graph ran to its end
    Interrupted  the thread waits: for a person, an event or a timer
    Failed       a node failed for good (or the graph has no way on)
    Cancelled    stopped by request, deadline, an end, or a lost lease
    Stopped      left `running` at a node boundary on request, lease released (handover)
    Refused      the verb was not carried out; nothing was written

`sequence` is the thread's log row that the result reports, None where it wrote none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from outcrop.stores.record import Lease, Wait

    from .cancellation import CancelReason
    from .questions import Question

S = TypeVar("S")


class FailureKind(StrEnum):
    """Why a run failed."""

    NODE_FAILED = "node_failed"
    NO_MATCHING_EDGE = "no_matching_edge"
    NODE_NOT_FOUND = "node_not_found"
    ABORTED = "execution_aborted"  # a state that can't be stored, a store that failed
    HOP_LIMIT = "hop_limit"
    NOT_ADMITTED = "not_admitted"  # the scheduler gave it no slot; nothing was done


class RefusalCode(StrEnum):
    """Why a verb was refused; stable, for programs."""

    INVALID = "invalid"  # the options or the signal are off
    NO_THREAD = "no_thread"
    EXISTS = "thread_exists"  # a first run of a thread that has a log
    HELD = "held"  # a live lease holds the thread
    LOST_RACE = "lost_race"  # the thread changed between load and save
    STALE = "stale"  # `expected_sequence` isn't the latest
    RUNNING = "running"
    NOT_RUNNING = "not_running"
    COMPLETED = "completed"
    ENDED = "ended"
    ALREADY_RESUMED = "already_resumed"
    NOT_DUE = "not_due"
    NOT_WAITING = "not_waiting"  # the wait and the answer don't match
    IDENTITY = "identity"  # another graph, or another version of it
    SCHEMA_VERSION = "schema_version"
    STATE = "state"  # the state, with its overrides, doesn't fit the graph's type
    NO_NEXT_NODE = "no_next_node"
    REPLY = "reply"  # the replies don't fit the questions that are open
    UNANSWERED = "unanswered"  # a rerun from a stop that nobody has answered
    NO_CHECKPOINT = "no_checkpoint"  # the thread's log has no such sequence
    NESTED = "nested"  # the row nests what this graph doesn't
    NOT_DURABLE = "not_durable"  # only EveryNode graphs can be recovered
    STORE = "store"  # the store failed, or has no leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Generic[S]):
    """The graph ran to its end with `state`; under Boundaries no row says so."""

    thread_id: str
    state: S
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(Generic[S]):
    """The thread waits at `waiting_at`; `wait` is None for a person without a timeout.

    `questions` are what its node or branches ask, if they do.
    """

    thread_id: str
    suspended_node: str
    next_node: str | None
    waiting_at: tuple[str, ...]
    wait: Wait | None
    state: S
    sequence: int
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run failed; `node` and `attempts` where a node did, `sequence` of the failed row.

    `hops` and `limit` are there where a hop limit was reached.
    """

    thread_id: str
    kind: FailureKind
    message: str
    node: str | None = None
    attempts: int | None = None
    sequence: int | None = None
    hops: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Generic[S]):
    """The run was cancelled, or the thread ended; `state` is the last committed one."""

    thread_id: str
    reason: CancelReason
    node: str
    state: S
    stopped_at: tuple[str, ...]
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Generic[S]):
    """The run stopped after a commit because it was asked to; the row stays `running`."""

    thread_id: str
    next_node: str
    state: S
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was done. `held_by` is the live lease when that is why."""

    thread_id: str
    code: RefusalCode
    message: str
    held_by: Lease | None = None


RunResult: TypeAlias = "Completed[S] | Interrupted[S] | Failed | Cancelled[S] | Stopped[S] | Refused"
