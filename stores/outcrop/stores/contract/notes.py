"""Notes beside rows: written with a row or next to the latest one, fenced, in order, gone with the thread."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.port import LeaseLost, NotLatest, Saved
from outcrop.stores.record import Note, NoteKind, Row, Status, ThreadState

from .case import Capability
from .leases import acquired
from .refusal import refused
from .samples import sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.stores.port import Store

capability = Capability("notes")

_A: Final = Note(NoteKind.ANSWER, "Work/Ask", '[{"id":"q","value":1}]')
_Q: Final = Note(NoteKind.QUESTION, "Work/Ask", '{"id":"q","position":0,"payload":null}')
_F: Final = Note(NoteKind.FINISHED, "g/b", '{"n":1}')
_P: Final = Note(NoteKind.PARENT, "", '{"sequence":0}')
_OLD: Final = "2026-01-01T00:00:00Z"


async def _latest(store: Store, thread_id: str = "t") -> Row:
    row = await store.load(thread_id)
    assert row is not None
    return row


async def _beside(store: Store, row: Row) -> Sequence[Note]:
    found = await store.get_notes([row])
    assert set(found) <= {row.sequence}
    return found.get(row.sequence, ())


@capability.case
async def notes_come_with_their_row(store: Store) -> None:
    """Sorted by kind and path, whatever order they were given in; a row without any has none."""
    assert await store.save(sample(), notes=[_Q, _P, _F, _A]) == Saved(0)
    first = await _latest(store)
    assert await _beside(store, first) == (_A, _F, _P, _Q)
    assert await store.save(sample()) == Saved(1)
    assert await store.get_notes([await _latest(store)]) == {}
    assert await _beside(store, first) == (_A, _F, _P, _Q)


@capability.case
async def notes_are_ordered_by_kind_and_path(store: Store) -> None:
    """By code points, in every engine."""
    paths = ("", "a", "a/b", "a b", "B", "b", "z", "é", "\uff5a", "\U0001f600", "10", "9")
    notes = [Note(kind, path, "0") for path in paths for kind in NoteKind]
    await store.save(sample(), notes=notes)
    found = await _beside(store, await _latest(store))
    assert found == tuple(sorted(notes, key=lambda note: (note.kind, note.path)))


@capability.case
async def notes_of_several_rows_come_together(store: Store) -> None:
    """By sequence; what wasn't asked for, and rows without notes, are left out."""
    for at in range(12):
        value = f'{{"sequence":{at}}}'
        await store.save(sample(), notes=[replace(_P, value=value)] if at % 3 else ())
    rows = (await store.get_log("t")).entries
    found = await store.get_notes(rows[:11][::-1])
    assert list(found) == [1, 2, 4, 5, 7, 8, 10]
    assert all(notes == (replace(_P, value=f'{{"sequence":{at}}}'),) for at, notes in found.items())
    assert await store.get_notes([]) == {}


@capability.case
async def threads_have_notes_of_their_own(store: Store) -> None:
    """Also those whose IDs are alike, or look like what a store may join them with."""
    threads = ("t", "T", "t ", "t/1", "t:0", "t:0/answer", "é", "%", "t*")
    for at, thread_id in enumerate(threads):
        await store.save(sample(thread_id), notes=[replace(_A, path=f"{thread_id}/{at}")])
    for at, thread_id in enumerate(threads):
        row = await _latest(store, thread_id)
        assert await _beside(store, row) == (replace(_A, path=f"{thread_id}/{at}"),)


@capability.case
async def texts_come_back_as_they_are(store: Store) -> None:
    """JSON with its spaces, numbers and escapes; any Unicode; paths with slashes and quotes."""
    values = ('{ "b" : 1.0, "a":1e300 }', '"\\u0000"', '"é\U0001f600\\n"', "[" * 50 + "]" * 50, "-0.0", '""')
    paths = ("a/b/c", "q\"uo'te", "back\\slash", "new\nline", "é\U0001f600", "a,b", "{}")
    notes = [
        Note(NoteKind.FINISHED, f"{path}{at}", value) for at, value in enumerate(values) for path in paths
    ]
    await store.save(sample(), notes=notes)
    found = await _beside(store, await _latest(store))
    assert {note.path: note for note in found} == {note.path: note for note in notes}


