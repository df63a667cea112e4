"""Every fault of every engine, while many tasks save: what was reported saved is there, and once."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import Saved
from outcrop.stores.contract import sample
from support.arenas import ENGINES
from support.store_processes import whole_log
from support.storms import Storm

if TYPE_CHECKING:
    from support.arenas import Arenas

OPTIONS = {
    "plain": "",
    "leased": "",
    "grouped": "&group_commit=true",
    "encoded": "&deltas_full_every=4&offload_threshold=600",
    "all": "&group_commit=true&deltas_full_every=4&offload_threshold=600",
}
"""How the stores are opened; but for the plain ones, the writers save under leases."""

CASES = [
    (engine, how)
    for engine in ENGINES
    for how in OPTIONS
    if engine != "redis" or "group_commit" not in OPTIONS[how]
]


@pytest.mark.parametrize(("engine", "how"), CASES)
async def test_a_storm(engine: str, how: str, arenas: Arenas) -> None:
    """H5-H8, all at once: no success that is gone, no row twice, no error but a passing one."""
    seed = int(os.environ.get("OUTCROP_TEST_SEED", random.randrange(10**6)))
    async with asyncio.timeout(120), arenas.fresh(engine) as arena, arena.store(OPTIONS[how]) as store:
        storm = Storm(store)

        async def strike() -> None:
            await storm.more(100)
            for name, fault in random.Random(seed).sample(list(arena.faults.items()), len(arena.faults)):
                before = storm.failures.total()
                await fault(storm.told)
                await storm.more(100)
                print(f"seed {seed}, {name}: {storm.failures.total() - before} failures told")
            storm.enough = True

        await asyncio.gather(strike(), storm.rage(leased=how != "plain"))
        print(f"seed {seed}: {storm.saved} saved; {dict(storm.failures)}")
        async with arena.reader() as reader:
            await storm.check(reader)


@pytest.mark.parametrize("engine", ["postgres", "redis"])
async def test_a_request_that_arrives_late_writes_nothing_twice(engine: str, arenas: Arenas) -> None:
    """H8: the wire held it back until its repetition, on another connection, had been done."""
    async with asyncio.timeout(60), arenas.fresh(engine) as arena, arena.store() as store:
        await store.save(sample("t", metadata={"n": "0"}))
        stalled = asyncio.Event()
        fault = asyncio.create_task(arena.faults["old connections stalled"](stalled))
        await asyncio.sleep(0)
        assert await store.save(sample("t", metadata={"n": "1"})) == Saved(1)
        await fault
        async with arena.reader() as reader:
            assert await store.save(sample("t", metadata={"n": "2"})) == Saved(2)
            rows = await whole_log(reader, "t")
        assert [row.checkpoint.metadata for row in rows] == [{"n": str(n)} for n in range(3)]
