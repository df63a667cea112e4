"""Rows from before a folder for blobs was chosen stay readable, on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.stores import open_store
from outcrop.stores.contract import sample
from support.storages import KINDS, with_option

if TYPE_CHECKING:
    from pathlib import Path

    from support.storages import Places

STATE = '{"text":"large enough to be taken out"}'


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_folder_is_looked_at_after_the_database(
    kind: str, read_only: bool, places: Places, tmp_path: Path
) -> None:
    async with places.fresh(kind) as storage:
        inside = with_option(storage.url, "offload_threshold=8")
        outside = with_option(inside, f"offload_folder={tmp_path / 'blobs'}")
        for thread, url in (("old", inside), ("new", outside)):
            store = await open_store(url)
            await store.save(sample(thread, frozen_state=STATE))
            await store.close()
        store = await open_store(outside, read_only=read_only)
        for thread in ("old", "new"):
            row = await store.load(thread)
            assert row is not None
            assert row.checkpoint.frozen_state == STATE
            assert (await store.get_log(thread)).entries == (row,)
        await store.close()