@capability.case
async def a_value_may_be_large(store: Store) -> None:
    large = '"' + "é" * 1_000_000 + '"'
    await store.save(sample(frozen_state=f'{{"large":{large}}}'), notes=[replace(_F, value=large)])
    row = await _latest(store)
    more = replace(_F, path="g/c", value=large)
    assert await store.add_notes(row, [more]) == Saved(0)
    assert await _beside(store, row) == (replace(_F, value=large), more)


@capability.case
async def half_a_character_is_refused(store: Store) -> None:
    """And the row with it."""
    half = replace(_F, path="\ud800")
    message = "a note 'finished' of thread 't' isn't valid Unicode: surrogates not allowed"
    await refused(store.save(sample(), notes=[_A, half]), InvalidRequest, message)
    assert await store.load("t") is None
    await store.save(sample())
    row = await _latest(store)
    await refused(store.add_notes(row, [_A, replace(_F, value='"\ud800"')]), InvalidRequest, message)
    assert await _beside(store, row) == ()


@capability.case
async def notes_are_added_beside_the_latest_row(store: Store) -> None:
    """Over those of the same kind and path; the others stay."""
    await store.save(sample(), notes=[_P, _A])
    row = await _latest(store)
    assert await store.add_notes(row, [_F]) == Saved(0)
    again = replace(_A, value="[]")
    assert await store.add_notes(row, [again, _Q]) == Saved(0)
    assert await store.add_notes(row, [again, _Q]) == Saved(0)  # twice is once
    assert await store.add_notes(row, []) == Saved(0)
    assert await _beside(store, row) == (again, _F, _P, _Q)
    assert (await store.get_log("t")).entries == (row,)


@capability.case
async def of_equals_the_last_counts(store: Store) -> None:
    await store.save(sample(), notes=[_A, replace(_A, value="2")])
    row = await _latest(store)
    assert await _beside(store, row) == (replace(_A, value="2"),)
    await store.add_notes(row, [replace(_A, value="3"), replace(_A, value="4")])
    assert await _beside(store, row) == (replace(_A, value="4"),)


@capability.case
async def notes_beside_another_row_than_the_latest_are_refused(store: Store) -> None:
    """One before it, one that isn't there yet, one of another time, one of no thread."""
    await store.save(sample())
    first = await _latest(store)
    await store.save(sample())
    latest = await _latest(store)
    other = replace(latest.checkpoint, created_at=_OLD)
    for row in (first, replace(latest, sequence=2), replace(latest, checkpoint=other)):
        assert await store.add_notes(row, [_F]) == NotLatest()
    unknown = replace(latest.checkpoint, thread_id="unknown")
    for sequence in (-1, 0, 1):
        assert await store.add_notes(Row(sequence, unknown), [_F]) == NotLatest()
    assert await store.get_notes([first, latest]) == {}
    assert await store.add_notes(latest, [_F]) == Saved(1)


@capability.case
async def notes_are_fenced(store: Store) -> None:
    """A lost lease is reported before a moved log; without a lease they go through, as saves do."""
    old = await acquired(store)
    await store.save(sample(), lease=old, notes=[_A])
    row = await _latest(store)
    assert await store.add_notes(row, [_F], lease=old) == Saved(0)
    await store.release_lease(old)
    new = await acquired(store, "worker-2")
    assert await store.add_notes(row, [_Q], lease=old) == LeaseLost()
    assert await store.add_notes(replace(row, sequence=7), [_Q], lease=old) == LeaseLost()
    assert await store.save(sample(), lease=old, notes=[_Q]) == LeaseLost()
    assert await _beside(store, row) == (_A, _F)
    assert await store.add_notes(row, [_Q], lease=new) == Saved(0)
    assert await store.add_notes(row, [_P]) == Saved(0)
    assert await _beside(store, row) == (_A, _F, _P, _Q)


