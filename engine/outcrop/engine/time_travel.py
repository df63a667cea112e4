"""Going back in a thread: a state changed, an earlier row made the latest again, or run again.

Owns the row that a thread goes on from then. The log only grows: the new row hangs on the one
that it was made from, by a note, and the newest row is the thread's latest. Its hop count goes
on above every one in the log, so that what runs again does so under new idempotency keys.

A claim's row is recovered like any other, so a crash right after it loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outcrop.stores.instants import instant_text
from outcrop.stores.record import NoteKind, Row, Status, ThreadState

from .cancellation import CancelReason
from .commit import Aborted, LeaseGone, LogMoved
from .errors import StateError
from .history import PAGE, parent_note
from .metadata import HOPS, belongs_to_row, carried_metadata, hops_of
from .outcome import Cancelled, Completed, Failed, FailureKind, Interrupted, RefusalCode, Refused
from .position import Position
from .preflight import Preflight
from .questions import questions_in
from .routing import NoWayOn, freezes, next_node, wait_after
from .rows import each_level, versioned
from .state import apply_overrides

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outcrop.stores.record import Checkpoint, Json, Note

    from .call import Call
    from .outcome import RunResult
    from .runner import Runner

S = TypeVar("S")

_OPEN = (NoteKind.QUESTION, NoteKind.ANSWER, NoteKind.FINISHED)


@dataclass(frozen=True, slots=True)
class _Base(Generic[S]):
    """What a new row is made from: an earlier one as this graph takes it on, and what is after it."""

    at: Row
    latest: int
    hops: int
    notes: tuple[Note, ...]
    went_on: bool

    def without_finished(self) -> _Base[S]:
        """The same without kept results: what they came from is no more, or is to work again."""
        return replace(self, notes=tuple(note for note in self.notes if note.kind is not NoteKind.FINISHED))


async def update_state(
    call: Call[S], values: Mapping[str, Json], as_node: str | None, at_sequence: int | None
) -> RunResult[S]:
    """See `Threads.update_state`."""
    base = await _base(call, at_sequence)
    if isinstance(base, Refused):
        return base
    graph = call.engine.graph
    try:
        laid_over = apply_overrides(base.at.checkpoint.frozen_state, values)
        state = graph.states.thaw(laid_over)
        text = graph.states.freeze(state)
    except StateError as error:
        message = f"thread '{call.thread_id}' can't take these values: {error}"
        return call.refuse(RefusalCode.STATE, message)
    if as_node is None:
        row = _standing(call, replace(base.at.checkpoint, frozen_state=text))
        base = base if text == base.at.checkpoint.frozen_state else base.without_finished()
        return row if isinstance(row, Refused) else await _write(call, base, row)
    made = _as_left_by(call, base, as_node, state, text)
    return made if isinstance(made, Refused) else await _write(call, replace(base, notes=()), made)


async def fork(call: Call[S], at_sequence: int) -> RunResult[S]:
    """See `Threads.fork`."""
    base = await _base(call, at_sequence)
    if isinstance(base, Refused):
        return base
    row = _standing(call, base.at.checkpoint)
    return row if isinstance(row, Refused) else await _write(call, base, row)


async def rerun(call: Call[S], at_sequence: int) -> RunResult[S]:
    """See `Threads.rerun`."""
    base = await _base(call, at_sequence)
    if isinstance(base, Refused):
        return base
    row = _standing(call, base.at.checkpoint)
    if isinstance(row, Refused):
        return row
    start = Preflight(call.engine.graph, call.thread_id).standing(row)
    if isinstance(start, Refused):
        return start
    is_unanswered = base.at.checkpoint.state is ThreadState.INTERRUPTED and not base.went_on
    innermost = row.innermost
    if is_unanswered and innermost.suspended_node != innermost.next_node:
        message = (
            f"nobody answered thread '{call.thread_id}' at '{innermost.suspended_node}', sequence "
            f"{at_sequence}: fork it there and answer it, or rerun it from an earlier checkpoint"
        )
        return call.refuse(RefusalCode.UNANSWERED, message)
    base = base.without_finished()
    position = replace(start.position.unasked() if is_unanswered else start.position, hops=base.hops)
    runner = _runner(call, base)
    if runner.run_.journal.durable:
        first = runner.rows.claim(call.engine.graph, row, position)
    else:
        now = instant_text(call.engine.clock.now())
        first = _counted(replace(row, resumed_at=now), base.hops, runner)
    moved = _moved(call)
    return await runner.run(position, first=first, moved=moved, notes=[parent_note(base.at.sequence)])


async def _base(call: Call[S], at_sequence: int | None) -> _Base[S] | Refused:  # noqa: PLR0911 - one return for each refusal
    """The row to go on from, if the thread may be taken back to it; takes the lease."""
    checks = Preflight(call.engine.graph, call.thread_id)
    loaded = await call.load()
    latest = loaded if isinstance(loaded, Refused) else checks.found(loaded, call.options.expected_sequence)
    if isinstance(latest, Refused):
        call.record.started_nowhere(call.options.metadata)
        return latest
    call.record.started(
        latest.checkpoint.next_node or "", carried_metadata(latest.checkpoint, call.options.metadata)
    )
    may_run = latest.checkpoint.state in (ThreadState.RUNNING, ThreadState.RESUMED)
    refusal = await (call.claim_running() if may_run else call.take_lease())
    if refusal is not None:
        return refusal
    try:
        at, after, most = await _find(call, latest.sequence if at_sequence is None else at_sequence)
        notes = await call.engine.store.get_notes([row for row in (at, after) if row is not None])
    except Exception as error:  # noqa: BLE001 - a verb tells what its store said, and raises nothing
        return call.refuse(RefusalCode.STORE, str(error))
    if at is None:
        message = f"thread '{call.thread_id}' has no checkpoint at sequence {at_sequence}"
        return call.refuse(RefusalCode.NO_CHECKPOINT, message)
    row = checks.version(at.checkpoint) or checks.adopted(at.checkpoint)
    if isinstance(row, Refused):
        return row
    if (refusal := checks.levels(row) or checks.states(row)) is not None:
        return refusal
    open_notes = tuple(note for note in notes.get(at.sequence, ()) if note.kind in _OPEN)
    went_on = after is not None and _follows(after, notes.get(after.sequence, ()))
    return _Base(Row(at.sequence, row), latest.sequence, most + 1, open_notes, went_on)


def _follows(row: Row, notes: Iterable[Note]) -> bool:
    """Whether the thread went on with the row from the one before it."""
    hangs_elsewhere = any(note.kind is NoteKind.PARENT for note in notes)
    return row.checkpoint.state in (ThreadState.RUNNING, ThreadState.RESUMED) and not hangs_elsewhere


async def _find(call: Call[Any], sequence: int) -> tuple[Row | None, Row | None, int]:
    """The row at a sequence and the next one, and the highest hop count of the whole log."""
    found: dict[int, Row] = {}
    most, after = 0, None
    while True:
        page = await call.engine.store.get_log(call.thread_id, after=after, limit=PAGE)
        for row in page.entries:
            most = max(most, hops_of(row.checkpoint))
            if row.sequence in (sequence, sequence + 1):
                found[row.sequence] = row
        if page.next_after is None:
            return found.get(sequence), found.get(sequence + 1), most
        after = page.next_after


def _standing(call: Call[S], row: Checkpoint) -> Checkpoint | Refused:
    """The row's own place as one that can be gone on from: waiting, failed or cancelled."""
    if row.status in (Status.COMPLETED, Status.ENDED):
        message = (
            f"thread '{call.thread_id}' can't go on from a row that is {row.status}: "
            "update its state as a node, or choose an earlier row"
        )
        return call.refuse(RefusalCode.NO_NEXT_NODE, message)

    def wait(level: Checkpoint) -> Checkpoint:
        if level.status is not Status.RUNNING:
            return replace(level, resumed_at=None)
        suspended = level.suspended_node or level.next_node
        return replace(level, status=Status.INTERRUPTED, suspended_node=suspended, resumed_at=None)

    return each_level(row, wait)


