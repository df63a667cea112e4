"""Real worker processes on one broker and one store, and what is checked of them.

`Cluster` starts, kills, stops and continues workers. The `check_…` functions look at the
store, the journals and the outcomes topic afterwards and return violations as sentences.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from outcrop.engine import Answer, Completed, Interrupted, Threads
from outcrop.stores import MemoryStore, Row, ThreadQuery, ThreadState, WaitKind
from outcrop.topics.codec import decode_outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outcrop.engine import CompiledGraph
    from outcrop.stores import Store
    from outcrop.topics import Outcome
    from support.chaos_graph import Order

TESTS = Path(__file__).parents[1]


@dataclass
class Cluster:
    """Worker processes of one group, numbered, each with a log file."""

    folder: Path
    settings: Mapping[str, str]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, number: int) -> None:
        """Start worker `number` (again)."""
        environment = {
            **os.environ,
            **self.settings,
            "CHAOS_FOLDER": str(self.folder),
            "PYTHONPATH": str(TESTS),
            "OUTCROP_WORKER": f"w{number}",
        }
        with self._log(number).open("ab") as log:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "outcrop.worker.cli", "worker", "support.chaos_graph:app"],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def pid(self, number: int) -> int:
        """The process ID of worker `number`."""
        return self.processes[number].pid

    def send(self, number: int, what: signal.Signals) -> None:
        """Send a signal to worker `number`."""
        self.processes[number].send_signal(what)

    def kill(self, number: int) -> None:
        """SIGKILL worker `number` and reap it."""
        self.send(number, signal.SIGKILL)
        self.processes[number].wait()

    def stop(self) -> dict[int, int]:
        """SIGTERM every live worker; their exit codes."""
        live = {number: process for number, process in self.processes.items() if process.poll() is None}
        for process in live.values():
            process.terminate()
        return {number: process.wait(timeout=60) for number, process in live.items()}

    def logged(self, event: str) -> int:
        """How many lines of all the workers' logs tell this event."""
        return sum(self._text(number).count(event) for number in self.processes)

    def tail(self) -> str:
        """The end of each worker's log, for a failed test's message."""
        return "\n".join(f"-- w{number}\n{self._text(number)[-1500:]}" for number in self.processes)

    def _text(self, number: int) -> str:
        return self._log(number).read_text(errors="replace")

    def _log(self, number: int) -> Path:
        return self.folder / f"worker-{number}.log"


def journal(folder: Path) -> list[dict[str, Any]]:
    """Every line of every process, in time order; a line torn by a kill is left out."""
    lines = [
        json.loads(line)
        for path in folder.glob("journal-*.jsonl")
        for line in path.read_text().splitlines()
        if line.endswith("}")
    ]
    return sorted(lines, key=lambda line: float(line["at"]))


async def leases_held(store: Store, owner: str) -> int:
    """How many running threads the worker of that name holds now."""
    running = await store.list_threads(ThreadQuery(states=frozenset({ThreadState.RUNNING}), limit=1000))
    leases = await asyncio.gather(*(store.get_lease(summary.thread_id) for summary in running.threads))
    return sum(lease is not None and lease.owner == owner for lease in leases)


async def logs_of(store: Store) -> dict[str, list[Row]]:
    """Every thread's whole log."""
    found: dict[str, list[Row]] = {}
    cursor: str | None = None
    while True:
        page = await store.list_threads(ThreadQuery(limit=1000, cursor=cursor))
        for summary in page.threads:
            found[summary.thread_id] = list((await store.get_log(summary.thread_id, limit=1000)).entries)
        cursor = page.next_cursor
        if cursor is None:
            return found


