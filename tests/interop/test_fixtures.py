"""Threads that the Rust engine wrote go on here as they go on there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.interop import masked, rows
from support.storages import FIXTURES, KINDS, load_fixtures
from support.twin import answer
from support.twins import NAMES

if TYPE_CHECKING:
    from support.storages import Places

INDEX: list[dict[str, Any]] = json.loads((FIXTURES / "index.json").read_text())["threads"]


def test_every_graph_with_a_twin_is_tried() -> None:
    assert {thread["graph"] for thread in INDEX} == set(NAMES) - {"ten"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("thread", INDEX, ids=[thread["thread_id"] for thread in INDEX])
async def test_a_fixture_thread_goes_on(thread: dict[str, Any], kind: str, places: Places) -> None:
    async with places.fresh(kind) as storage:
        await load_fixtures(storage)
        for step in thread["refusals"] + thread["follow_ups"]:
            command = [storage.url if word == "$STORAGE" else word for word in step["command"]]
            assert masked(await answer(command)) == masked(step["answer"]), command
            assert len(await rows(storage, thread["thread_id"])) == step["rows_after"], command
