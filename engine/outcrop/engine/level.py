"""Running one level of a thread, node after node, until it completes, waits, fails or stops.

Owns the loop, the retries and the commit rule: only what a successful attempt left is kept,
and everything else starts from the state that the node was given. A level saves the rows
between its nodes, wrapped in those of the levels above; the row it ends with is told, and
saved by whoever runs it (`runner` for the outermost).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from outcrop.stores.record import Status

from .attempts import attempt
from .cancellation import CancelReason, CancelToken
from .chunks import ChunkType
from .clock import pause
from .composite_attempt import composite_attempt
from .composites import Subgraph
from .ends import (
    Cut,
    CutShort,
    LevelCancelled,
    LevelDone,
    LevelFailed,
    LevelFroze,
    LevelParted,
    Parted,
    Produced,
    Raised,
    Suspended,
)
from .errors import StateError
from .events import HopLimitExceeded, RetryScheduled
from .failpoints import failpoint
from .failures import GaveUp, error_text, failure_metadata, give_up, hop_limit_metadata
from .idempotency import idempotency_key
from .interrupts import inside
from .metadata import CANCEL_REASON
from .node import LastFailure, NodeContext, NodeMode, NodeSpec
from .node_record import NodeRecord
from .node_stream import NodeStream
from .outcome import FailureKind
from .position import Position
from .questions import Questions
from .retry import Retry
from .routing import NoWayOn, freezes, next_node, wait_after
from .visit import Visit

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.stores.record import Checkpoint, Wait

    from .compiled import CompiledGraph
    from .ends import AttemptEnd, LevelEnd
    from .rows import LevelRows
    from .run import Run

S = TypeVar("S")

TIMEOUT = "timeout"


@dataclass(slots=True)
class _Committed:
    """An attempt succeeded; `following` is None at the graph's end."""

    state: str
    following: str | NoWayOn | None
    wait: Wait | None
    freezes: bool


_StepEnd: TypeAlias = "_Committed | GaveUp | CutShort | Suspended | Parted"