def _as_left_by(call: Call[S], base: _Base[S], node: str, state: S, text: str) -> Checkpoint | Refused:
    """The row that the node would have left, had it just left this state."""
    graph, row = call.engine.graph, base.at.checkpoint
    if node not in graph.nodes and node not in graph.waits:
        message = f"thread '{call.thread_id}' can't be updated as node '{node}': the graph has no such node"
        return call.refuse(RefusalCode.INVALID, message)
    try:
        following = next_node(graph, node, state)
        waits = freezes(graph, node)
        wait = wait_after(graph, node, state, call.engine.clock.now()) if waits else None
    except Exception as error:  # noqa: BLE001 - the author's predicates may raise anything
        message = f"thread '{call.thread_id}' can't be updated as node '{node}': {error}"
        return call.refuse(RefusalCode.INVALID, message)
    if isinstance(following, NoWayOn):
        message = f"thread '{call.thread_id}' has no way on from node '{node}' with these values"
        return call.refuse(RefusalCode.INVALID, message)
    if following is None and not call.engine.is_durable and not waits:
        message = (
            f"thread '{call.thread_id}' would be complete after node '{node}', "
            "and this graph keeps no such row"
        )
        return call.refuse(RefusalCode.NO_NEXT_NODE, message)
    completes = following is None and not waits
    at = Position(node=node, state=text, decision=row.decision)
    rows = _runner(call, base).rows
    return rows.row(Status.COMPLETED if completes else Status.INTERRUPTED, node, following, at, wait=wait)


