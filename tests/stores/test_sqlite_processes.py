"""Several processes on one SQLite file: no lost save, no double win, no torn row."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from outcrop.stores import Saved, SqliteStore
from outcrop.stores.contract import sample
from support import store_processes
from support.store_processes import THREAD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcrop.stores import Row

NAMES = ("one", "two", "three")
ROUNDS = 200


def raced(work: Callable[..., None], path: Path) -> list[Any]:
    """Run `work` in a process a name, and collect what they report."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(len(NAMES)), context.Queue()
    processes = [
        context.Process(target=work, args=(str(path), name, ROUNDS, start, results)) for name in NAMES
    ]
    for process in processes:
        process.start()
    reports = [results.get(timeout=120) for _ in NAMES]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return reports


async def whole_log(path: Path) -> list[Row]:
    store = await SqliteStore.open_read_only(path)
    rows: list[Row] = []
    after: int | None = None
    while True:
        page = await store.get_log(THREAD, after=after, limit=1000)
        rows.extend(page.entries)
        if (after := page.next_after) is None:
            break
    await store.close()
    assert [row.sequence for row in rows] == list(range(len(rows)))
    return rows


async def test_one_process_wins_each_conditional_save(tmp_path: Path) -> None:
    reports = dict(raced(store_processes.race_conditional, tmp_path / "store.db"))
    won = {sequence: name for name, sequences in reports.items() for sequence in sequences}
    assert sum(map(len, reports.values())) == len(won) == ROUNDS  # every round once
    rows = await whole_log(tmp_path / "store.db")
    assert [row.checkpoint.metadata for row in rows] == [{"by": won[at]} for at in range(ROUNDS)]


async def test_tokens_never_repeat_and_an_old_one_never_saves_after_a_new_one(tmp_path: Path) -> None:
    reports = raced(store_processes.race_fenced, tmp_path / "store.db")
    tokens = sorted(token for _, taken, _ in reports for token in taken)
    assert tokens == list(range(1, len(tokens) + 1))
    said = sorted(save for _, _, saved in reports for save in saved)
    rows = await whole_log(tmp_path / "store.db")
    stored = [(row.sequence, int((row.checkpoint.metadata or {})["token"])) for row in rows]
    assert stored == said
    assert [token for _, token in stored] == sorted(token for _, token in stored)
    assert len(tokens) > ROUNDS / 2  # they really took turns


def killed_while_saving(path: Path, after: int) -> int:
    """SIGKILL a process once it has saved `after` rows; return the last sequence it said."""
    command = [sys.executable, store_processes.__file__, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(after)]
        process.kill()
        return [*said, *(int(line) for line in process.stdout if line.endswith("\n"))][-1]


async def test_a_killed_process_leaves_a_whole_log(tmp_path: Path) -> None:
    """SIGKILL in the middle of a save: what was acknowledged is there, the rest is whole or absent."""
    path = tmp_path / "store.db"
    for kill in range(1, 6):
        last = killed_while_saving(path, after=3 * kill)
        await (await SqliteStore.open(path)).close()  # rolls back what the kill left
        rows = await whole_log(path)
        assert len(rows) - 1 in {last, last + 1}
        with closing(sqlite3.connect(path)) as connection:
            heads = connection.execute("SELECT sequence FROM checkpoint_threads").fetchall()
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert heads == [(len(rows) - 1,)]
        store = await SqliteStore.open(path)
        assert await store.save(sample(THREAD)) == Saved(len(rows))
        await store.close()
