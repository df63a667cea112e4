"""Whether a thread may be continued, and from where: every refusal, in its order. Pure.

Owns what resume, signal, wake and recover refuse before anything is written or any lease
taken. Looks at one row and the graph; who holds the thread is asked afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from outcrop.stores.codec import READABLE_VERSIONS
from outcrop.stores.record import Status

from .errors import StateError
from .identity import identity_refusal
from .interrupts import answer_refusal, decision_of, overrides_of
from .metadata import hops_of, hops_refusal
from .options import CheckpointPolicy
from .outcome import RefusalCode, Refused
from .position import Position
from .state import apply_overrides
from .waits import HumanWake, TimeoutWake, due_wake, mismatch, not_due, timeout_route

if TYPE_CHECKING:
    from outcrop.stores.record import Checkpoint, Row

    from .compiled import CompiledGraph
    from .waits import Wake

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class EndsHere:
    """A timeout without a route: the thread is to be ended."""


Verdict: TypeAlias = Position | EndsHere | Refused


@dataclass(frozen=True, slots=True)
class Preflight(Generic[S]):
    """The checks of one thread's latest row against one graph; None is no objection."""

    graph: CompiledGraph[S]
    thread_id: str

    def refuse(self, code: RefusalCode, message: str) -> Refused:
        """A refusal of this thread."""
        return Refused(thread_id=self.thread_id, code=code, message=message)

    def found(self, row: Row | None, expected: int | None) -> Row | Refused:
        """The row, if there is one and it is the one the caller has seen."""
        if row is None:
            return self.refuse(RefusalCode.NO_THREAD, f"no checkpoint found for thread '{self.thread_id}'")
        if expected is not None and row.sequence != expected:
            return self.refuse(
                RefusalCode.STALE,
                f"thread '{self.thread_id}' is at sequence {row.sequence}, not {expected}: "
                "look at it again before answering it",
            )
        return row

    def version(self, row: Checkpoint) -> Refused | None:
        """Whether this build reads the row's format."""
        if row.schema_version in READABLE_VERSIONS:
            return None
        return self.refuse(
            RefusalCode.SCHEMA_VERSION,
            f"checkpoint for thread '{self.thread_id}' has unsupported schema_version '{row.schema_version}'",
        )

    def identity(self, row: Checkpoint) -> Refused | None:
        """Whether the thread is this graph's."""
        message = identity_refusal(self.graph.identity, row, thread_id=self.thread_id)
        return None if message is None else self.refuse(RefusalCode.IDENTITY, message)

    def state(self, text: str) -> S | Refused:
        """The thawed state, or why it doesn't fit the graph's type."""
        try:
            return self.graph.states.thaw(text)
        except StateError as error:
            return self.refuse(
                RefusalCode.STATE, f"failed to rehydrate state for thread '{self.thread_id}': {error}"
            )

    def resumable(self, row: Checkpoint) -> Refused | None:
        """Whether a thread of this status can be answered at all."""
        thread = f"thread '{self.thread_id}'"
        match row.status:
            case Status.RUNNING:
                return self.refuse(
                    RefusalCode.RUNNING,
                    f"{thread} is running: only a waiting, failed or cancelled thread can be resumed",
                )
            case Status.ENDED:
                return self.refuse(RefusalCode.ENDED, f"{thread} was ended: an ended thread can't be resumed")
            case Status.COMPLETED:
                return self.refuse(
                    RefusalCode.COMPLETED,
                    f"checkpoint for {thread} is not resumable (status: Completed): "
                    "only an interrupted, failed or cancelled checkpoint can be",
                )
            case Status.INTERRUPTED | Status.FAILED | Status.CANCELLED:
                if row.resumed_at is None:
                    return None
                return self.refuse(
                    RefusalCode.ALREADY_RESUMED, f"checkpoint for {thread} was already resumed"
                )

    def running(self, row: Checkpoint) -> Refused | None:
        """Whether the thread is in the middle of a run, live or dead."""
        if row.status is Status.RUNNING:
            return None
        return self.refuse(
            RefusalCode.NOT_RUNNING,
            f"thread '{self.thread_id}' is not running: its latest checkpoint is {row.state}",
        )

    def boundary(self, row: Checkpoint, boundary: str | None) -> Refused | None:
        """Whether the thread waits at the boundary that the caller means to answer."""
        if boundary is None:
            return None
        thread = f"thread '{self.thread_id}'"
        if row.status is not Status.INTERRUPTED:
            return self.refuse(
                RefusalCode.NOT_WAITING,
                f"{thread} is not waiting at '{boundary}': its latest checkpoint is {row.state}",
            )
        if row.innermost.suspended_node != boundary:
            return self.refuse(
                RefusalCode.STALE,
                f"{thread} is not waiting at '{boundary}': it is waiting at '{row.innermost.suspended_node}'",
            )
        return None

    def resume(self, row: Checkpoint, wake: Wake | None, *, now: str, boundary: str | None = None) -> Verdict:
        """Where a wake takes the thread. A wake of None is whatever is due at `now`."""
        refusal = self.version(row) or self.resumable(row) or self.boundary(row, boundary)
        if refusal is not None:
            return refusal
        if wake is None:
            if (early := not_due(row, self.thread_id, now)) is not None:
                return self.refuse(RefusalCode.NOT_DUE, early)
            wake = due_wake(row)
        if (refusal := self.identity(row) or self._level(row)) is not None:
            return refusal
        if (unfit := mismatch(self.graph, row, wake, self.thread_id)) is not None:
            return self.refuse(RefusalCode.NOT_WAITING, unfit)
        if row.nested is not None:
            return self.nested(row)
        return self._answer(row, wake, now)

    def recover(self, row: Checkpoint) -> Position | Refused:
        """Where a recovery takes the thread."""
        refusal = self.version(row) or self.running(row) or self.identity(row) or self._level(row)
        if refusal is not None:
            return refusal
        if row.nested is not None:
            return self.nested(row)
        if row.next_node is None:
            return self._no_next_node()
        if isinstance(unfit := self.state(row.frozen_state), Refused):
            return unfit
        return Position(
            node=row.next_node,
            state=row.frozen_state,
            hops=hops_of(row),
            decision=row.decision,
            is_recovery=True,
        )

    def durable(self) -> Refused | None:
        """Whether this graph leaves rows to recover from."""
        if self.graph.policy is CheckpointPolicy.EVERY_NODE:
            return None
        return self.refuse(
            RefusalCode.NOT_DURABLE,
            "this graph doesn't checkpoint every node: only a graph compiled with "
            "CheckpointPolicy::EveryNode can recover a thread",
        )

    def nested(self, row: Checkpoint) -> Refused:
        """A row that nests a child graph where this graph has none."""
        return self.refuse(
            RefusalCode.NESTED,
            f"checkpoint nests a child graph under '{row.suspended_node}', which is not a subgraph node",
        )

    def _level(self, row: Checkpoint) -> Refused | None:
        for level in row.levels():
            if (refusal := self.version(level)) is not None:
                return refusal
        message = hops_refusal(row, thread_id=self.thread_id)
        return None if message is None else self.refuse(RefusalCode.INVALID, message)

    def _answer(self, row: Checkpoint, wake: Wake, now: str) -> Verdict:
        node = row.suspended_node or ""
        target, decision = row.next_node, row.decision
        if row.status is Status.INTERRUPTED:
            boundary = self.graph.boundaries.get(node)
            if isinstance(wake, TimeoutWake):
                target = timeout_route(self.graph, node)
                if target is None:
                    unfit = self.state(row.frozen_state)
                    return unfit if isinstance(unfit, Refused) else EndsHere()
            elif isinstance(wake, HumanWake):
                decision = decision_of(wake.answer, node, now)
                if not wake.answer.approved and boundary is not None and boundary.on_reject is not None:
                    target = boundary.on_reject
        if target is None:
            return self._no_next_node()
        if isinstance(wake, HumanWake) and (unfit_answer := answer_refusal(wake.answer, self.thread_id)):
            return self.refuse(RefusalCode.INVALID, unfit_answer)
        text = self._overridden(row.frozen_state, wake)
        if isinstance(text, Refused):
            return text
        return Position(node=target, state=text, hops=hops_of(row), decision=decision)

    def _overridden(self, text: str, wake: Wake) -> str | Refused:
        """The state that the thread goes on with, in the shape its own type writes."""
        states, overrides = self.graph.states, overrides_of(wake)
        try:
            if not overrides:
                states.thaw(text)
                return text
            return states.freeze(states.thaw(apply_overrides(text, overrides)))
        except StateError as error:
            return self.refuse(
                RefusalCode.STATE, f"failed to rehydrate state for thread '{self.thread_id}': {error}"
            )

    def _no_next_node(self) -> Refused:
        return self.refuse(
            RefusalCode.NO_NEXT_NODE,
            f"checkpoint for thread '{self.thread_id}' has no next_node to resume from",
        )
