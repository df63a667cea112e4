"""What listing costs beside large states, and among many threads, as ratios.

Run it: `compose/services run -- python tests/bench/bench_listing.py [THREADS] [KINDS]` (2,000 threads on
every engine; 20,000 takes 2 GB and minutes). It prints, for each engine and listing,

- states: the time with states of 100 KB over the time with tiny ones. Aim: near 1.
- threads: the time among all the threads over the time among a tenth of them. Aim: near 1.

A page has 100 threads. The filtered one is of failed threads of one tenant; the due one finds
the 100 threads that are due. Both are measured in turns, medians of many.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop.stores import Status, ThreadQuery, ThreadState, Wait, WaitKind, open_store
from outcrop.stores.contract import sample
from outcrop.stores.instants import instant_text

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.storages import KINDS, Places, given_server

if TYPE_CHECKING:
    from outcrop.stores import Checkpoint, Store

START = datetime(2026, 1, 1, tzinfo=UTC)
LARGE, TINY = 100_000, 10
MATCHING = 100
ROUNDS = 15
DUE = START + timedelta(days=365)

FILTERED = ThreadQuery(states={ThreadState.FAILED}, metadata={"tenant": "acme"})
DUE_NOW = ThreadQuery(due_by=DUE)


def checkpoint(number: int, threads: int, size: int) -> Checkpoint:
    """One thread of many: every so-many-th has failed, or waits for a time that has come."""
    step = threads // MATCHING
    text = random.Random(number).randbytes(size // 2).hex()  # what no database can compress away
    state = f'{{"text":"{text}"}}'
    created = instant_text(START + timedelta(minutes=10 * number))
    shared = {"frozen_state": state, "created_at": created, "metadata": {"tenant": "acme", "n": str(number)}}
    if number % step == 0:
        return sample(f"t{number}", Status.FAILED, **shared)
    wake_at = DUE if number % step == 1 else DUE + timedelta(days=1)
    wait = Wait(WaitKind.TIMER, None, instant_text(wake_at))
    return sample(f"t{number}", Status.INTERRUPTED, next_node="next", wait=wait, **shared)


async def filled(url: str, threads: int, size: int) -> Store:
    """A store with that many threads."""
    store = await open_store(url)
    for start in range(0, threads, 50):
        rows = [checkpoint(number, threads, size) for number in range(start, min(start + 50, threads))]
        await asyncio.gather(*(store.save(row) for row in rows))
    return store


async def seconds(store: Store, query: ThreadQuery) -> float:
    """How long the whole listing takes, page after page."""
    begun, found, cursor = time.perf_counter(), 0, query.cursor
    while True:
        page = await store.list_threads(
            ThreadQuery(
                states=query.states, metadata=query.metadata, due_by=query.due_by, limit=100, cursor=cursor
            )
        )
        found += len(page.threads)
        if (cursor := page.next_cursor) is None:
            break
    took = time.perf_counter() - begun
    if found != MATCHING:
        raise AssertionError(f"{found} threads were listed, not {MATCHING}")
    return took


async def measure(kind: str, places: Places, threads: int) -> None:
    """Print the ratios of one engine."""
    async with (
        places.fresh(kind) as large,
        places.fresh(kind) as tiny,
        places.fresh(kind) as few,
    ):
        stores = [
            await filled(large.url, threads, LARGE),
            await filled(tiny.url, threads, TINY),
            await filled(few.url, threads // 10, TINY),
        ]
        for name, query in (("filtered", FILTERED), ("due", DUE_NOW)):
            rounds = [[await seconds(store, query) for store in stores] for _ in range(ROUNDS)]
            most, many, least = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(
                f"{kind:9} {name:9} large {most * 1e3:8.2f} ms  tiny {many * 1e3:8.2f} ms  "
                f"states {most / many:5.2f}  threads {many / least:5.2f}",
                flush=True,
            )
        for store in stores:
            await store.close()


async def main(threads: int, kinds: list[str]) -> None:
    """Measure the engines one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        places = Places(Path(folder), given_server)
        for kind in kinds:
            await measure(kind, places, threads)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000, sys.argv[2:] or list(KINDS)))
