"""The failing store fails where it is told to, and nowhere else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outcrop.stores import MemoryStore, Saved, Unavailable
from outcrop.stores.contract import sample
from outcrop.stores.port import Acquired
from outcrop.stores.testing import FailingStore


async def test_a_call_fails_before_it_happened() -> None:
    store = FailingStore(MemoryStore())
    store.fail("save", Unavailable("down"), call=2)
    assert await store.save(sample()) == Saved(0)
    with pytest.raises(Unavailable, match="down"):
        await store.save(sample())
    assert await store.save(sample()) == Saved(1)


async def test_a_call_fails_after_it_happened() -> None:
    store = FailingStore(MemoryStore())
    store.fail("save", Unavailable("answer lost"), after=True)
    with pytest.raises(Unavailable, match="answer lost"):
        await store.save(sample())
    row = await store.load("t")
    assert row is not None
    assert row.sequence == 0


async def test_renewals_share_the_plan() -> None:
    store = FailingStore(MemoryStore())
    answer = await store.acquire_lease("t", "w", timedelta(seconds=1))
    assert isinstance(answer, Acquired)
    store.fail("renew_lease", Unavailable("down"))
    async with store.renewals() as leases:
        with pytest.raises(Unavailable):
            await leases.renew_lease(answer.lease, timedelta(seconds=1))
        assert await leases.renew_lease(answer.lease, timedelta(seconds=1)) is not None
    assert store.faults.calls["renew_lease"] == 2
