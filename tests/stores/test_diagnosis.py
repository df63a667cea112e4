"""What a look at a store finds, on every engine, by its URL."""

from __future__ import annotations

import pytest

from outcrop.stores import Unavailable, open_store
from outcrop.stores.diagnosis import Diagnosis
from outcrop.stores.url import diagnose
from support.storages import KINDS, Places


def test_a_store_is_fit_when_nothing_is_missing() -> None:
    assert Diagnosis(engine="sqlite").fit
    assert not Diagnosis(engine="sqlite", missing=("the table is missing",)).fit


async def test_memory_is_always_fit() -> None:
    assert await diagnose("memory:") == Diagnosis(engine="memory")


@pytest.mark.parametrize("engine", KINDS)
async def test_opening_for_writing_mends_what_a_store_lacks(engine: str, places: Places) -> None:
    async with places.fresh(engine) as place:
        before = await diagnose(place.url)
        assert not before.fit
        await (await open_store(place.url)).close()
        after = await diagnose(place.url)
        assert after.schema == after.expected
        assert set(after.missing) < set(before.missing)


@pytest.mark.parametrize("url", ["postgres://u:p@127.0.0.1:1/d", "redis://:p@127.0.0.1:1/0"])
async def test_a_server_that_is_not_there_is_unavailable(url: str) -> None:
    with pytest.raises(Unavailable):
        await diagnose(url)
