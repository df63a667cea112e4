"""2,000 threads on four workers that are killed, stopped and continued: what must hold, holds.

The store is a SQLite file; OUTCROP_TEST_CHAOS_STORE names another, an empty one.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from support import chaos, chaos_graph
from support.fleet import drive, made_fleet, violations

if TYPE_CHECKING:
    from pathlib import Path

    from support.fleet import Fleet

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(600)]

STORE = os.environ.get("OUTCROP_TEST_CHAOS_STORE")
LEASE_TTL = 4
SESSION_TIMEOUT = 6


def is_locked(storage: Path) -> bool:
    """Whether somebody holds the file's write lock, and goes on holding it."""
    with closing(sqlite3.connect(storage, timeout=0.3, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
        return False


async def stop_in_a_save(fleet: Fleet, number: int) -> None:
    """SIGSTOP a worker while it holds the file's lock: nobody else can save until it goes on."""
    async with asyncio.timeout(60):
        while True:
            fleet.cluster.send(number, signal.SIGSTOP)
            if await asyncio.to_thread(is_locked, fleet.folder / "threads.db"):
                return
            fleet.cluster.send(number, signal.SIGCONT)
            await asyncio.sleep(random.uniform(0, 0.02))  # the fault is to hit it in the middle


async def faults(fleet: Fleet) -> set[int]:
    """Kill two workers, and stop a third past its lease; returns the processes that may be zombies."""
    cluster = fleet.cluster
    for victim in (0, 1):
        runs = await fleet.busy(victim, 20)
        cluster.kill(victim)
        print(f"killed w{victim} with {runs} runs in flight, {len(fleet.final)} threads done")
        cluster.start(victim)
    await fleet.busy(2, 20)
    if STORE is None:
        await stop_in_a_save(fleet, 2)
    else:
        cluster.send(2, signal.SIGSTOP)
    print(f"stopped w2, with {len(fleet.final)} threads done")
    await asyncio.sleep(LEASE_TTL + SESSION_TIMEOUT + 2)  # the fault is the time that passes
    cluster.send(2, signal.SIGCONT)
    return {cluster.pid(2)}


async def test_kills_and_stops_lose_nothing_and_repeat_nothing(
    kafka_bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone" / "effects").mkdir(parents=True)
    monkeypatch.setattr(chaos_graph, "FOLDER", tmp_path / "alone")
    threads = 2_000
    store = STORE or f"sqlite:///{tmp_path}/threads.db"
    times = {"lease_ttl": f"{LEASE_TTL}s", "session_timeout": f"{SESSION_TIMEOUT}s"}
    async with made_fleet(
        kafka_bootstrap, tmp_path, store=store, partitions=12, concurrency="64", **times
    ) as fleet:
        for number in range(4):
            fleet.cluster.start(number)
        began = time.monotonic()
        zombies = await drive(fleet, threads, lambda: faults(fleet), pause=0.2, within=360)
        took = time.monotonic() - began
        logs = await chaos.logs_of(fleet.store)
        outcomes = chaos.outcomes_of(kafka_bootstrap, fleet.names.outcomes)
        wrong = await violations(fleet, logs, outcomes, zombies)
    rows = [row.checkpoint for log in logs.values() for row in log]
    facts = {
        "seconds": round(took, 1),
        "threads": len(logs),
        "commands": len(fleet.commands),
        "outcomes": len(outcomes),
        "recoveries": sum("strata.recoveries" in (row.metadata or {}) for row in rows),
        "leases lost": fleet.cluster.logged("lease_lost"),
        "rebalances": fleet.cluster.logged("partitions.revoked") + fleet.cluster.logged("partitions.lost"),
    }
    print(facts, Counter(outcome.status.value for outcome in outcomes))
    assert not wrong, wrong[:20]
    assert len(logs) == threads
    assert all(facts.values()), facts