@dataclass(slots=True, kw_only=True)
class Level(Generic[S]):
    """A graph at one place of a run.

    `prefix` is what its nodes' paths begin with (`Work/`), `above` the hops of the nodes
    around it, `wrap` puts a row of this level into one of the outermost. `is_item` is a
    level inside a map's item: it saves no rows, asks nothing and keeps nothing.
    `position` is where it has come to, and `child` the level it is inside of.
    `interrupt_before` and `interrupt_after` are the static interrupts in effect, by path from here.
    """

    graph: CompiledGraph[S]
    run_: Run
    rows: LevelRows
    token: CancelToken
    limit: int | None
    wrap: Callable[[Checkpoint], Checkpoint]
    position: Position
    prefix: str = ""
    above: tuple[int, ...] = ()
    interrupt_before: frozenset[str] = frozenset()
    interrupt_after: frozenset[str] = frozenset()
    is_item: bool = False
    item_recovery: bool = False
    child: Level[Any] | None = None

    async def run(self, start: Position, *, is_fresh: bool = True) -> LevelEnd:
        """Run from `start` to an end.

        A fresh level may be stopped before its first node, by a static interrupt too; one
        that a person let go on runs its node first. Raises `LeaseGone`, `LogMoved`, `Aborted` and
        whatever is no `Exception`.
        """
        position: Position = start
        may_ask = is_fresh or start.is_unasked
        while True:
            self.position, self.child = position, None
            if position.nested is None and self.token.fired:
                return self._cancelled(position)
            if self.limit is not None and position.hops >= self.limit:
                return self._limited(position)
            if may_ask and self._interrupts(position.node, before=True):
                return self._frozen_before(position)
            may_ask = True
            end = await self._node(position)
            if not isinstance(end, Position):
                return end
            position = end

    async def _node(self, position: Position) -> Position | LevelEnd:
        """Run the node at `position`; where the level goes on, or how it ends."""
        spec = self._spec(position.node)
        if spec is None:
            message = f"node '{position.node}' not found"
            return LevelFailed(kind=FailureKind.NODE_NOT_FOUND, message=message, node=position.node)
        path = self.prefix + position.node
        streams = self.run_.stream is not None
        if streams and not await self._say(ChunkType.NODE_START, path, position.node):
            return self._cancelled(position, self._standing(position, Status.CANCELLED))
        record = NodeRecord(self.run_, path)
        record.started()
        try:
            failpoint("node.before")
            end = await self._step(spec, position, record)
            failpoint("node.after")
            return await self._ended(spec, position, end, record)
        except StateError as error:
            record.panicked(error)
            return LevelFailed(kind=FailureKind.ABORTED, message=str(error), node=position.node)
        except BaseException as panic:
            record.panicked(panic)
            raise

    async def _ended(
        self, spec: NodeSpec[S], position: Position, end: _StepEnd, record: NodeRecord
    ) -> Position | LevelEnd:
        match end:
            case _Committed():
                return await self._commit(position, end, record)
            case GaveUp():
                return await self._give_up(spec, position, end, record)
            case Suspended(nested=nested, questions=questions):
                record.interrupted()
                row = self.rows.row(Status.INTERRUPTED, position.node, position.node, position, nested=nested)
                return LevelFroze(row=row, questions=questions)
            case CutShort(nested=nested):
                record.cancelled()
                return self._cancelled(position, nested)
            case Parted():
                record.cancelled()
                return LevelParted()

    def _spec(self, node: str) -> NodeSpec[S] | None:
        spec = self.graph.nodes.get(node)
        if spec is None and node in self.graph.waits:
            return NodeSpec(
                name=node, handler=lambda state, _context: state, mode=NodeMode.INLINE, retry=Retry()
            )
        return spec

    async def _step(self, spec: NodeSpec[S], position: Position, record: NodeRecord) -> _StepEnd:
        """Attempt the node until it commits, is given up, or the run is cut."""
        if self.run_.stream is None and spec.name in self.graph.streaming and position.nested is None:
            raise StateError(_needs_stream(spec))
        number, notes = 1, self.run_.notes
        is_subgraph = not self.is_item and isinstance(self.graph.composites.get(spec.name), Subgraph)
        held = notes.of(record.path) if is_subgraph else ()
        context = self._context(spec, position, number)
        while True:
            self.run_.journal.check_lease()
            end = await self._attempt(spec, position, context, record)
            step = self._judge(spec.name, end.state) if isinstance(end, Produced) else end
            if isinstance(step, (_Committed, Suspended, Parted)):
                return step
            if isinstance(step, CutShort) and self.token.fired:
                return step
            failure = give_up(spec, step, number)
            if failure.is_fatal or number > spec.retry.max_retries:
                return failure
            if not await self._retry(spec, failure, number, record):
                return CutShort(Cut.CANCELLED, self._standing(position, Status.CANCELLED))
            if is_subgraph:  # its child begins again where it began: with the answers that it had there
                notes.restore(record.path, held)
            number += 1
            context = self._context(spec, position, number)

    async def _retry(self, spec: NodeSpec[S], failure: GaveUp, number: int, record: NodeRecord) -> bool:
        """Wait for the next attempt; False when the level's token fired meanwhile."""
        delay, message = spec.retry.delay(number, failure.hint, self.run_.uniform), error_text(failure.error)
        record.retrying(RetryScheduled(message, failure.timed_out, delay))
        await self._say(ChunkType.RETRY, record.path, message)
        await pause(self.run_.clock, delay, self.token)
        return not self.token.fired

    async def _attempt(
        self, spec: NodeSpec[S], position: Position, context: NodeContext, record: NodeRecord
    ) -> AttemptEnd[S]:
        run, composite = self.run_, self.graph.composites.get(spec.name)
        with record.attempt(context.attempt):
            if composite is None:
                state = self.graph.states.thaw(position.state)
                return await attempt(
                    spec, state, context, token=self.token, clock=run.clock, executor=run.executor
                )
            visit = Visit(
                run=run,
                states=self.graph.states,
                spec=spec,
                position=position,
                context=context,
                token=context.cancellation,
                path=record.path,
                hops=(*self.above, position.hops + 1),
                keeps=not self.is_item,
                open_child=partial(self._child, position),
            )
            return await composite_attempt(composite, visit, self.token)

    def _child(
        self,
        position: Position,
        graph: CompiledGraph[Any],
        *,
        name: str,
        token: CancelToken,
        is_item: bool,
        is_recovery: bool,
    ) -> Level[Any]:
        """The level below the node at `position`; see `visit.OpenChild`."""
        run, node = self.run_, position.node
        child = Level(
            graph=graph,
            run_=run,
            rows=self.rows.below(node, graph, durable=run.journal.durable),
            token=token,
            limit=graph.max_node_hops,
            position=Position(node=graph.entry, state=""),
            wrap=lambda row: self.wrap(self.rows.row(Status.RUNNING, node, node, position, nested=row)),
            prefix=f"{self.prefix}{name}/",
            above=(*self.above, position.hops + 1),
            interrupt_before=graph.interrupt_before | inside(self.interrupt_before, node),
            interrupt_after=graph.interrupt_after | inside(self.interrupt_after, node),
            is_item=self.is_item or is_item,
            item_recovery=self.item_recovery or (is_item and is_recovery),
        )
        if not is_item:
            self.child = child
        return child

    def _judge(self, node: str, state: S) -> _Committed | Raised:
        """What committing this state would mean; the author's predicates may fail the node."""
        is_freezing = freezes(self.graph, node)
        try:
            text = self.graph.states.freeze(state)
        except StateError as error:
            doing = "freeze state at" if is_freezing else "persist state after"
            raise StateError(f"failed to {doing} '{node}': {error}") from error
        try:
            following = next_node(self.graph, node, state)
            wait = wait_after(self.graph, node, state, self.run_.clock.now()) if is_freezing else None
        except Exception as error:  # noqa: BLE001 - any exception is the node's failure
            return Raised(error)
        asks = isinstance(following, str) and self._interrupts(node, before=False)
        return _Committed(text, following, wait, is_freezing or asks)

    async def _commit(self, position: Position, end: _Committed, record: NodeRecord) -> Position | LevelEnd:
        """Write what the commit asks for, and say where the level goes on."""
        node, hops, run = position.node, position.hops + 1, self.run_
        goes_on = None if isinstance(end.following, NoWayOn) or end.freezes else end.following
        record.committed(goes_on)
        if run.stream is not None:
            await self._say(ChunkType.NODE_END, record.path, node)
        if isinstance(end.following, NoWayOn):
            message = f"no outgoing edge condition matched for node '{node}'"
            return LevelFailed(kind=FailureKind.NO_MATCHING_EDGE, message=message, node=node)
        if not self.is_item:  # an item leaves no notes, and one look at all of them each would add up
            run.notes.close_level(self.prefix)
        if end.freezes:
            row = self.rows.row(
                Status.INTERRUPTED, node, end.following, position, hops=hops, state=end.state, wait=end.wait
            )
            return LevelFroze(row=row)
        if end.following is None:
            return LevelDone(node=node, state=end.state, hops=hops, decision=position.decision)
        on = Position(node=end.following, state=end.state, hops=hops, decision=position.decision)
        if self._interrupts(on.node, before=True):
            return self._frozen_before(on)
        if run.journal.durable and not self.is_item:
            row = self.rows.row(Status.RUNNING, node, on.node, on)
            await run.journal.append(self.wrap(row), notes=run.notes.all())
            if run.stop is not None and run.stop.fired:
                self.position = on
                return LevelParted()
        return on

    async def _give_up(
        self, spec: NodeSpec[S], position: Position, end: GaveUp, record: NodeRecord
    ) -> Position | LevelFailed:
        message = error_text(end.error)
        record.failed(end, message, spec.fallback)
        await self._say(ChunkType.ERROR, record.path, message)
        if spec.fallback is not None:
            return self._fall_back(spec.fallback, position, end, record.path)
        row = self.rows.row(
            Status.FAILED,
            position.node,
            position.node,
            position,
            nested=end.nested,
            extra=failure_metadata(message, is_fatal=end.is_fatal, attempts=end.attempts, hint=end.hint),
        )
        return LevelFailed(
            kind=FailureKind.NODE_FAILED,
            message=message,
            node=position.node,
            row=row,
            attempts=end.attempts,
            is_fatal=end.is_fatal,
            hint=end.hint,
        )

    def _fall_back(self, fallback: str, position: Position, end: GaveUp, path: str) -> Position:
        told = LastFailure(
            node=position.node,
            node_path=path,
            error=error_text(end.error),
            attempts=end.attempts,
            timed_out=end.timed_out,
            retry_after=end.hint,
        )
        if not self.is_item:
            self.run_.notes.close(path)
        return replace(position, node=fallback, hops=position.hops + 1, last_failure=told, nested=None)

    def _limited(self, position: Position) -> LevelFailed:
        hops, limit = position.hops, self.limit or 0
        message = f"hop limit of {limit} reached: node '{position.node}' would be hop {hops + 1}"
        self.run_.emit(HopLimitExceeded(hops, limit), self.prefix + position.node)
        row = self.rows.row(
            Status.FAILED,
            position.node,
            position.node,
            position,
            nested=self._standing(position, Status.FAILED),
            extra=hop_limit_metadata(message),
        )
        return LevelFailed(
            kind=FailureKind.HOP_LIMIT, message=message, node=position.node, row=row, hops=hops, limit=limit
        )

    def _standing(self, position: Position, status: Status) -> Checkpoint | None:
        return self.rows.standing(self.graph, position, status, durable=self.run_.journal.durable)

    def _frozen_before(self, position: Position) -> LevelFroze:
        return LevelFroze(row=self.rows.row(Status.INTERRUPTED, position.node, position.node, position))

    def _cancelled(self, position: Position, nested: Checkpoint | None = None) -> LevelCancelled:
        row = self.rows.row(
            Status.CANCELLED,
            position.node,
            position.node,
            position,
            nested=nested,
            extra={CANCEL_REASON: self._reason()},
        )
        return LevelCancelled(row=row)

    def _reason(self) -> str:
        """A level that was stopped while its run goes on was stopped by its parent node's timeout."""
        if not self.run_.token.fired:
            return TIMEOUT
        deadline = self.run_.reason is CancelReason.DEADLINE
        return (CancelReason.DEADLINE if deadline else CancelReason.REQUESTED).value

    def _interrupts(self, node: str, *, before: bool) -> bool:
        """Whether a static interrupt stops the thread before or after the node."""
        return node in (self.interrupt_before if before else self.interrupt_after)

    async def _say(self, type_: ChunkType, path: str, content: str) -> bool:
        return await self.run_.say(type_, path, content, self.token)

    def _context(self, spec: NodeSpec[S], position: Position, number: int) -> NodeContext:
        run, node = self.run_, spec.name
        journal, path, token = run.journal, self.prefix + node, CancelToken()
        key = idempotency_key(
            journal.thread_id,
            path,
            (*self.above, position.hops + 1),
            run_id=None if journal.durable else run.run_id,
        )
        asks = spec.mode is NodeMode.ASYNC and not self.is_item
        stream = run.stream
        return NodeContext(
            thread_id=journal.thread_id,
            node=node,
            node_path=path,
            attempt=number,
            run_id=run.run_id,
            idempotency_key=key,
            is_recovery=position.is_recovery or self.item_recovery,
            metadata=journal.caller,
            decision=position.decision,
            last_failure=position.last_failure,
            cancellation=token,
            services=run.services,
            stream=None if stream is None else NodeStream.here(stream, path, token),
            questions=Questions(path, key, run.notes.answers(path)) if asks else None,
        )


def _needs_stream(spec: NodeSpec[S]) -> str:
    what = "a streaming node"
    if spec.mode is NodeMode.COMPOSITE:
        what = "a parallel group with a streaming branch, or a subgraph that streams,"
    return (
        f"node '{spec.name}' is {what} but this run has no stream: give it RunOptions(stream=ChunkStream())"
    )
