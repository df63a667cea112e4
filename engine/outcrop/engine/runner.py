"""Running one level of a thread: node after node, until it completes, waits, fails or stops.

Owns the loop, the retries and the commit rule: only what a successful attempt left is kept,
and everything else starts from the state that the node was given. Knows no verb: `threads`
puts a thread at a `Position`, with a journal to write to.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from outcrop.stores.record import Status

from .attempts import Cut, Produced, Raised, attempt
from .cancellation import CancelReason, CancelToken, is_dropped, task_cancels
from .commit import Aborted, LeaseGone, LogMoved
from .errors import StateError
from .failpoints import failpoint
from .failures import GaveUp, error_text, failing, failure_metadata, give_up
from .idempotency import idempotency_key
from .metadata import CANCEL_REASON
from .node import LastFailure, NodeContext, NodeMode, NodeSpec
from .outcome import Cancelled, Completed, Failed, FailureKind, Interrupted, Stopped
from .position import Position
from .retry import Retry
from .routing import NoWayOn, freezes, next_node, wait_after

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from outcrop.stores.record import Checkpoint, Wait

    from .clock import Clock
    from .commit import Journal
    from .compiled import CompiledGraph
    from .outcome import Refused, RunResult

S = TypeVar("S")


@dataclass(slots=True)
class _Committed:
    """An attempt succeeded; `following` is None at the graph's end."""

    state: str
    following: str | NoWayOn | None
    wait: Wait | None


_StepEnd: TypeAlias = "_Committed | GaveUp | Cut"


