"""Processes that share a Redis prefix: races for a thread, and kills in the middle of a save."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from outcrop.stores.options import DeltaOptions, OffloadOptions
from outcrop.stores.redis import RedisStore
from support.redis import fresh_prefix
from support.store_processes import check_conditional_race, check_fenced_race, check_kills

ENCODED: dict[str, Any] = {"deltas": DeltaOptions(full_every=4), "offload": OffloadOptions(threshold=8)}


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["plain", "encoded"])
async def test_one_process_wins_each_conditional_save(options: dict[str, Any], redis_server: str) -> None:
    opener = partial(RedisStore.open, redis_server, prefix=fresh_prefix(), **options)
    await check_conditional_race(opener, 2000)


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["plain", "encoded"])
async def test_tokens_never_repeat_and_an_old_one_never_saves_after_a_new_one(
    options: dict[str, Any], redis_server: str
) -> None:
    opener = partial(RedisStore.open, redis_server, prefix=fresh_prefix(), **options)
    await check_fenced_race(opener, 2000)


@pytest.mark.parametrize(
    ("kills", "writers", "leased", "options"),
    [(50, 1, True, {}), (30, 8, False, {}), (20, 4, True, ENCODED)],
    ids=["alone", "pipelined", "encoded"],
)
async def test_a_killed_process_leaves_whole_logs(
    kills: int, writers: int, leased: bool, options: dict[str, Any], redis_server: str
) -> None:
    opener = partial(RedisStore.open, redis_server, prefix=fresh_prefix(), **options)
    await check_kills(opener, kills, writers=writers, leased=leased)
