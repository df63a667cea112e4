"""Whether a thread may be continued, and from where: every refusal, in its order. Pure.

Owns what resume, signal, wake and recover refuse before anything is written or any lease
taken. Looks at one row, its notes and the graph; who holds the thread is asked afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from outcrop.stores.codec import READABLE_VERSIONS
from outcrop.stores.record import Status

from .adoption import NotOurs, adopted, at_level, levels_of
from .errors import StateError
from .events import Resumed, WakeKind
from .interrupts import answer_refusal, decision_of, overrides_of
from .metadata import hops_of, hops_refusal
from .options import CheckpointPolicy
from .outcome import RefusalCode, Refused
from .position import Position
from .questions import Unfit, answered, orphaned_by, questions_in
from .state import apply_overrides
from .waits import EventWake, HumanWake, TimeoutWake, due_wake, mismatch, not_due, timeout_route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outcrop.stores.record import Checkpoint, Json, Note, Row

    from .compiled import CompiledGraph
    from .questions import Reply
    from .waits import Wake

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class EndsHere:
    """A timeout without a route: the thread is to be ended; `row` is its latest one as taken on."""

    row: Checkpoint


@dataclass(frozen=True, slots=True)
class GoesOn:
    """The thread goes on from `position`; `row` is its latest one as this graph takes it on.

    `answers` are those of the questions that were open, with the earlier ones, by path.
    `resumed` is how a resume is told of.
    """

    row: Checkpoint
    position: Position
    resumed: Resumed | None = None
    answers: Mapping[str, tuple[Reply, ...]] = field(default_factory=dict[str, "tuple[Reply, ...]"])


Verdict: TypeAlias = GoesOn | EndsHere | Refused


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

    def adopted(self, row: Checkpoint) -> Checkpoint | Refused:
        """The row as this graph takes it on, every level migrated that has to be."""
        try:
            return adopted(self.graph, row, self.thread_id)
        except NotOurs as error:
            return self.refuse(RefusalCode.IDENTITY, str(error))

    def state(self, text: str) -> S | Refused:
        """The thawed state of the outermost level, or why it doesn't fit the graph's type."""
        try:
            return self.graph.states.thaw(text)
        except StateError as error:
            return self._misfit((), error)

    def states(self, row: Checkpoint) -> Refused | None:
        """Whether every level's state fits its graph's type; a level of no known graph isn't asked."""
        for path, graph, level in levels_of(self.graph, row):
            if graph is None:
                return None
            try:
                graph.states.thaw(level.frozen_state)
            except StateError as error:
                return self._misfit(path, error)
        return None

    def _misfit(self, path: tuple[str, ...], error: StateError) -> Refused:
        message = f"failed to rehydrate state for thread '{self.thread_id}'{at_level(path)}: {error}"
        return self.refuse(RefusalCode.STATE, message)

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

    def resume(
        self,
        row: Checkpoint,
        wake: Wake | None,
        *,
        now: str,
        boundary: str | None = None,
        notes: Sequence[Note] = (),
    ) -> Verdict:
        """Where a wake takes the thread. A wake of None is whatever is due at `now`."""
        due = self._due(row, wake, now, boundary)
        if isinstance(due, Refused):
            return due
        taken_on = self._taken_on(row, due)
        if isinstance(taken_on, Refused):
            return taken_on
        answers = self._replies(notes, due)
        if isinstance(answers, Refused):
            return answers
        *_, (path, graph, level) = levels_of(self.graph, taken_on)
        innermost = graph or self.graph  # `_taken_on` has seen to it that there is one
        if (unfit := mismatch(innermost, taken_on, due, self.thread_id)) is not None:
            return self.refuse(RefusalCode.NOT_WAITING, unfit)
        position = self._answer(innermost, level, path, due, now, is_asked=bool(questions_in(notes)))
        if isinstance(position, Position):
            around = self._around(taken_on, position, due)
            told = _resumed(innermost, taken_on, due, position.node)
            return around if isinstance(around, Refused) else GoesOn(taken_on, around, told, answers)
        return EndsHere(taken_on) if position is None else position

    def _due(self, row: Checkpoint, wake: Wake | None, now: str, boundary: str | None) -> Wake | Refused:
        """What answers the thread, if it can be answered: the wake, or what is due."""
        refusal = self.version(row) or self.resumable(row) or self.boundary(row, boundary)
        if refusal is not None:
            return refusal
        if wake is not None:
            return wake
        if (early := not_due(row, self.thread_id, now)) is not None:
            return self.refuse(RefusalCode.NOT_DUE, early)
        return due_wake(row)

    def _taken_on(self, row: Checkpoint, wake: Wake) -> Checkpoint | Refused:
        """The row as this graph takes it on, every level of it known and readable."""
        taken_on = self.adopted(row)
        if isinstance(taken_on, Refused):
            return taken_on
        return self._addressing(taken_on, wake) or self.levels(taken_on) or taken_on

    def recover(self, row: Checkpoint) -> GoesOn | Refused:
        """Where a recovery takes the thread."""
        refusal = self.version(row) or self.running(row)
        if refusal is not None:
            return refusal
        row_ = self.adopted(row)
        if isinstance(row_, Refused):
            return row_
        refusal = self.levels(row_) or self.states(row_)
        if refusal is not None:
            return refusal
        return self.standing(row_, is_recovery=True)

    def standing(self, row: Checkpoint, *, is_recovery: bool = False) -> GoesOn | Refused:
        """Where an adopted row stands, every level at the node that is next there."""
        if any(level.next_node is None for level in row.levels()):
            return self._no_next_node()
        return GoesOn(row, _standing(row, is_recovery=is_recovery))

    def durable(self) -> Refused | None:
        """Whether this graph leaves rows to recover from."""
        if self.graph.policy is CheckpointPolicy.EVERY_NODE:
            return None
        return self.refuse(
            RefusalCode.NOT_DURABLE,
            "this graph doesn't checkpoint every node: only a graph compiled with "
            "CheckpointPolicy::EveryNode can recover a thread",
        )

    def levels(self, row: Checkpoint) -> Refused | None:
        """Whether each level can be read, and nests a child only where this graph has one."""
        for path, graph, level in levels_of(self.graph, row):
            if (refusal := self.version(level)) is not None:
                return refusal
            message = hops_refusal(level, thread_id=self.thread_id, at=at_level(path))
            if message is not None:
                return self.refuse(RefusalCode.INVALID, message)
            if graph is None:
                return self.refuse(
                    RefusalCode.NESTED,
                    f"checkpoint nests a child graph under '{path[-1]}', which is not a subgraph node",
                )
        return None

    def _addressing(self, row: Checkpoint, wake: Wake) -> Refused | None:
        """Whether overrides for outer levels are for levels that the row has, and not the innermost."""
        if not isinstance(wake, HumanWake) or not wake.answer.levels:
            return None
        paths = ["/".join(path) for path, _, _ in levels_of(self.graph, row)]
        for at in sorted(wake.answer.levels):
            told = f"cannot resume thread '{self.thread_id}': a signal was addressed to level [{at}]"
            if at == paths[-1]:
                message = f"{told}, which is the innermost level and already has the innermost signal"
                return self.refuse(RefusalCode.INVALID, message)
            if at not in paths:
                known = ", ".join(f"[{path}]" for path in paths)
                return self.refuse(RefusalCode.INVALID, f"{told}, but the checkpoint's levels are {known}")
        return None

    def _replies(self, notes: Sequence[Note], wake: Wake) -> Mapping[str, tuple[Reply, ...]] | Refused:
        if (path := orphaned_by(self.graph, notes)) is not None:
            message = (
                f"thread '{self.thread_id}' has answers of node '{path}', which its graph has no more: "
                "resume it with the version that asked, or go on behind it with update_state(as_node=…)"
            )
            return self.refuse(RefusalCode.REPLY, message)
        replies: Mapping[str | int, Json] = wake.answer.replies if isinstance(wake, HumanWake) else {}
        answers = answered(notes, replies, self.thread_id)
        return self.refuse(RefusalCode.REPLY, answers.reason) if isinstance(answers, Unfit) else answers

    def _answer(
        self,
        graph: CompiledGraph[Any],
        level: Checkpoint,
        path: tuple[str, ...],
        wake: Wake,
        now: str,
        *,
        is_asked: bool,
    ) -> Position | Refused | None:
        """Where the wake takes the innermost level; None ends the thread."""
        node = level.suspended_node or ""
        target, decision = level.next_node, level.decision
        if level.status is Status.INTERRUPTED:
            boundary = None if is_asked or _stands_before(graph, level) else graph.boundaries.get(node)
            if isinstance(wake, TimeoutWake):
                target = timeout_route(graph, node)
                if target is None:
                    return self._thawed(graph, level.frozen_state, path)
            elif isinstance(wake, HumanWake):
                decision = decision_of(wake.answer, node, now)
                if not wake.answer.approved and boundary is not None and boundary.on_reject is not None:
                    target = boundary.on_reject
        if target is None:
            return self._no_next_node()
        if isinstance(wake, HumanWake) and (unfit_answer := answer_refusal(wake.answer, self.thread_id)):
            return self.refuse(RefusalCode.INVALID, unfit_answer)
        text = self._overridden(graph, level.frozen_state, overrides_of(wake), path)
        if isinstance(text, Refused):
            return text
        is_unasked = not isinstance(wake, HumanWake)
        return Position(
            node=target, state=text, hops=hops_of(level), decision=decision, is_unasked=is_unasked
        )

    def _around(self, row: Checkpoint, innermost: Position, wake: Wake) -> Position | Refused:
        """The innermost level's position inside those of the levels around it."""
        overrides: Mapping[str, Mapping[str, Json]] = {}
        if isinstance(wake, HumanWake):
            overrides = wake.answer.levels
        *outer, _ = levels_of(self.graph, row)
        position = innermost
        for path, graph, level in reversed(outer):
            text = self._overridden(
                graph or self.graph, level.frozen_state, overrides.get("/".join(path), {}), path
            )
            if isinstance(text, Refused):
                return text
            position = Position(
                node=level.next_node or level.suspended_node or "",
                state=text,
                hops=hops_of(level),
                decision=level.decision,
                nested=position,
            )
        return position

    def _thawed(self, graph: CompiledGraph[Any], text: str, path: tuple[str, ...]) -> Refused | None:
        try:
            graph.states.thaw(text)
        except StateError as error:
            return self._misfit(path, error)
        return None

    def _overridden(
        self, graph: CompiledGraph[Any], text: str, overrides: Mapping[str, Json], path: tuple[str, ...]
    ) -> str | Refused:
        """The state that a level goes on with, in the shape its own type writes."""
        states = graph.states
        try:
            if not overrides:
                states.thaw(text)
                return text
            return states.freeze(states.thaw(apply_overrides(text, overrides)))
        except StateError as error:
            return self._misfit(path, error)

    def _no_next_node(self) -> Refused:
        return self.refuse(
            RefusalCode.NO_NEXT_NODE,
            f"checkpoint for thread '{self.thread_id}' has no next_node to resume from",
        )


