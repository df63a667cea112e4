"""The steps of a save through an encoder: what is remembered, what is put first, what a doubt costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import Checkpoint, NotLatest, Saved, Status, StoreError, Unavailable
from outcrop.stores.blobs import FileBlobStore
from outcrop.stores.contract import sample
from outcrop.stores.encoded_saves import BaseMoved, EncodedSaves
from outcrop.stores.encoding import Encoder, Stored
from outcrop.stores.options import DeltaOptions, OffloadOptions
from outcrop.stores.save import Save

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from outcrop.stores.encoded_saves import Answer


def running(n: int, thread_id: str = "t") -> Save:
    state = json.dumps({"n": n, "evidence": "e" * 80})
    return Save(sample(thread_id, Status.RUNNING, schema_version="1.7.0", frozen_state=state))


class Rows:
    """A store of forms; each append is answered as it was told, else saved at the thread's end."""

    def __init__(self) -> None:
        self.forms: list[Stored] = []
        self.told: list[Exception | Sequence[Answer]] = []

    async def append(self, saves: Sequence[Save], forms: Sequence[Stored]) -> Sequence[Answer]:
        del saves
        answers: Exception | Sequence[Answer] = self.told.pop(0) if self.told else []
        self.forms += forms
        if isinstance(answers, Exception):
            raise answers
        return answers or [Saved(len(self.forms) - 1)] * len(forms)

    @property
    def versions(self) -> list[str]:
        return [form.checkpoint.schema_version for form in self.forms]


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def saves(rows: Rows) -> EncodedSaves:
    return EncodedSaves(Encoder(DeltaOptions()), rows.append)


@pytest.mark.parametrize("answer", [Unavailable("the answer was lost"), StoreError("no"), [NotLatest()]])
async def test_after_a_doubt_or_a_refusal_the_next_row_is_whole(
    answer: Exception | Sequence[Answer], rows: Rows, saves: EncodedSaves
) -> None:
    """J3, J6."""
    await saves.save(running(0))
    rows.told = [answer]
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            await saves.save(running(1))
    else:
        assert await saves.save(running(1)) == NotLatest()
    await saves.save(running(2))
    await saves.save(running(3))
    assert rows.versions == ["1.7.0", "1.8.0", "1.7.0", "1.8.0"]


async def test_a_moved_base_is_followed_by_the_whole_row(rows: Rows, saves: EncodedSaves) -> None:
    """J3: with the conditions of the save checked again."""
    await saves.save(running(0))
    rows.told = [[BaseMoved()], [Saved(5)]]
    assert await saves.save(running(1)) == Saved(5)
    rows.told = [[BaseMoved()], [NotLatest()]]
    assert await saves.save(running(2)) == NotLatest()
    assert rows.versions == ["1.7.0", "1.8.0", "1.7.0", "1.8.0", "1.7.0"]


async def test_in_a_flush_the_second_try_is_each_saves_own(rows: Rows, saves: EncodedSaves) -> None:
    """What the flush had committed keeps its answer."""
    threads = ("a", "b", "c")
    await saves.flush([running(0, thread_id) for thread_id in threads])
    error = Unavailable("gone in between")
    rows.told = [[Saved(1), BaseMoved(), BaseMoved()], error, [Saved(9)]]
    answers = await saves.flush([running(1, thread_id) for thread_id in threads])
    assert answers == [Saved(1), error, Saved(9)]


async def test_a_store_that_refuses_a_whole_row_is_told_off(rows: Rows, saves: EncodedSaves) -> None:
    rows.told = [[BaseMoved()], [BaseMoved()]]
    with pytest.raises(StoreError, match=r"^the store refused a whole row of thread 't'$"):
        await saves.save(running(0))


async def test_blobs_outside_are_there_before_the_row(tmp_path: Path) -> None:
    """§8; the store itself gets none to write."""
    blobs = FileBlobStore(tmp_path)
    seen: list[int] = []

    async def append(_: Sequence[Save], forms: Sequence[Stored]) -> Sequence[Answer]:
        (form,) = forms
        references = json.loads(form.checkpoint.frozen_state)["blobs"].values()
        names = [reference["hash"] for reference in references]
        assert (await blobs.get("t", names)).keys() == set(names)
        assert form.blobs == {}
        seen.append(len(names))
        return [Saved(len(seen) - 1)]

    saves = EncodedSaves(Encoder(None, OffloadOptions(threshold=64)), append, blobs=blobs)
    await saves.save(running(0))
    await saves.save(running(1))
    assert seen == [1, 1]


async def test_a_stores_own_base_token(rows: Rows) -> None:
    """The token is of the row as it is stored."""

    def token_of(stored: Checkpoint) -> str:
        return f"the text of {stored.frozen_state}"

    saves = EncodedSaves(Encoder(DeltaOptions()), rows.append, token_of=token_of)
    for n in range(3):
        await saves.save(running(n))
    bases = [form.base for form in rows.forms]
    assert bases[0] is None
    assert [base.token for base in bases[1:] if base is not None] == [
        token_of(form.checkpoint) for form in rows.forms[:2]
    ]
