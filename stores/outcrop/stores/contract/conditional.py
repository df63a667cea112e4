"""Saving at an expected sequence: written at exactly the place it was decided for, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from outcrop.stores.port import EMPTY_LOG, NotLatest, Saved

from .case import Capability
from .samples import sample

if TYPE_CHECKING:
    from outcrop.stores.port import Store

capability = Capability("conditional")


@capability.case
async def an_empty_log_counts_as_minus_one(store: Store) -> None:
    assert await store.save(sample(), expected=0) == NotLatest()
    assert await store.load("t") is None
    assert await store.save(sample(), expected=EMPTY_LOG) == Saved(0)
    assert await store.save(sample(), expected=EMPTY_LOG) == NotLatest()


@capability.case
async def a_moved_log_refuses_and_writes_nothing(store: Store) -> None:
    """A12, A13."""
    await store.save(sample(metadata={"row": "0"}))
    assert await store.save(sample(metadata={"row": "1"}), expected=0) == Saved(1)
    for stale in (0, 2, EMPTY_LOG, -2):
        assert await store.save(sample(metadata={"row": "no"}), expected=stale) == NotLatest()
    assert await store.save(sample(metadata={"row": "2"})) == Saved(2)
    page = await store.get_log("t")
    assert [row.checkpoint.metadata for row in page.entries] == [{"row": str(at)} for at in range(3)]


@capability.case
async def one_of_many_at_once_wins(store: Store) -> None:
    for sequence in range(5):
        rows = [sample(metadata={"writer": str(writer)}) for writer in range(8)]
        answers = await asyncio.gather(*(store.save(row, expected=sequence - 1) for row in rows))
        assert answers.count(Saved(sequence)) == 1
        assert answers.count(NotLatest()) == 7
        latest = await store.load("t")
        assert latest is not None
        assert latest.checkpoint == rows[answers.index(Saved(sequence))]