def _resumed(graph: CompiledGraph[Any], row: Checkpoint, wake: Wake, target: str) -> Resumed:
    told = Resumed(row.status, row.waiting_at)
    match wake:
        case HumanWake(answer=answer):
            boundary = graph.boundaries.get(row.innermost.suspended_node or "")
            is_routed = row.status is Status.INTERRUPTED and not answer.approved
            route = boundary.on_reject if boundary is not None and is_routed else None
            return replace(
                told,
                is_approved=answer.approved,
                reviewer=answer.by,
                rejected_to=route if route == target else None,
            )
        case EventWake(event=event):
            return replace(told, wake=WakeKind.EVENT, event_type=event)
        case TimeoutWake():
            return replace(told, wake=WakeKind.TIMEOUT, timed_out_to=target)
        case _:
            return replace(told, wake=WakeKind.TIMER)


def _standing(level: Checkpoint, *, is_recovery: bool) -> Position:
    nested = None if level.nested is None else _standing(level.nested, is_recovery=is_recovery)
    return Position(
        node=level.next_node or "",
        state=level.frozen_state,
        hops=hops_of(level),
        decision=level.decision,
        is_recovery=is_recovery,
        nested=nested,
        is_unasked=is_recovery and nested is None and not _was_let_go_on(level),
    )


def _stands_before(graph: CompiledGraph[Any], level: Checkpoint) -> bool:
    """Whether the level waits before the node, at a static interrupt: its boundary comes later."""
    node = level.suspended_node or ""
    return level.next_node == node and all(edge.to != node for edge in graph.edges.get(node, ()))


def _was_let_go_on(level: Checkpoint) -> bool:
    """Whether a person has seen to it that the level goes on at its next node.

    So it is where the node was begun before, or follows the boundary that was answered last.
    """
    answered = None if level.decision is None else level.decision.boundary
    return level.suspended_node in (level.next_node, answered) and level.suspended_node is not None
