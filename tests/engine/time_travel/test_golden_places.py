"""Places that earlier builds wrote, notes and all, are read and gone on with for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.engine import Answer, Completed, Threads
from outcrop.stores import open_store
from outcrop.stores.record import Note, NoteKind
from support.golden import PLACES, THREAD, graph
from support.storages import KINDS, load_place

if TYPE_CHECKING:
    from support.storages import Places

OPEN = (
    Note(NoteKind.FINISHED, "checks/score", '{"score":7}'),
    Note(NoteKind.ANSWER, "checks/review", '[{"id":"first","value":{"yes":true}}]'),
    Note(NoteKind.QUESTION, "checks/review", '[{"id":"second","position":1,"payload":null}]'),
)


def test_there_is_a_place_of_every_kind() -> None:
    assert {path.stem.removeprefix("notes-") for path in PLACES.glob("notes-*")} == set(KINDS)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_notes_of_an_earlier_build_are_read(kind: str, read_only: bool, places: Places) -> None:
    async with places.fresh(kind) as place:
        (file,) = PLACES.glob(f"notes-{kind}.*")
        await load_place(place, file)
        store = await open_store(place.url, read_only=read_only)
        try:
            rows = (await store.get_log(THREAD, limit=10)).entries
            notes = await store.get_notes(rows)
            assert sorted(notes) == [row.sequence for row in rows] == [0, 1, 2, 3, 4]
            assert set(notes[3]) == set(OPEN)
            assert set(notes[4]) == {*OPEN, Note(NoteKind.PARENT, "", '{"sequence":3}')}
            (asked,) = notes[1][1:]
            assert asked.value == '[{"id":"first","position":0,"payload":{"is":"it \u00e9?"}}]'
        finally:
            await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_thread_of_an_earlier_build_goes_on_where_it_was(kind: str, places: Places) -> None:
    async with places.fresh(kind) as place:
        (file,) = PLACES.glob(f"notes-{kind}.*")
        await load_place(place, file)
        store, ran = await open_store(place.url), list[str]()
        try:
            threads = Threads(graph(ran), store)
            assert [entry.parent for entry in await threads.history(THREAD)] == [None, 0, 1, 2, 3]
            result = await threads.resume(THREAD, Answer(replies={"second": 2}))
            assert isinstance(result, Completed)
            assert result.state == {"score": 7, "review": [{"yes": True}, 2]}
            assert ran == ["checks/review"]
        finally:
            await store.close()
