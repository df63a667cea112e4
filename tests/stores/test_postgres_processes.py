"""Processes on one Postgres database: races for a thread, and kills in the middle of a save."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import asyncpg
import pytest

from outcrop.stores import open_store
from support.postgres import spare_database
from support.store_processes import check_conditional_race, check_fenced_race, check_kills

if TYPE_CHECKING:
    from support.store_processes import Opener

ROUNDS = 2_000
OPTIONS = {
    "plain": "",
    "group commit": "&group_commit=true",
    "deltas and blobs": "&deltas_full_every=4&offload_threshold=5000",
}


def at(url: str, options: str = "plain") -> Opener:
    return partial(open_store, f"{url}?pool_size=8{OPTIONS[options]}")


async def test_one_process_wins_each_conditional_save(postgres_server: str) -> None:
    async with spare_database(postgres_server) as url:
        await check_conditional_race(at(url), ROUNDS)


async def test_tokens_never_repeat_and_an_old_one_never_saves_after_a_new_one(postgres_server: str) -> None:
    async with spare_database(postgres_server) as url:
        await check_fenced_race(at(url), ROUNDS)


@pytest.mark.parametrize("options", ["group commit", "deltas and blobs"])
async def test_races_with_options(options: str, postgres_server: str) -> None:
    async with spare_database(postgres_server) as url:
        await check_conditional_race(at(url, options), ROUNDS // 10)
    async with spare_database(postgres_server) as url:
        await check_fenced_race(at(url, options), ROUNDS // 10)


@pytest.mark.parametrize(
    ("options", "kills", "writers", "leased"),
    [
        ("plain", 100, 1, False),
        ("plain", 100, 1, True),
        ("group commit", 100, 8, False),
        ("deltas and blobs", 25, 1, False),
    ],
)
async def test_a_killed_process_leaves_whole_logs(
    options: str, kills: int, writers: int, leased: bool, postgres_server: str
) -> None:
    """SIGKILL in the middle of a save: heads at the last rows, no row torn, no blob of nobody."""
    async with spare_database(postgres_server) as url:
        await check_kills(at(url, options), kills, writers=writers, leased=leased)
        connection = await asyncpg.connect(url)
        try:
            heads = await connection.fetch("SELECT thread_id, sequence FROM checkpoint_threads ORDER BY 1")
            ends = "SELECT thread_id, MAX(sequence) FROM checkpoints GROUP BY 1 ORDER BY 1"
            assert heads == await connection.fetch(ends)
            # A row and its blobs are one commit.
            loose = (
                "SELECT COUNT(*) FROM checkpoint_blobs AS b WHERE NOT EXISTS (SELECT 1 FROM checkpoints AS c "
                "WHERE c.thread_id = b.thread_id AND strpos(c.frozen_state::text, b.hash) > 0)"
            )
            assert await connection.fetchval(loose) == 0
        finally:
            await connection.close()
