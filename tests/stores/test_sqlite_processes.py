"""Several processes on one SQLite file: no lost save, no double win, no torn row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import open_store
from support.store_processes import check_conditional_race, check_fenced_race, check_kills

if TYPE_CHECKING:
    from pathlib import Path

    from support.store_processes import Opener

ROUNDS = 2_000
KILLS = 100
OPTIONS = {
    "plain": "",
    "group commit": "?group_commit=true",
    "deltas and blobs": "?deltas=true&offload=true&offload_threshold=5000",
}


def at(path: Path, options: str = "plain") -> Opener:
    return partial(open_store, f"sqlite:///{path}{OPTIONS[options]}")


async def test_one_process_wins_each_conditional_save(tmp_path: Path) -> None:
    await check_conditional_race(at(tmp_path / "store.db"), ROUNDS)


async def test_tokens_never_repeat_and_an_old_one_never_saves_after_a_new_one(tmp_path: Path) -> None:
    await check_fenced_race(at(tmp_path / "store.db"), ROUNDS)


@pytest.mark.parametrize("options", ["group commit", "deltas and blobs"])
async def test_races_with_options(options: str, tmp_path: Path) -> None:
    await check_conditional_race(at(tmp_path / "conditional.db", options), ROUNDS // 10)
    await check_fenced_race(at(tmp_path / "fenced.db", options), ROUNDS // 10)


@pytest.mark.parametrize(
    ("options", "writers", "leased"),
    [
        ("plain", 1, False),
        ("plain", 1, True),
        ("group commit", 8, False),
        ("deltas and blobs", 1, False),
    ],
)
async def test_a_killed_process_leaves_whole_logs(
    options: str, writers: int, leased: bool, tmp_path: Path
) -> None:
    """SIGKILL in the middle of a save, and the file is sound: heads at the last rows, no row torn."""
    path = tmp_path / "store.db"
    kills = KILLS if options != "deltas and blobs" else KILLS // 4
    await check_kills(at(path, options), kills, writers=writers, leased=leased)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        heads = connection.execute("SELECT thread_id, sequence FROM checkpoint_threads ORDER BY 1").fetchall()
        ends = connection.execute(
            "SELECT thread_id, MAX(sequence) FROM checkpoints GROUP BY 1 ORDER BY 1"
        ).fetchall()
        assert heads == ends
        # A row and its blobs are one commit.
        assert connection.execute(
            "SELECT COUNT(*) FROM checkpoint_blobs AS b WHERE NOT EXISTS (SELECT 1 FROM checkpoints AS c "
            "WHERE c.thread_id = b.thread_id AND instr(c.frozen_state, b.hash))"
        ).fetchone() == (0,)
