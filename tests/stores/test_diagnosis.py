"""What a look at a store finds, on every engine, by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.stores import Unavailable, open_store
from outcrop.stores.diagnosis import Diagnosis
from outcrop.stores.url import diagnose
from support.urls import ENGINES, fresh_url

if TYPE_CHECKING:
    from pathlib import Path


def test_a_store_is_fit_when_nothing_is_missing() -> None:
    assert Diagnosis(engine="sqlite").fit
    assert not Diagnosis(engine="sqlite", missing=("the table is missing",)).fit


async def test_memory_is_always_fit() -> None:
    assert await diagnose("memory:") == Diagnosis(engine="memory")


@pytest.mark.parametrize("engine", ENGINES)
async def test_opening_for_writing_mends_what_a_store_lacks(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with fresh_url(engine, tmp_path, request) as url:
        before = await diagnose(url)
        assert not before.fit
        await (await open_store(url)).close()
        after = await diagnose(url)
        assert after.schema == after.expected
        assert set(after.missing) < set(before.missing)


@pytest.mark.parametrize("url", ["postgres://u:p@127.0.0.1:1/d", "redis://:p@127.0.0.1:1/0"])
async def test_a_server_that_is_not_there_is_unavailable(url: str) -> None:
    with pytest.raises(Unavailable):
        await diagnose(url)