@dataclass(slots=True, kw_only=True)
class Runner(Generic[S]):
    """One call's run of one thread. `token` is the run's own; `asked` is the caller's."""

    graph: CompiledGraph[S]
    journal: Journal
    clock: Clock
    uniform: Callable[[], float]
    executor: Executor | None
    token: CancelToken
    asked: CancelToken | None
    stop: CancelToken | None
    run_id: str
    services: Mapping[type[object], object]

    async def run(
        self, start: Position, *, first: Checkpoint | None, moved: Refused, is_fresh: bool = False
    ) -> RunResult[S]:
        """Save the `first` row, if there is one, and run from `start` to an outcome.

        Raises only what is no `Exception`. `moved` is the outcome when the log isn't where
        the first row expects it. A fresh run may be stopped before its first node; any other
        runs one first, so that taking a thread over always gets it somewhere.
        """
        at, cancels_before = _At(start), task_cancels()
        try:
            if first is not None and not await self._begin(first):
                return moved
            stopped = self._stopped(start) if is_fresh else None
            return stopped or await self._loop(at)
        except LeaseGone:
            return self._lost(at.position)
        except LogMoved:
            return self._overtaken(at.position)
        except (Aborted, StateError) as error:
            return await self._fail(at.position, FailureKind.ABORTED, str(error))
        except BaseException as panic:
            if not is_dropped(panic, cancels_before):
                with suppress(LeaseGone, LogMoved):
                    await self._record_failing(error_text(panic))
            raise

    async def _begin(self, first: Checkpoint) -> bool:
        try:
            await self.journal.append(first, stamp=first.resumed_at is not None)
        except LogMoved:
            return False
        return True

    async def _loop(self, at: _At) -> RunResult[S]:
        while True:
            position = at.position
            if self.token.fired:
                return await self._cancel(position)
            spec = self._spec(position.node)
            if spec is None:
                message = f"node '{position.node}' not found"
                return await self._fail(position, FailureKind.NODE_NOT_FOUND, message)
            failpoint("node.before")
            end = await self._step(spec, position)
            failpoint("node.after")
            match end:
                case _Committed():
                    result = await self._commit(at, end)
                case GaveUp() if spec.fallback is not None:
                    at.position, result = self._fall_back(spec.fallback, position, end), None
                case GaveUp():
                    return await self._give_up(position, end)
                case Cut():
                    return await self._cancel(position)
            if result is not None:
                return result

    def _spec(self, node: str) -> NodeSpec[S] | None:
        spec = self.graph.nodes.get(node)
        if spec is None and node in self.graph.waits:
            return NodeSpec(
                name=node, handler=lambda state, _context: state, mode=NodeMode.INLINE, retry=Retry()
            )
        return spec

    async def _step(self, spec: NodeSpec[S], position: Position) -> _StepEnd:
        """Attempt the node until it commits, is given up, or the run is cut."""
        context = self._context(spec.name, position)
        number = 1
        while True:
            self._check_lease()
            state = self.graph.states.thaw(position.state)
            end = await attempt(
                spec, state, context, token=self.token, clock=self.clock, executor=self.executor
            )
            step = self._decide(spec.name, end.state) if isinstance(end, Produced) else end
            if isinstance(step, _Committed) or step is Cut.CANCELLED:
                return step
            failure = give_up(spec, step, number)
            if failure.is_fatal or number > spec.retry.max_retries:
                return failure
            await self._pause(spec.retry.delay(number, failure.hint, self.uniform))
            if self.token.fired:
                return Cut.CANCELLED
            number += 1
            context = replace(context, attempt=number, cancellation=CancelToken())

    def _decide(self, node: str, state: S) -> _Committed | Raised:
        """What committing this state would mean; the author's predicates may fail the node."""
        is_freezing = freezes(self.graph, node)
        try:
            text = self.graph.states.freeze(state)
        except StateError as error:
            doing = "freeze state at" if is_freezing else "persist state after"
            raise Aborted(f"failed to {doing} '{node}': {error}") from error
        try:
            following = next_node(self.graph, node, state)
            wait = wait_after(self.graph, node, state, self.clock.now()) if is_freezing else None
        except Exception as error:  # noqa: BLE001 - any exception is the node's failure
            return Raised(error)
        return _Committed(text, following, wait)

    async def _commit(self, at: _At, end: _Committed) -> RunResult[S] | None:
        """Write what the commit asks for; None when the level goes on."""
        done = at.position
        hops, journal = done.hops + 1, self.journal
        if isinstance(end.following, NoWayOn):
            message = f"no outgoing edge condition matched for node '{done.node}'"
            return await self._fail(done, FailureKind.NO_MATCHING_EDGE, message, node=done.node)
        if freezes(self.graph, done.node):
            row = journal.row(
                Status.INTERRUPTED,
                done.node,
                end.following,
                end.state,
                hops=hops,
                decision=done.decision,
                wait=end.wait,
            )
            sequence = await journal.append(row)
            return Interrupted(
                thread_id=journal.thread_id,
                suspended_node=done.node,
                next_node=end.following,
                waiting_at=(done.node,),
                wait=end.wait,
                state=self.graph.states.thaw(end.state),
                sequence=sequence,
            )
        status = Status.COMPLETED if end.following is None else Status.RUNNING
        written: int | None = None
        if journal.durable:
            row = journal.row(status, done.node, end.following, end.state, hops=hops, decision=done.decision)
            written = await journal.append(row)
        elif end.following is None:
            self._check_lease()
        if end.following is None:
            final = self.graph.states.thaw(end.state)
            return Completed(thread_id=journal.thread_id, state=final, sequence=written)
        at.position = Position(node=end.following, state=end.state, hops=hops, decision=done.decision)
        return self._stopped(at.position)

    def _stopped(self, position: Position) -> Stopped[S] | None:
        sequence = self.journal.expected
        if self.stop is None or not self.stop.fired or not self.journal.durable or sequence is None:
            return None
        return Stopped(
            thread_id=self.journal.thread_id,
            next_node=position.node,
            state=self.graph.states.thaw(position.state),
            sequence=sequence,
        )

    def _fall_back(self, fallback: str, position: Position, end: GaveUp) -> Position:
        told = LastFailure(
            node=position.node,
            node_path=position.node,
            error=error_text(end.error),
            attempts=end.attempts,
            timed_out=end.timed_out,
            retry_after=end.hint,
        )
        return replace(position, node=fallback, hops=position.hops + 1, last_failure=told)

    async def _give_up(self, position: Position, end: GaveUp) -> Failed:
        message = error_text(end.error)
        row = self.journal.row(
            Status.FAILED,
            position.node,
            position.node,
            position.state,
            hops=position.hops,
            decision=position.decision,
            extra=failure_metadata(message, is_fatal=end.is_fatal, attempts=end.attempts, hint=end.hint),
        )
        sequence = await self.journal.append(row)
        return Failed(
            thread_id=self.journal.thread_id,
            kind=FailureKind.NODE_FAILED,
            message=message,
            node=position.node,
            attempts=end.attempts,
            sequence=sequence,
        )

    async def _cancel(self, position: Position) -> Cancelled[S]:
        reason = self._reason()
        if reason is CancelReason.LEASE_LOST:
            return self._lost(position)
        told = CancelReason.DEADLINE if reason is CancelReason.DEADLINE else CancelReason.REQUESTED
        row = self.journal.row(
            Status.CANCELLED,
            position.node,
            position.node,
            position.state,
            hops=position.hops,
            decision=position.decision,
            extra={CANCEL_REASON: told.value},
        )
        sequence = await self.journal.append(row)
        return self._cancelled(position, reason, sequence)

    def _reason(self) -> CancelReason:
        """Several may have fired: a lost lease outranks the caller, who outranks the deadline."""
        tenure = self.journal.tenure
        if tenure is not None and not tenure.stands:
            return CancelReason.LEASE_LOST
        if self.asked is not None and self.asked.reason is not None:
            return self.asked.reason
        return self.token.reason or CancelReason.REQUESTED

    def _lost(self, position: Position) -> Cancelled[S]:
        return self._cancelled(position, CancelReason.LEASE_LOST, None)

    def _cancelled(self, position: Position, reason: CancelReason, sequence: int | None) -> Cancelled[S]:
        return Cancelled(
            thread_id=self.journal.thread_id,
            reason=reason,
            node=position.node,
            state=self.graph.states.thaw(position.state),
            stopped_at=(position.node,),
            sequence=sequence,
        )

    def _overtaken(self, position: Position) -> RunResult[S]:
        if self.journal.tenure is not None:
            return self._lost(position)
        thread_id = self.journal.thread_id
        return Failed(
            thread_id=thread_id,
            kind=FailureKind.ABORTED,
            message=f"thread '{thread_id}' changed while it ran: another run or an end got there first",
        )

    async def _fail(
        self, position: Position, kind: FailureKind, message: str, *, node: str | None = None
    ) -> RunResult[S]:
        try:
            sequence = await self._record_failing(message)
        except LeaseGone:
            return self._lost(position)
        except LogMoved:
            if self.journal.tenure is not None:
                return self._lost(position)
            sequence = None  # the save that failed had happened after all
        return Failed(
            thread_id=self.journal.thread_id, kind=kind, message=message, node=node, sequence=sequence
        )

    async def _record_failing(self, message: str) -> int | None:
        """Leave no `running` row behind a run that failed, if it can be helped."""
        self._check_lease()
        last = self.journal.last
        if last is None or last.status is not Status.RUNNING:
            return None
        try:
            return await self.journal.append(failing(last, message, self.clock.now()))
        except Aborted:
            return None  # it stays running, for a recovery

    def _check_lease(self) -> None:
        if self.journal.tenure is not None and not self.journal.tenure.stands:
            raise LeaseGone

    async def _pause(self, seconds: float) -> None:
        """Wait between attempts, or until the run's token fires."""
        if seconds <= 0 or self.token.fired:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        withdraw, timer = self.token.on_fire(wake), self.clock.call_later(seconds, wake)
        try:
            await done
        finally:
            withdraw()
            timer.cancel()

    def _context(self, node: str, position: Position) -> NodeContext:
        journal = self.journal
        run_id = None if journal.durable else self.run_id
        return NodeContext(
            thread_id=journal.thread_id,
            node=node,
            node_path=node,
            run_id=self.run_id,
            idempotency_key=idempotency_key(journal.thread_id, node, (position.hops + 1,), run_id=run_id),
            is_recovery=position.is_recovery,
            metadata=journal.caller,
            decision=position.decision,
            last_failure=position.last_failure,
            services=self.services,
        )


@dataclass(slots=True)
class _At:
    """The position that the loop has come to, for whoever has to tell where it ended."""

    position: Position
