"""Threads that the Rust engine wrote go on here as they go on there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.interop import masked, rows
from support.twin import answer
from support.twins import NAMES

FIXTURES = Path(__file__).parent / "fixtures"
INDEX: list[dict[str, Any]] = json.loads((FIXTURES / "index.json").read_text())["threads"]

# Hop limits come with the whole graph engine; a graph with one is not among our twins yet.
LATER = {"order-1024"}
OURS = [thread for thread in INDEX if thread["graph"] in NAMES and thread["thread_id"] not in LATER]


def test_every_graph_with_a_twin_is_tried() -> None:
    assert {thread["graph"] for thread in OURS} == set(NAMES) - {"ten"}


@pytest.mark.parametrize("thread", OURS, ids=[thread["thread_id"] for thread in OURS])
async def test_a_fixture_thread_goes_on(thread: dict[str, Any], tmp_path: Path) -> None:
    storage = tmp_path / "threads.db"
    shutil.copy(FIXTURES / "sqlite.db", storage)
    for step in thread["refusals"] + thread["follow_ups"]:
        command = [str(storage) if word == "$STORAGE" else word for word in step["command"]]
        assert masked(await answer(command)) == masked(step["answer"]), command
        assert len(await rows(storage, thread["thread_id"])) == step["rows_after"], command
