"""2,000 threads on four workers that are killed, stopped and continued: what must hold, holds."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from outcrop.topics import DecisionBody, Outcome, OutcomeStatus, TopicNames
from outcrop.topics.admin import TopicAdmin
from outcrop.topics.client import ThreadsClient
from outcrop.topics.provisioning import TopicSettings
from support import chaos, chaos_graph
from support.chaos_graph import APPROVAL_OVER, Order, app

if TYPE_CHECKING:
    from pathlib import Path

    from outcrop.stores import Row

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(600)]

LEASE_TTL = 4
SESSION_TIMEOUT = 6
FINAL = {OutcomeStatus.COMPLETED, OutcomeStatus.FAILED, OutcomeStatus.CANCELLED, OutcomeStatus.ENDED}


def amount(number: int) -> int:
    return 100 + number * 37 % 900


def approved(number: int) -> bool:
    return number % 5 != 0


@dataclass
class Fleet:
    """A cluster, its topics, and a client that answers what waits until every thread is final."""

    folder: Path
    bootstrap: str
    names: TopicNames
    cluster: chaos.Cluster
    commands: list[str] = field(default_factory=list)
    answered: set[tuple[str, int]] = field(default_factory=set)
    final: dict[str, OutcomeStatus] = field(default_factory=dict)
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def storage(self) -> Path:
        return self.folder / "threads.db"

    async def send_all(self, client: ThreadsClient, count: int, *, pause: float) -> None:
        for start in range(0, count, 100):
            numbers = range(start, min(start + 100, count))
            orders = [Order(number=number, amount=amount(number), pause=pause) for number in numbers]
            sent = await asyncio.gather(
                *(client.run(f"order-{order.number}", graph="chaos-orders", state=order) for order in orders)
            )
            self.commands.extend(str(handle.command_id) for handle in sent)

    async def answer(self, client: ThreadsClient) -> None:
        """Answer each wait once, as its outcome comes by."""
        async for outcome in client.outcomes():
            if outcome.status in FINAL:
                self.final[outcome.thread_id] = outcome.status
                self.progress.set()
            elif outcome.status is OutcomeStatus.REFUSED:
                raise AssertionError(f"a command that nothing speaks against was refused: {outcome}")
            elif outcome.status is OutcomeStatus.INTERRUPTED and outcome.sequence is not None:
                await self._answer_wait(client, outcome, outcome.sequence)

    async def _answer_wait(self, client: ThreadsClient, outcome: Outcome, sequence: int) -> None:
        place = (outcome.thread_id, sequence)
        kind = "human" if outcome.wait is None else outcome.wait.kind
        if place in self.answered or kind == "timer":
            return
        self.answered.add(place)
        if kind == "human":
            number = int(outcome.thread_id.partition("-")[2])
            decision = DecisionBody(approved=approved(number), by="chaos")
            handle = await client.resume(outcome.thread_id, decision=decision, expected_sequence=sequence)
        else:
            handle = await client.signal(outcome.thread_id, "payment.settled", {"settled": True})
        self.commands.append(str(handle.command_id))

    async def finished(self, count: int, within: float) -> None:
        """Wait until every thread's last outcome came by; says which didn't, and where they stand."""
        try:
            async with asyncio.timeout(within):
                while len(self.final) < count:
                    self.progress.clear()
                    await self.progress.wait()
        except TimeoutError:
            logs = await chaos.logs_of(self.storage)
            missing = {
                thread: rows[-1].checkpoint.state.value
                for thread, rows in logs.items()
                if thread not in self.final
            }
            raise AssertionError(
                f"{len(missing)} of {len(logs)} threads told no end: {dict(list(missing.items())[:20])}"
            ) from None

    async def busy(self, number: int, at_least: int) -> int:
        """Wait until worker `number` has that many runs in flight: threads whose lease it holds."""
        async with asyncio.timeout(120):
            while True:
                runs = await asyncio.to_thread(chaos.leases_held, self.storage, f"w{number}")
                if runs >= at_least:
                    return runs
                await asyncio.sleep(0.1)  # another process's state has no signal to wait for


async def made_fleet(bootstrap: str, folder: Path, *, partitions: int, **settings: str) -> Fleet:
    (folder / "effects").mkdir()
    tag = uuid4().hex[:8]
    names = TopicNames(f"{tag}.commands", f"{tag}.outcomes", f"{tag}.dead")
    await TopicAdmin(bootstrap).create_topics(
        TopicSettings(names=names, partitions=partitions, replication=1)
    )
    environment = {
        "OUTCROP_BOOTSTRAP": bootstrap,
        "OUTCROP_STORE": f"sqlite:///{folder}/threads.db",
        "OUTCROP_GROUP": tag,
        "OUTCROP_COMMANDS_TOPIC": names.commands,
        "OUTCROP_OUTCOMES_TOPIC": names.outcomes,
        "OUTCROP_DEAD_TOPIC": names.dead,
        "OUTCROP_LEASE_TTL": f"{LEASE_TTL}s",
        "OUTCROP_SESSION_TIMEOUT": f"{SESSION_TIMEOUT}s",
        "OUTCROP_WAKE_INTERVAL": "1s",
        "OUTCROP_RECOVERY_INTERVAL": "2s",
        "OUTCROP_MAX_RECOVERIES": "20",
    } | {f"OUTCROP_{name.upper()}": value for name, value in settings.items()}
    return Fleet(folder, bootstrap, names, chaos.Cluster(folder, environment))


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
            if await asyncio.to_thread(is_locked, fleet.storage):
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
    await stop_in_a_save(fleet, 2)
    print(f"stopped w2 in a save, with {len(fleet.final)} threads done")
    await asyncio.sleep(LEASE_TTL + SESSION_TIMEOUT + 2)  # the fault is the time that passes
    cluster.send(2, signal.SIGCONT)
    return {cluster.pid(2)}


async def expected_states() -> dict[tuple[int, bool, bool], dict[str, object]]:
    """The fault-free final state of each kind of order, by (number % 3, over the limit, approved)."""
    states: dict[tuple[int, bool, bool], dict[str, object]] = {}
    for kind in range(3):
        for over in (False, True):
            for yes in (False, True):
                order = Order(number=kind, amount=APPROVAL_OVER + over, pause=0)
                states[kind, over, yes] = await chaos.alone(app, order, approved=yes)
    return states


def check_states(
    logs: dict[str, list[Row]], states: dict[tuple[int, bool, bool], dict[str, object]]
) -> list[str]:
    """I5: every final state is the fault-free one, but for what names the order."""
    wrong = []
    for thread, rows in logs.items():
        state = Order.model_validate_json(rows[-1].checkpoint.frozen_state)
        over = state.amount > APPROVAL_OVER
        expected = states[state.number % 3, over, approved(state.number)]
        told = (state.visited, state.settled, state.receipt is None)  # a receipt names its own key
        if told != (expected["visited"], expected["settled"], expected["receipt"] is None):
            wrong.append(f"I5 {thread}: {state.visited} instead of {expected['visited']}")
    return wrong


async def test_kills_and_stops_lose_nothing_and_repeat_nothing(
    kafka_bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone" / "effects").mkdir(parents=True)
    monkeypatch.setattr(chaos_graph, "FOLDER", tmp_path / "alone")
    threads = 2_000
    fleet = await made_fleet(kafka_bootstrap, tmp_path, partitions=12, concurrency="64")
    cluster = fleet.cluster
    for number in range(4):
        cluster.start(number)
    began = time.monotonic()
    try:
        async with ThreadsClient(kafka_bootstrap, topics=fleet.names) as client, asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(fleet.answer(client))
            sending = tasks.create_task(fleet.send_all(client, threads, pause=0.2))
            zombies = await faults(fleet)
            await sending
            await fleet.finished(threads, within=360)
            answering.cancel()
        took = time.monotonic() - began
        assert set(cluster.stop().values()) == {0}
    except BaseException:
        print(cluster.tail())
        raise
    finally:
        for process in cluster.processes.values():
            process.kill()
            process.wait()
    logs = await chaos.logs_of(fleet.storage)
    outcomes = chaos.outcomes_of(kafka_bootstrap, fleet.names.outcomes)
    wrong = [
        *chaos.check_logs(logs),
        *chaos.check_starts(chaos.journal(tmp_path), zombies),
        *chaos.check_effects(tmp_path, logs),
        *check_states(logs, await expected_states()),
        *chaos.check_outcomes(outcomes, fleet.commands),
        *chaos.check_finished(logs),
    ]
    rows = [row.checkpoint for log in logs.values() for row in log]
    facts = {
        "seconds": round(took, 1),
        "threads": len(logs),
        "commands": len(fleet.commands),
        "outcomes": len(outcomes),
        "recoveries": sum("strata.recoveries" in (row.metadata or {}) for row in rows),
        "leases lost": cluster.logged("lease_lost"),
        "rebalances": cluster.logged("partitions.revoked") + cluster.logged("partitions.lost"),
    }
    print(facts, Counter(outcome.status.value for outcome in outcomes))
    assert not wrong, wrong[:20]
    assert len(logs) == threads
    assert all(facts.values()), facts
