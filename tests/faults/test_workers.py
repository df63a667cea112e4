"""Two worker processes on each server's store, one of them killed: every thread ends once.

The same graph and the same checks as in the chaos tests, few threads, on the embedded broker.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from outcrop.topics.embedded import EmbeddedBroker
from support import chaos, chaos_graph
from support.fleet import FINAL, drive, made_fleet, violations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.storages import Places

THREADS = 40
TIMES = {"lease_ttl": "2s", "session_timeout": "3s", "heartbeat_interval": "300ms"}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker() as embedded:
        yield embedded.bootstrap


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_a_killed_worker(
    kind: str, broker: str, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone" / "effects").mkdir(parents=True)
    monkeypatch.setattr(chaos_graph, "FOLDER", tmp_path / "alone")
    async with (
        places.fresh(kind) as place,
        made_fleet(broker, tmp_path, store=place.url, partitions=None, **TIMES) as fleet,
    ):

        async def kill() -> set[int]:
            await fleet.busy(0, 5)
            fleet.cluster.kill(0)
            return set()

        for number in range(2):
            fleet.cluster.start(number)
        await drive(fleet, THREADS, kill, pause=0.2, within=60)
        logs = await chaos.logs_of(fleet.store)
        outcomes = chaos.outcomes_of(broker, fleet.names.outcomes)
        assert await violations(fleet, logs, outcomes, zombies=set()) == []
        assert len(logs) == THREADS
        ends = defaultdict(set)
        for outcome in outcomes:
            if outcome.status in FINAL:
                ends[outcome.thread_id].add((outcome.command_id, outcome.sequence))
        assert sorted(ends) == sorted(logs)
        assert all(len(told) == 1 for told in ends.values())
        recovered = [
            row
            for log in logs.values()
            for row in log
            if "strata.recoveries" in (row.checkpoint.metadata or {})
        ]
        assert recovered
