"""Ending a thread for good, and cancelling one that its run left behind.

Owns the `ended` row and the `cancelled` row that no run writes. Works on every level of a
row, whoever wrote it, and runs no node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from outcrop.stores.instants import instant_text
from outcrop.stores.record import Row, Status

from .cancellation import CancelReason
from .commit import Aborted, LeaseGone, LogMoved
from .metadata import CANCEL_REASON, END_REASON, ENDED_BY, HOPS, carried_marks, carried_metadata
from .open_notes import OpenNotes
from .outcome import Cancelled, Failed, FailureKind, RefusalCode, Refused
from .preflight import Preflight
from .rows import each_level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outcrop.stores.record import Checkpoint, Note

    from .call import Call
    from .outcome import RunResult

S = TypeVar("S")

ATTEMPTS = 3


async def end_thread(call: Call[S], by: str | None) -> RunResult[S]:
    """End the thread unless it has completed, is resumed, or somebody runs it."""
    told = {END_REASON: "requested", **({} if by is None else {ENDED_BY: by})}
    for attempt in range(ATTEMPTS):
        row = await _loaded(call, is_first=attempt == 0)
        if isinstance(row, Refused):
            return row
        row = _endable(call, row)
        if isinstance(row, Refused):
            return row
        if row.checkpoint.status is Status.ENDED:
            return _stopped(call, row.checkpoint, CancelReason.ENDED, row.sequence)
        is_running = row.checkpoint.status is Status.RUNNING
        refusal = await (call.claim_running() if is_running else call.take_lease())
        if refusal is not None:
            return refusal
        try:
            return await _save_ended(call, row, told)
        except LogMoved:
            continue
    message = f"thread '{call.thread_id}' kept changing while it was being ended"
    return call.refuse(RefusalCode.LOST_RACE, message)


async def time_out_thread(call: Call[S], row: Row) -> RunResult[S]:
    """End a waiting thread whose timeout has no route."""
    if (refusal := await call.take_lease()) is not None:
        return refusal
    try:
        return await _save_ended(call, row, {END_REASON: "timed_out"})
    except LogMoved:
        return call.refuse(
            RefusalCode.LOST_RACE,
            f"thread '{call.thread_id}' changed before its timeout could end it: "
            "another driver got there first",
        )


async def cancel_thread(call: Call[S]) -> RunResult[S]:
    """Write the `cancelled` row of a thread left `running` that nobody runs."""
    left = await _left_running(call)
    if isinstance(left, Refused):
        return left
    row, latest = left
    if (refusal := await call.claim_running()) is not None:
        return refusal
    # What was answered and finished stays so: a resume goes on with it.
    notes = await call.notes(row)
    if isinstance(notes, Refused):
        return notes
    caller, now = carried_metadata(latest, call.options.metadata), _now(call)

    def cancel(level: Checkpoint) -> Checkpoint:
        hops = (level.metadata or {}).get(HOPS)
        return replace(
            level,
            status=Status.CANCELLED,
            suspended_node=level.next_node,
            metadata={
                **caller,
                **({} if hops is None else {HOPS: hops}),
                CANCEL_REASON: CancelReason.REQUESTED.value,
            },
            created_at=now,
            resumed_at=None,
        )

    try:
        return await _save(
            call,
            row,
            each_level(latest, cancel),
            CancelReason.REQUESTED,
            carried_marks(latest),
            notes=OpenNotes(notes).all(),
        )
    except LogMoved:
        return call.refuse(
            RefusalCode.LOST_RACE,
            f"thread '{call.thread_id}' changed before it could be cancelled: "
            "its run went on, or a recovery or an end got there first",
        )


async def _left_running(call: Call[S]) -> tuple[Row, Checkpoint] | Refused:
    """The latest row, which says `running`, and as this graph takes it on."""
    row = await _loaded(call)
    if isinstance(row, Refused):
        return row
    checks = Preflight(call.engine.graph, call.thread_id)
    refusal = checks.version(row.checkpoint) or checks.running(row.checkpoint)
    latest = refusal or checks.adopted(row.checkpoint)
    return latest if isinstance(latest, Refused) else (row, latest)


async def _loaded(call: Call[S], *, is_first: bool = True) -> Row | Refused:
    """The latest row; the first time, the run is told to have started."""
    loaded = await call.load()
    if isinstance(loaded, Refused):
        return loaded
    row = Preflight(call.engine.graph, call.thread_id).found(loaded, call.options.expected_sequence)
    if is_first:
        latest = None if isinstance(row, Refused) else row.checkpoint
        node = "" if latest is None else latest.suspended_node or latest.next_node or ""
        metadata = call.options.metadata
        call.record.started(node, metadata if latest is None else carried_metadata(latest, metadata))
    return row


def _endable(call: Call[S], found: Row) -> Row | Refused:
    """The row as this graph takes it on, if its thread can be ended."""
    row = found.checkpoint
    checks, thread = Preflight(call.engine.graph, call.thread_id), f"thread '{call.thread_id}'"
    only = "only a waiting, failed or cancelled thread can be ended"
    if (refusal := checks.version(row)) is not None:
        return refusal
    if row.resumed_at is not None:
        message = f"{thread} was resumed at {row.resumed_at} and may still be running: {only}"
        return call.refuse(RefusalCode.ALREADY_RESUMED, message)
    if row.status is Status.COMPLETED:
        return call.refuse(RefusalCode.COMPLETED, f"{thread} has completed: {only}")
    taken_on = checks.adopted(row)
    if isinstance(taken_on, Refused):
        return taken_on
    return checks.states(taken_on) or Row(found.sequence, taken_on)


async def _save_ended(call: Call[S], row: Row, told: Mapping[str, str]) -> RunResult[S]:
    caller, now = carried_metadata(row.checkpoint, call.options.metadata), _now(call)

    def end(level: Checkpoint) -> Checkpoint:
        is_running = level.status is Status.RUNNING
        return replace(
            level,
            status=Status.ENDED,
            suspended_node=level.next_node if is_running else level.suspended_node,
            next_node=None,
            metadata={**caller, **told},
            created_at=now,
            resumed_at=None,
            wait=None,
        )

    return await _save(call, row, each_level(row.checkpoint, end), CancelReason.ENDED, {})


async def _save(
    call: Call[S],
    row: Row,
    ended: Checkpoint,
    reason: CancelReason,
    carried: Mapping[str, str],
    *,
    notes: Sequence[Note] = (),
) -> RunResult[S]:
    journal = call.journal(call.options.metadata, expected=row.sequence, carried=carried)
    try:
        sequence = await journal.append(ended, notes=notes)
    except LeaseGone:
        return _stopped(call, ended, CancelReason.LEASE_LOST, None)
    except Aborted as error:
        return Failed(thread_id=call.thread_id, kind=FailureKind.ABORTED, message=str(error))
    return _stopped(call, ended, reason, sequence)


def _stopped(call: Call[S], row: Checkpoint, reason: CancelReason, sequence: int | None) -> RunResult[S]:
    state = Preflight(call.engine.graph, call.thread_id).state(row.frozen_state)
    if isinstance(state, Refused):
        return state
    return Cancelled(
        thread_id=call.thread_id,
        reason=reason,
        node=row.suspended_node or "",
        state=state,
        stopped_at=row.waiting_at,
        sequence=sequence,
    )


def _now(call: Call[S]) -> str:
    return instant_text(call.engine.clock.now())
