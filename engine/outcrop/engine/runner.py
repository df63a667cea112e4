"""Running a thread from a position to an outcome: its outermost level, and the row it ends with.

Owns what a level's end means for the thread: which row is saved last, what the caller is told,
and that no run that failed leaves a `running` row behind if it can be helped. Knows no verb:
`threads` puts a thread at a `Position`, with a journal to write to.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.stores.record import Status

from .cancellation import CancelReason, is_dropped, task_cancels
from .commit import Aborted, LeaseGone, LogMoved
from .ends import LevelCancelled, LevelDone, LevelFailed, LevelFroze
from .errors import StateError
from .events import InterruptedAt
from .failures import error_text, failing
from .level import Level
from .outcome import Cancelled, Completed, Failed, FailureKind, Interrupted, Stopped
from .position import Position
from .questions import question_notes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from outcrop.stores.record import Checkpoint, Note

    from .compiled import CompiledGraph
    from .ends import LevelEnd
    from .events import EventKind
    from .outcome import Refused, RunResult
    from .rows import LevelRows
    from .run import Run

S = TypeVar("S")


@dataclass(slots=True, kw_only=True)
class Runner(Generic[S]):
    """One call's run of one thread; `limit` is the hop limit in effect at the outermost level."""

    graph: CompiledGraph[S]
    run_: Run
    rows: LevelRows
    limit: int | None

    async def run(
        self,
        start: Position,
        *,
        first: Checkpoint | None,
        moved: Refused,
        is_fresh: bool = False,
        notes: Sequence[Note] = (),
        begun: EventKind | None = None,
    ) -> RunResult[S]:
        """Save the `first` row, if there is one, and run from `start` to an outcome.

        Raises only what is no `Exception`. `moved` is the outcome when the log isn't where
        the first row expects it. `notes` go with the first row, beside those that the run
        carries. A fresh run may be stopped before its first node; any other runs one first, so
        that taking a thread over always gets it somewhere. `begun` is told once it has begun.
        """
        level, cancels_before = self._level(start), task_cancels()
        try:
            if first is not None and not await self._begin(first, notes):
                return moved
            if begun is not None:
                self.run_.emit(begun)
            if is_fresh and (stopped := self._stopped(start)) is not None:
                return stopped
            return await self._close(level, await level.run(start, is_fresh=is_fresh))
        except LeaseGone:
            return self._lost(level)
        except LogMoved:
            return self._overtaken(level)
        except (Aborted, StateError) as error:
            return await self._fail(level, FailureKind.ABORTED, str(error))
        except BaseException as panic:
            if not is_dropped(panic, cancels_before):
                with suppress(LeaseGone, LogMoved):
                    await self._record_failing(error_text(panic))
            raise

    def _level(self, start: Position) -> Level[S]:
        return Level(
            graph=self.graph,
            run_=self.run_,
            rows=self.rows,
            token=self.run_.token,
            limit=self.limit,
            wrap=lambda row: row,
            position=start,
            interrupt_before=self.graph.interrupt_before | self.run_.interrupt_before,
            interrupt_after=self.graph.interrupt_after | self.run_.interrupt_after,
        )

    async def _begin(self, first: Checkpoint, notes: Sequence[Note]) -> bool:
        stamp = first.resumed_at is not None
        try:
            await self.run_.journal.append(first, stamp=stamp, notes=(*self.run_.notes.all(), *notes))
        except LogMoved:
            return False
        return True

    async def _close(self, level: Level[S], end: LevelEnd) -> RunResult[S]:
        match end:
            case LevelDone():
                return await self._complete(end)
            case LevelFroze():
                return await self._freeze(end)
            case LevelFailed():
                if end.row is None:
                    return await self._fail(level, end.kind, end.message, end)
                return self._failed(end, await self._save(end.row))
            case LevelCancelled(row=row):
                return await self._cancel(row)
            case _:
                return self._stopped_at(level.position)

    async def _complete(self, end: LevelDone) -> Completed[S]:
        sequence: int | None = None
        if self.run_.journal.durable:
            at = Position(node=end.node, state=end.state, hops=end.hops, decision=end.decision)
            sequence = await self._save(self.rows.row(Status.COMPLETED, end.node, None, at))
        else:
            self.run_.journal.check_lease()
        state = self.graph.states.thaw(end.state)
        return Completed(thread_id=self._thread_id, state=state, sequence=sequence)

    async def _freeze(self, end: LevelFroze) -> Interrupted[S]:
        row = end.row
        sequence = await self._save(row, question_notes(end.questions))
        wait = row.innermost.wait
        self.run_.emit(InterruptedAt(row.waiting_at, row.next_node, wait))
        return Interrupted(
            thread_id=self._thread_id,
            suspended_node=row.suspended_node or "",
            next_node=row.next_node,
            waiting_at=row.waiting_at,
            wait=wait,
            state=self.graph.states.thaw(row.frozen_state),
            sequence=sequence,
            questions=end.questions,
        )

    async def _save(self, row: Checkpoint, notes: Sequence[Note] = ()) -> int:
        return await self.run_.journal.append(row, notes=(*self.run_.notes.all(), *notes))

    async def _cancel(self, row: Checkpoint) -> Cancelled[S]:
        reason = self.run_.reason
        if reason is CancelReason.LEASE_LOST:
            return self._cancelled(row.suspended_node, row.frozen_state, row.waiting_at, reason, None)
        sequence = await self._save(row)
        return self._cancelled(row.suspended_node, row.frozen_state, row.waiting_at, reason, sequence)

    def _lost(self, level: Level[S]) -> Cancelled[S]:
        position = level.position
        stopped_at = tuple(_nodes(level))
        return self._cancelled(position.node, position.state, stopped_at, CancelReason.LEASE_LOST, None)

    def _cancelled(
        self,
        node: str | None,
        state: str,
        stopped_at: tuple[str, ...],
        reason: CancelReason,
        sequence: int | None,
    ) -> Cancelled[S]:
        return Cancelled(
            thread_id=self._thread_id,
            reason=reason,
            node=node or "",
            state=self.graph.states.thaw(state),
            stopped_at=stopped_at,
            sequence=sequence,
        )

    def _stopped(self, position: Position) -> Stopped[S] | None:
        journal, stop = self.run_.journal, self.run_.stop
        if stop is None or not stop.fired or not journal.durable or journal.expected is None:
            return None
        return self._stopped_at(position)

    def _stopped_at(self, position: Position) -> Stopped[S]:
        sequence = self.run_.journal.expected
        return Stopped(
            thread_id=self._thread_id,
            next_node=position.node,
            state=self.graph.states.thaw(position.state),
            sequence=-1 if sequence is None else sequence,
        )

    def _overtaken(self, level: Level[S]) -> RunResult[S]:
        if self.run_.journal.tenure is not None:
            return self._lost(level)
        return Failed(
            thread_id=self._thread_id,
            kind=FailureKind.ABORTED,
            message=f"thread '{self._thread_id}' changed while it ran: another run or an end got there first",
        )

    async def _fail(
        self, level: Level[S], kind: FailureKind, message: str, end: LevelFailed | None = None
    ) -> RunResult[S]:
        try:
            sequence = await self._record_failing(message)
        except LeaseGone:
            return self._lost(level)
        except LogMoved:
            if self.run_.journal.tenure is not None:
                return self._lost(level)
            sequence = None  # the save that failed had happened after all
        node = end.node if end is not None and kind is FailureKind.NO_MATCHING_EDGE else None
        return Failed(thread_id=self._thread_id, kind=kind, message=message, node=node, sequence=sequence)

    def _failed(self, end: LevelFailed, sequence: int) -> Failed:
        return Failed(
            thread_id=self._thread_id,
            kind=end.kind,
            message=end.message,
            node=end.node,
            attempts=end.attempts,
            sequence=sequence,
            hops=end.hops,
            limit=end.limit,
        )

    async def _record_failing(self, message: str) -> int | None:
        """Leave no `running` row behind a run that failed, if it can be helped."""
        journal = self.run_.journal
        journal.check_lease()
        last = journal.last
        if last is None or last.status is not Status.RUNNING:
            return None
        try:
            return await self._save(failing(last, message, self.run_.clock.now()))
        except Aborted:
            return None  # it stays running, for a recovery

    @property
    def _thread_id(self) -> str:
        return self.run_.journal.thread_id


def _nodes(level: Level[Any]) -> list[str]:
    """Where each level has come to, outermost first."""
    below = [] if level.child is None else _nodes(level.child)
    return [level.position.node, *below]