@capability.case
async def another_threads_lease_is_a_callers_bug(store: Store) -> None:
    await store.save(sample())
    lease = await acquired(store, thread_id="other")
    message = "the lease is for thread 'other', not the checkpoint's thread 't'"
    row = await _latest(store)
    await refused(store.add_notes(row, [_F], lease=lease), InvalidRequest, message)
    assert await _beside(store, row) == ()


@capability.case
async def a_refused_save_leaves_no_notes(store: Store) -> None:
    """Not beside the row that is there, nor for the one that comes to that place later."""
    await store.save(sample(), notes=[_P])
    for stale in (-1, 1, 5):
        assert await store.save(sample(), expected=stale, notes=[_F]) == NotLatest()
    await store.save(sample())
    rows = (await store.get_log("t")).entries
    assert await store.get_notes(rows) == {0: (_P,)}


@capability.case
async def the_last_save_frees_the_thread_and_keeps_its_notes(store: Store) -> None:
    lease = await acquired(store)
    saved = await store.save(sample(), expected=-1, lease=lease, release=True, notes=[_Q])
    assert saved == Saved(0)
    assert await store.get_lease("t") is None
    assert await _beside(store, await _latest(store)) == (_Q,)


@capability.case
async def saves_at_once_keep_their_own_notes(store: Store) -> None:
    """Some with notes and some without, of one thread and of several."""

    async def save(thread_id: str, number: int) -> tuple[str, int, Sequence[Note]]:
        notes = [Note(NoteKind.FINISHED, f"{number}", f'"{thread_id}"')] if number % 3 else []
        row = sample(thread_id, Status.RUNNING, next_node="N", frozen_state=f'{{"n":{number}}}')
        answer = await store.save(row, notes=notes)
        assert isinstance(answer, Saved)
        return thread_id, answer.sequence, tuple(notes)

    said = await asyncio.gather(*(save(f"t{number % 4}", number) for number in range(60)))
    for name in ("t0", "t1", "t2", "t3"):
        found = await store.get_notes((await store.get_log(name)).entries)
        assert found == {at: notes for thread_id, at, notes in said if thread_id == name and notes}


@capability.case
async def one_of_many_at_once_wins_with_its_notes(store: Store) -> None:
    for sequence in range(4):
        saves = [
            store.save(sample(), expected=sequence - 1, notes=[replace(_A, value=str(writer))])
            for writer in range(6)
        ]
        answers = await asyncio.gather(*saves)
        assert answers.count(Saved(sequence)) == 1
        won = str(answers.index(Saved(sequence)))
        assert await _beside(store, await _latest(store)) == (replace(_A, value=won),)


@capability.case
async def notes_added_at_once_are_all_there(store: Store) -> None:
    await store.save(sample())
    row = await _latest(store)
    notes = [Note(NoteKind.FINISHED, f"g/{number}", str(number)) for number in range(40)]
    answers = await asyncio.gather(*(store.add_notes(row, [note]) for note in notes))
    assert set(answers) == {Saved(0)}
    assert set(await _beside(store, row)) == set(notes)


@capability.case
async def a_purged_threads_notes_are_gone(store: Store) -> None:
    """The thread's new log has none of them, though its rows have the same places and times."""
    for _ in range(3):
        await store.save(sample(created_at=_OLD), notes=[_A, _F])
    await store.save(sample("kept", Status.FAILED, created_at=_OLD), notes=[_P])
    old = (await store.get_log("t")).entries
    states = {ThreadState.COMPLETED}
    assert await store.purge(datetime(2026, 1, 10, tzinfo=UTC), states=states) == 1
    assert await store.get_notes(old) == {}
    for _ in range(3):
        await store.save(sample(created_at=_OLD))
    assert await store.get_notes((await store.get_log("t")).entries) == {}
    assert await _beside(store, await _latest(store, "kept")) == (_P,)
    await store.save(sample(created_at=_OLD), notes=[_Q])
    assert await _beside(store, await _latest(store)) == (_Q,)