async def _write(call: Call[S], base: _Base[S], row: Checkpoint) -> RunResult[S]:
    runner = _runner(call, base)
    now = instant_text(call.engine.clock.now())
    counted = _counted(replace(row, created_at=now), base.hops, runner)
    try:
        sequence = await runner.run_.journal.append(
            counted, notes=(*base.notes, parent_note(base.at.sequence))
        )
    except LogMoved:
        return _moved(call)
    except LeaseGone:
        return _told(call, counted, None, base.notes)
    except Aborted as error:
        return Failed(thread_id=call.thread_id, kind=FailureKind.ABORTED, message=str(error))
    return _told(call, counted, sequence, base.notes)


def _told(call: Call[S], row: Checkpoint, sequence: int | None, notes: tuple[Note, ...]) -> RunResult[S]:
    """Where the thread stands now, as a run that ended there would tell it."""
    state = call.engine.graph.states.thaw(row.frozen_state)
    node = row.suspended_node or ""
    if sequence is None or row.status is Status.CANCELLED:
        reason = CancelReason.LEASE_LOST if sequence is None else CancelReason.REQUESTED
        return Cancelled(
            thread_id=call.thread_id,
            reason=reason,
            node=node,
            state=state,
            stopped_at=row.waiting_at,
            sequence=sequence,
        )
    if row.status is Status.COMPLETED:
        return Completed(thread_id=call.thread_id, state=state, sequence=sequence)
    if row.status is Status.FAILED:
        message = (row.metadata or {}).get("error", "the thread failed before")
        return Failed(
            thread_id=call.thread_id,
            kind=FailureKind.NODE_FAILED,
            message=message,
            node=node,
            sequence=sequence,
        )
    return Interrupted(
        thread_id=call.thread_id,
        suspended_node=node,
        next_node=row.next_node,
        waiting_at=row.waiting_at,
        wait=row.innermost.wait,
        state=state,
        sequence=sequence,
        questions=questions_in(notes),
    )


def _runner(call: Call[S], base: _Base[S]) -> Runner[S]:
    caller = carried_metadata(base.at.checkpoint, call.options.metadata)
    return call.runner(call.journal(caller, expected=base.latest), base.notes)


def _counted(row: Checkpoint, hops: int, runner: Runner[Any]) -> Checkpoint:
    """The row with the callers' keys and the new hop count; of its own, what tells how it ended."""
    own = {key: value for key, value in (row.metadata or {}).items() if not belongs_to_row(key)}
    metadata = {**own, **runner.rows.caller}
    if runner.rows.counts_hops or HOPS in metadata:
        metadata[HOPS] = str(hops)
    return versioned(replace(row, metadata=metadata or None))


def _moved(call: Call[Any]) -> Refused:
    return call.refuse(
        RefusalCode.LOST_RACE,
        f"thread '{call.thread_id}' changed before it could be taken back: another call got there first",
    )
