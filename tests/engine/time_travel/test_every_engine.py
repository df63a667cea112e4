"""Trees of forks, reruns and updates on every engine: written by one process, read back by another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import Answer, Completed, Graph, Interrupted, NodeContext, Refused, Threads
from outcrop.engine.history import tree_of
from outcrop.stores import open_store
from outcrop.stores.record import NoteKind
from support.engine import EVERY_NODE, LEASED, Doc, World
from support.storages import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.stores import Store
    from support.storages import Places

FORMS = pytest.mark.parametrize("encoded", [False, True], ids=["plain", "encoded"])
ENGINES = pytest.mark.parametrize("kind", KINDS)


def review(store: Store) -> Threads[Doc]:
    """`draft`, then `approve` (a boundary), then `publish`, by the machine's own time."""
    graph = World().graph("draft", "approve", "publish")
    graph.interrupt("approve")
    return Threads(graph.compile(checkpoints=EVERY_NODE), store)


@FORMS
@ENGINES
async def test_a_tree_is_written_and_read_back(kind: str, encoded: bool, places: Places) -> None:
    async with places.fresh(kind) as place:
        url = place.encoded.url if encoded else place.url
        store = await open_store(url)
        threads = review(store)
        await threads.run("t", Doc(), LEASED)  # 0 1 2: waits at 2
        await threads.resume("t", options=LEASED)  # 3 claim, 4 draft.. publish: completed
        await threads.fork("t", 2, LEASED)  # 5 hangs on 2
        await threads.update_state("t", {"n": 7}, LEASED, at_sequence=1)  # 6 hangs on 1
        await threads.rerun("t", 1, LEASED)  # 7 hangs on 1, 8 waits
        written = await threads.history("t")
        await store.close()
        other = await open_store(url)
        entries = await review(other).history("t")
        tree = tree_of(entries)
        resumed = await review(other).resume("t", Answer(), LEASED)
        await other.close()
    assert [(entry.sequence, entry.parent) for entry in entries] == [
        (entry.sequence, entry.parent) for entry in written
    ]
    assert tree.roots == (0,)
    assert tree.children == {0: (1,), 1: (2, 6, 7), 2: (3, 5), 3: (4,), 7: (8,)}
    assert tree.current == {0, 1, 7, 8}
    assert isinstance(resumed, Completed)
    assert resumed.state.trail == ["draft", "approve", "publish"]


@FORMS
@ENGINES
async def test_of_two_forks_at_once_one_is_told_that_it_lost(
    kind: str, encoded: bool, places: Places
) -> None:
    async with places.fresh(kind) as place:
        url = place.encoded.url if encoded else place.url
        one, two = await open_store(url), await open_store(url)
        await review(one).run("t", Doc())
        results = await asyncio.gather(*(review(store).fork("t", 1) for store in (one, two)))
        entries = await review(one).history("t")
        await one.close()
        await two.close()
    forked = [result for result in results if isinstance(result, Interrupted)]
    lost = [result for result in results if isinstance(result, Refused)]
    assert len(forked) + len(lost) == 2
    assert forked
    assert [entry.parent for entry in entries[3:]] == [1] * len(forked)


@FORMS
@ENGINES
async def test_a_fork_carries_answers_and_results_and_a_purge_takes_them(
    kind: str, encoded: bool, places: Places
) -> None:
    graph: Graph[Doc] = Graph(Doc)
    checks = graph.group("checks", reduce=_gather, keep_finished=True)

    @checks.branch
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        doc.note = str(await ctx.interrupt("how many?"))

    ran: list[str] = []

    @checks.branch
    async def count(doc: Doc) -> None:
        ran.append("count")
        doc.n += 1

    compiled = graph.compile(checkpoints=EVERY_NODE)
    async with places.fresh(kind) as place:
        store = await open_store(place.encoded.url if encoded else place.url)
        threads = Threads(compiled, store)
        asked = await threads.run("t", Doc(), LEASED)
        assert isinstance(asked, Interrupted)
        forked = await threads.fork("t", asked.sequence, LEASED)
        assert isinstance(forked, Interrupted)
        (question,) = forked.questions
        done = await threads.resume("t", Answer(replies={question.id: 3}), LEASED)
        notes = await store.get_notes((await store.get_log("t")).entries)
        await store.close()
    assert isinstance(done, Completed)
    assert (done.state.note, done.state.n) == ("3", 1)
    assert ran == ["count"]
    kinds = {sequence: [note.kind for note in beside] for sequence, beside in notes.items()}
    assert kinds[forked.sequence] == [NoteKind.FINISHED, NoteKind.PARENT, NoteKind.QUESTION]


def _gather(doc: Doc, states: Sequence[Doc]) -> None:
    for state in states:
        doc.n += state.n
        doc.note = state.note or doc.note
