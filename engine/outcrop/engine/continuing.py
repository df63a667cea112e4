"""Going on with a thread: after an answer, a wake or a failure, or where a dead run left it.

Owns how such a call puts its checks, its lease and its first row together; the checks are
`preflight`'s, the running `runner`'s. Its order is the rule: load, refuse, take the lease, claim.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from outcrop.stores.instants import instant_text
from outcrop.stores.record import Row

from .ending import time_out_thread
from .events import Recovered
from .metadata import RECOVERIES, carried_marks, carried_metadata, recoveries_of
from .options import time_refusal
from .outcome import RefusalCode, Refused
from .preflight import EndsHere, GoesOn, Preflight
from .waits import EventWake

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from outcrop.stores.record import Checkpoint, Note

    from .call import Call
    from .outcome import RunResult
    from .waits import Wake

S = TypeVar("S")


async def resume_thread(
    call: Call[S], wake: Wake | None, boundary: str | None, now: datetime | None
) -> RunResult[S]:
    """Answer, wake or retry the thread, and run on from there."""
    if (refused := _wake_refusal(wake, now)) is not None:
        return call.refuse(RefusalCode.INVALID, refused)
    checks = Preflight(call.engine.graph, call.thread_id)
    found = await _found(call, checks)
    if isinstance(found, Refused):
        return found
    row, notes = found
    instant = instant_text(now or call.engine.clock.now())
    verdict = checks.resume(row.checkpoint, wake, now=instant, boundary=boundary, notes=notes)
    match verdict:
        case Refused():
            _begin(call, row.checkpoint, row.checkpoint.next_node)
            return verdict
        case EndsHere():
            _begin(call, row.checkpoint, row.checkpoint.suspended_node)
            return await time_out_thread(call, Row(row.sequence, verdict.row))
        case GoesOn():
            _begin(call, verdict.row, verdict.position.node)
            return await call.take_lease() or await _go_on(call, row, verdict, notes)


async def _go_on(call: Call[S], row: Row, start: GoesOn, notes: Iterable[Note]) -> RunResult[S]:
    loaded, position = start.row, start.position
    journal = call.journal(carried_metadata(loaded, call.options.metadata), expected=row.sequence)
    runner = call.runner(journal, notes)
    runner.run_.notes.answer(start.answers)
    if position.states() != [level.frozen_state for level in row.checkpoint.levels()]:
        runner.run_.notes.forget_finished()
    if journal.durable:
        first = runner.rows.claim(call.engine.graph, loaded, position)
    else:
        first = _stamped(loaded, instant_text(call.engine.clock.now()))
    moved = call.refuse(
        RefusalCode.LOST_RACE,
        f"checkpoint for thread '{call.thread_id}' changed before it could be resumed: "
        "another resume or end got there first",
    )
    return await runner.run(position, first=first, moved=moved, begun=start.resumed)


async def recover_thread(call: Call[S]) -> RunResult[S]:
    """Run on where a dead run left the thread."""
    checks = Preflight(call.engine.graph, call.thread_id)
    if (refusal := checks.durable()) is not None:
        return refusal
    row = await _loaded(call, checks)
    if isinstance(row, Refused):
        return row
    _begin(call, row.checkpoint, row.checkpoint.next_node)
    start = checks.recover(row.checkpoint)
    if isinstance(start, Refused):
        return start
    if (refusal := await call.claim_running()) is not None:
        return refusal
    # After the lease is taken: the run that died may have kept results until then.
    notes = await call.notes(row)
    if isinstance(notes, Refused):
        return notes
    loaded, times = start.row, recoveries_of(start.row) + 1
    journal = call.journal(
        carried_metadata(loaded, call.options.metadata),
        expected=row.sequence,
        carried=carried_marks(loaded),
    )
    runner = call.runner(journal, notes)
    claim = runner.rows.claim(call.engine.graph, loaded, start.position, extra={RECOVERIES: str(times)})
    moved = call.refuse(
        RefusalCode.LOST_RACE,
        f"thread '{call.thread_id}' changed before it could be recovered: "
        "its run went on, or another recovery got there first",
    )
    at = tuple(level.next_node or "" for level in loaded.levels())
    return await runner.run(start.position, first=claim, moved=moved, begun=Recovered(at, times))


async def _found(call: Call[S], checks: Preflight[S]) -> tuple[Row, tuple[Note, ...]] | Refused:
    """The thread's latest row and what stands beside it."""
    row = await _loaded(call, checks)
    if isinstance(row, Refused):
        return row
    notes = await call.notes(row)
    return notes if isinstance(notes, Refused) else (row, notes)


async def _loaded(call: Call[S], checks: Preflight[S]) -> Row | Refused:
    loaded = await call.load()
    if isinstance(loaded, Refused):
        return loaded
    row = checks.found(loaded, call.options.expected_sequence)
    if isinstance(row, Refused):
        call.record.started_nowhere(call.options.metadata)
    return row


def _wake_refusal(wake: Wake | None, now: datetime | None) -> str | None:
    """Why the wake can't be one, whatever the thread waits for."""
    if isinstance(wake, EventWake) and not wake.event.strip():
        return "a signal needs an event type"
    return None if now is None else time_refusal("a wake's time", now)


def _begin(call: Call[Any], row: Checkpoint, node: str | None) -> None:
    """Tell that the run starts, with what the thread carries and the call adds."""
    call.record.started(node or "", carried_metadata(row, call.options.metadata))


def _stamped(row: Checkpoint, now: str) -> Checkpoint:
    """The row again, marked as resumed: a Boundaries run leaves no other trace of its start."""
    return replace(row, resumed_at=now)
