"""A fleet of workers on one broker and one store, and the client that sees its threads to their ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from outcrop.stores import open_store
from outcrop.topics import DecisionBody, Outcome, OutcomeStatus, TopicNames
from outcrop.topics.admin import TopicAdmin
from outcrop.topics.client import ThreadsClient
from outcrop.topics.provisioning import TopicSettings
from support import chaos
from support.chaos_graph import APPROVAL_OVER, Order, app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from outcrop.stores import Row, Store

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
    store: Store
    commands: list[str] = field(default_factory=list)
    answered: set[tuple[str, int]] = field(default_factory=set)
    final: dict[str, OutcomeStatus] = field(default_factory=dict)
    progress: asyncio.Event = field(default_factory=asyncio.Event)

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
            logs = await chaos.logs_of(self.store)
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
                runs = await chaos.leases_held(self.store, f"w{number}")
                if runs >= at_least:
                    return runs
                await asyncio.sleep(0.1)  # another process's state has no signal to wait for


@asynccontextmanager
async def made_fleet(
    bootstrap: str, folder: Path, *, store: str, partitions: int | None, **settings: str
) -> AsyncGenerator[Fleet]:
    """A fleet with no worker yet; without `partitions` its topics make themselves, on the embedded broker."""
    (folder / "effects").mkdir()
    tag = uuid4().hex[:8]
    names = TopicNames(f"{tag}.commands", f"{tag}.outcomes", f"{tag}.dead")
    if partitions is not None:
        await TopicAdmin(bootstrap).create_topics(
            TopicSettings(names=names, partitions=partitions, replication=1)
        )
    environment = {
        "OUTCROP_BOOTSTRAP": bootstrap,
        "OUTCROP_STORE": store,
        "OUTCROP_GROUP": tag,
        "OUTCROP_COMMANDS_TOPIC": names.commands,
        "OUTCROP_OUTCOMES_TOPIC": names.outcomes,
        "OUTCROP_DEAD_TOPIC": names.dead,
        "OUTCROP_AUTO_CREATE": str(partitions is None).lower(),
        "OUTCROP_WAKE_INTERVAL": "1s",
        "OUTCROP_RECOVERY_INTERVAL": "2s",
        "OUTCROP_MAX_RECOVERIES": "20",
    } | {f"OUTCROP_{name.upper()}": value for name, value in settings.items()}
    opened = await open_store(store)
    cluster = chaos.Cluster(folder, environment)
    try:
        yield Fleet(folder, bootstrap, names, cluster, opened)
    finally:
        for process in cluster.processes.values():
            process.kill()
            process.wait()
        await opened.close()


async def drive(
    fleet: Fleet, threads: int, disturb: Callable[[], Awaitable[set[int]]], *, pause: float, within: float
) -> set[int]:
    """Send that many threads, answer them and disturb the workers, until all are final and drained.

    Returns what `disturb` does: the processes that may be zombies.
    """
    auto_create = fleet.cluster.settings["OUTCROP_AUTO_CREATE"] == "true"
    try:
        async with (
            ThreadsClient(fleet.bootstrap, topics=fleet.names, auto_create=auto_create) as client,
            asyncio.TaskGroup() as tasks,
        ):
            answering = tasks.create_task(fleet.answer(client))
            sending = tasks.create_task(fleet.send_all(client, threads, pause=pause))
            zombies = await disturb()
            await sending
            await fleet.finished(threads, within=within)
            answering.cancel()
        assert set(fleet.cluster.stop().values()) == {0}
    except BaseException:
        print(fleet.cluster.tail())
        raise
    return zombies


async def violations(
    fleet: Fleet, logs: dict[str, list[Row]], outcomes: list[Outcome], zombies: set[int]
) -> list[str]:
    """Every invariant that does not hold, as a sentence."""
    return [
        *chaos.check_logs(logs),
        *chaos.check_starts(chaos.journal(fleet.folder), zombies),
        *chaos.check_effects(fleet.folder, logs),
        *check_states(logs, await expected_states()),
        *chaos.check_outcomes(outcomes, fleet.commands),
        *chaos.check_finished(logs),
    ]


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