def outcomes_of(bootstrap: str, topic: str) -> list[Outcome]:
    """Everything on an outcomes topic, repeats included."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex})
    try:
        found: list[Outcome] = []
        for number in reader.list_topics(topic, timeout=30).topics[topic].partitions:
            first, end = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            reader.assign([TopicPartition(topic, number, first)])
            read = first
            while read < end:
                message = reader.poll(30)
                assert message is not None, "the topic's end never came"
                assert message.error() is None, message.error()
                read = (message.offset() or 0) + 1
                found.append(decode_outcome(message.value() or b""))
        return found
    finally:
        reader.close()


def check_logs(logs: Mapping[str, list[Row]]) -> list[str]:
    """I1: sequences contiguous from 0, one token for each unbroken stretch of rows."""
    wrong: list[str] = []
    for thread, rows in logs.items():
        if [row.sequence for row in rows] != list(range(len(rows))):
            wrong.append(f"I1 {thread}: sequences are not contiguous")
        tokens = [int((row.checkpoint.metadata or {}).get("outcrop.token", "-1")) for row in rows]
        if tokens != sorted(tokens) or -1 in tokens:
            wrong.append(f"I1 {thread}: tokens are missing or go back: {tokens}")
    return wrong


def check_outcomes(outcomes: Iterable[Outcome], commands: Iterable[str]) -> list[str]:
    """I2, at least once: every command is answered, and all its answers are alike."""
    told: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        facts = outcome.model_dump(mode="json", include={"status", "sequence", "node", "state", "error"})
        told[str(outcome.command_id)].add(json.dumps(facts, sort_keys=True))
    missing = [f"I6 command {command} has no outcome" for command in commands if command not in told]
    unlike = [f"I2 command {command}: unlike {facts}" for command, facts in told.items() if len(facts) > 1]
    return missing + unlike


def check_finished(logs: Mapping[str, list[Row]]) -> list[str]:
    """I6: every thread came to its end."""
    states = {thread: rows[-1].checkpoint.state for thread, rows in logs.items()}
    return [f"I6 {thread} is {state}" for thread, state in states.items() if state != "completed"]


def _hop(key: str) -> int:
    return int(key.rpartition("#")[2])


def check_starts(lines: Iterable[Mapping[str, Any]], zombies: set[int]) -> list[str]:
    """I3: once a later node of a thread has started, no earlier one starts again.

    A later start shows that the earlier node was committed. A process that lost its leases
    without knowing it (of `zombies`) may start one node more of each thread.
    """
    wrong: list[str] = []
    furthest: dict[str, int] = defaultdict(int)
    spared: set[tuple[str, int]] = set()
    for line in lines:
        if line["kind"] != "start":
            continue
        thread, hop, pid = line["thread"], _hop(line["key"]), line["pid"]
        if hop < furthest[thread]:
            if pid not in zombies or (thread, pid) in spared:
                wrong.append(f"I3 {line['key']} started again by {pid} after hop {furthest[thread]}")
            spared.add((thread, pid))
        furthest[thread] = max(furthest[thread], hop)
    return wrong


def check_effects(folder: Path, logs: Mapping[str, list[Row]]) -> list[str]:
    """I4: each thread that was charged was charged once, its own amount."""
    applied: dict[str, list[int]] = defaultdict(list)
    for path in (folder / "effects").iterdir():
        effect = json.loads(path.read_text())
        applied[effect["key"].partition("/")[0]].append(effect["amount"])
    wrong: list[str] = []
    for thread, rows in logs.items():
        state = json.loads(rows[-1].checkpoint.frozen_state)
        expected = [state["amount"]] if state["receipt"] else []
        if applied[thread] != expected:
            wrong.append(f"I4 {thread}: charged {applied[thread]}, not {expected}")
    return wrong


async def alone(graph: CompiledGraph[Order], order: Order, *, approved: bool) -> dict[str, Any]:
    """I5: the final state of the same graph with the same decisions, alone and without faults."""
    threads = Threads(graph, MemoryStore())
    result = await threads.run("alone", order)
    while isinstance(result, Interrupted):
        if result.wait is None:
            result = await threads.resume("alone", Answer(approved=approved, by="chaos"))
        elif result.wait.kind is WaitKind.EVENT:
            result = await threads.signal("alone", "payment.settled", {"settled": True})
        else:
            result = await threads.wake("alone", now=datetime.now(UTC) + timedelta(seconds=10))
    assert isinstance(result, Completed), result
    return dict(result.state.model_dump(mode="json"))
