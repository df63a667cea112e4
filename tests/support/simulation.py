"""Several whole workers over one store and one log, with faults drawn from a seed.

`Simulation(seed).run()` sends commands to a few threads while processes crash, stall as zombies,
hand partitions over and lose them, and the store stops answering; then lets the faults stop, and
returns what of worker.md's invariants doesn't hold. Nothing in it waits for real time.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from outcrop.engine.clock import ManualClock, sleep
from outcrop.engine.graph import Graph
from outcrop.engine.node import NodeContext  # noqa: TC001 - nodes are inspected at run time
from outcrop.engine.options import CheckpointPolicy
from outcrop.engine.threads import Threads
from outcrop.stores.codec import same_as
from outcrop.stores.errors import Unavailable
from outcrop.topics.codec import decode_outcome, encode_command
from outcrop.topics.headers import command_headers
from outcrop.topics.messages import Recover, Wake
from outcrop.topics.partitioner import partition_for
from outcrop.worker.drivers.dispatch import Dispatch
from outcrop.worker.drivers.recovery import RecoveryDriver
from outcrop.worker.drivers.wake import WakeDriver
from outcrop.worker.handler import Handler
from outcrop.worker.handling import HandlingSettings
from outcrop.worker.metrics import Metrics
from outcrop.worker.overtaking import overtakes
from outcrop.worker.ports import Partition, Record
from outcrop.worker.publisher import Publisher
from outcrop.worker.registry import Registry
from outcrop.worker.worker import Limits, Worker
from support.handling import TTL, World, told
from support.log import COMMANDS, MemoryBroker, MemoryLog, MemoryOutbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.stores.memory import MemoryStore
    from outcrop.topics.messages import AnyCommand, Outcome

PARTITIONS = 2
THREADS = 5
STEPS = 120
STEPS_OF = {
    "line": ("a", "b", "c"),
    "approval": ("a", "gate", "b"),
    "events": ("a", "first", "b", "second", "c"),
    "timer": ("a", "pause", "b"),
}


class Stall:
    """A process's way to the store: it may fail for a while, or be gone with the process."""

    def __init__(self, inner: MemoryStore, random: Random) -> None:
        self._inner = inner
        self._random = random
        self.dead = False
        self.failing = 0

    def __getattr__(self, name: str) -> Any:
        if name == "renewals":
            return self._inner.renewals
        method = getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            may_fail_before = self._random.random() < 0.5
            await self._reach(may_fail=may_fail_before)
            result = await method(*args, **options)
            await self._reach(may_fail=not may_fail_before)  # the answer is lost
            return result

        return call

    async def _reach(self, *, may_fail: bool) -> None:
        await asyncio.sleep(0)
        if self.dead:
            await asyncio.get_running_loop().create_future()
        if may_fail and self.failing > 0:
            self.failing -= 1
            raise Unavailable("the store doesn't answer")


class Member:
    """One worker process."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.name = name
        self._simulation = simulation
        clock, broker = simulation.clock, simulation.broker
        self.store: Any = Stall(simulation.world.store, simulation.random)
        self.log = MemoryLog(broker)
        self.outbox = MemoryOutbox(broker, self.log)
        self.outbox.after = simulation.route
        metrics = Metrics()
        self.registry = Registry(
            [self._graph(each) for each in STEPS_OF], lambda graph: Threads(graph, self.store, clock=clock)
        )
        handler = Handler(
            store=self.store,
            registry=self.registry,
            topic_id=self.log.topic_id,
            settings=HandlingSettings(worker=name, lease_ttl=TTL, max_recoveries=1000),
            clock=clock,
            metrics=metrics,
            uniform=simulation.random.random,
        )
        self.worker = Worker(
            self.log,
            Publisher(self.outbox, dead="threads.dead", clock=clock, metrics=metrics),
            handler,
            overtakes=overtakes,
            limits=Limits(handover_timeout=timedelta(seconds=5)),
            clock=clock,
            metrics=metrics,
        )
        self.wake = WakeDriver(self.store, self.registry, self._dispatch(Wake, metrics), clock=clock)
        self.recovery = RecoveryDriver(
            self.store, self.registry, self._dispatch(Recover, metrics), max_recoveries=1000, metrics=metrics
        )

    def _dispatch(self, kind: type[Wake | Recover], metrics: Metrics) -> Dispatch:
        return Dispatch(
            kind,
            self.outbox,
            topic=COMMANDS,
            owns=lambda thread: place(thread) in self.worker.partitions,
            clock=self._simulation.clock,
            again_after=timedelta(seconds=20),
            metrics=metrics,
            random=self._simulation.random.randbytes,
        )

    def crash(self) -> None:
        """The process is gone: no store call and no publish of it returns."""
        self.log.crash()
        self.store.dead = True

    def _graph(self, name: str) -> CompiledGraph[dict[str, Any]]:
        graph, steps = Graph(dict[str, Any], id=name, version="1"), STEPS_OF[name]
        for step in steps:
            match step:
                case "gate":
                    graph.interrupt("gate")
                case "first" | "second":
                    graph.wait_for_event(step, event=f"{step}.came")
                case "pause":
                    graph.timer("pause", delay=timedelta(seconds=20))
                case _:
                    self._node(graph, step)
        for before, after in pairwise(steps):
            graph.edge(before, after)
        return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)

    def _node(self, graph: Graph[dict[str, Any]], name: str) -> None:
        simulation = self._simulation

        async def node(state: dict[str, Any], context: NodeContext) -> None:
            simulation.keys[context.thread_id, name].add(context.idempotency_key)
            await sleep(simulation.clock, simulation.random.choice((0, 0.5, 3, 12)))
            if self.store.dead:
                await asyncio.get_running_loop().create_future()
            if simulation.random.random() < simulation.failure_rate:
                raise RuntimeError("now and then")
            state["done"] = [*state.get("done", []), name]

        node.__name__ = name
        graph.node(node)


class Simulation:
    """One seeded history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.world = World(clock=self.clock)
        self.broker = MemoryBroker(PARTITIONS)
        self.keys: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.failure_rate = 0.05
        self.sent: list[AnyCommand] = []
        self.members: list[Member] = []
        self.owner: dict[Partition, Member] = {}
        self._names = iter(range(1000))
        self._kinds = {f"t{n}": self.random.choice(list(STEPS_OF)) for n in range(THREADS)}
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> list[str]:
        """Live through the history; returns the invariants that it broke."""
        await self._member()
        await self._member()
        for partition in self.broker.log:
            await self._give(partition)
        for thread, kind in self._kinds.items():
            self.send(self.world.run(kind, thread))
        for _ in range(STEPS):
            await self._step()
        await self._calm_down()
        return [*await self._broken_logs(), *self._broken_answers()]

    def send(self, command: AnyCommand) -> None:
        self.sent.append(command)
        self._append(command.thread_id, encode_command(command), command_headers(command))

    def route(self, records: Sequence[Record]) -> None:
        """Put what drivers produced on the command topic."""
        for record in records:
            if record.topic == COMMANDS and record.key is not None:
                self._append(record.key.decode(), record.value, record.headers)

    def _append(self, thread: str, value: bytes | None, headers: Any) -> None:
        self.broker.append(thread.encode(), value, headers, partition=place(thread).number)

    # What happens

    async def _step(self) -> None:
        happenings = {
            self._command: 6,
            self._time: 8,
            self._drivers: 3,
            self._hand_over: 2,
            self._lose: 1,
            self._zombie: 1,
            self._crash: 1,
            self._store_fails: 1,
        }
        (chosen,) = self.random.choices(list(happenings), list(happenings.values()))
        await chosen()
        for member in self.members:
            member.log.deliver(self.random.choice((1, 3, None)))
        await self._turn()

    async def _turn(self) -> None:
        for _ in range(self.random.randrange(5, 60)):
            await asyncio.sleep(0)

    async def _command(self) -> None:
        thread, world = f"t{self.random.randrange(THREADS)}", self.world
        if self.sent and self.random.random() < 0.1:
            return self.send(self.random.choice(self.sent))  # a client sends one again
        makes: list[Callable[[], AnyCommand]] = [
            lambda: world.resume(thread),
            lambda: world.resume(thread, approved=False),
            lambda: world.signal("first.came", thread),
            lambda: world.signal("second.came", thread),
            lambda: world.cancel(thread),
            lambda: world.end(thread),
        ]
        (make,) = self.random.choices(makes, [5, 1, 4, 4, 1, 0.3])
        return self.send(make())

    async def _time(self) -> None:
        self.clock.advance(self.random.choice((0.1, 1, 5, 15)))

    async def _drivers(self) -> None:
        for member in self.members:
            self._spawn(self._round(member))

    async def _round(self, member: Member) -> None:
        try:
            await member.wake.round()
            await member.recovery.round()
        except Unavailable:
            pass

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _hand_over(self) -> None:
        partition = self._any_partition()
        revoking = asyncio.ensure_future(self.owner[partition].log.revoke(partition))
        while not revoking.done():
            await self._turn()
            if not revoking.done():
                self.clock.advance(0.5)
        await revoking
        await self._give(partition)

    async def _lose(self) -> None:
        partition = self._any_partition()
        self.owner[partition].log.lose(partition)
        await self._give(partition)

    async def _zombie(self) -> None:
        """A member loses everything without knowing, and goes on for a while."""
        zombie = self.random.choice(self.members)
        zombie.log.zombie()
        self.members.remove(zombie)
        await self._replace(zombie)
        for _ in range(self.random.randrange(3)):
            await self._turn()
            self.clock.advance(1)
        zombie.log.lose()

    async def _crash(self) -> None:
        crashed = self.random.choice(self.members)
        crashed.crash()
        self.members.remove(crashed)
        await self._replace(crashed)

    async def _store_fails(self) -> None:
        self.random.choice(self.members).store.failing = self.random.randrange(1, 12)

    async def _replace(self, gone: Member) -> None:
        await self._member()
        for partition, owner in list(self.owner.items()):
            if owner is gone:
                await self._give(partition)

    async def _member(self) -> None:
        member = Member(self, f"w{next(self._names)}")
        self.members.append(member)
        await member.worker.start()

    async def _give(self, partition: Partition) -> None:
        self.owner[partition] = self.random.choice(self.members)
        self.owner[partition].log.assign(partition)

    def _any_partition(self) -> Partition:
        return self.random.choice(list(self.broker.log))

    async def _calm_down(self) -> None:
        """Let faults stop, and everything come to an answer (I6)."""
        self.failure_rate = 0.0
        for member in self.members:
            member.store.failing = 0
        for turn in range(400):
            for member in self.members:
                member.log.deliver()
            if turn % 10 == 0:
                await self._drivers()
            await self._turn()
            self.clock.advance(1)

    # What must hold

    async def _broken_logs(self) -> list[str]:
        broken: list[str] = []
        answers = self._answers()
        for thread, kind in self._kinds.items():
            rows = await self.world.rows(thread)
            if [row.sequence for row in rows] != list(range(len(rows))):
                broken.append(f"I1 {thread}: sequences have gaps")
            tokens = [int((row.checkpoint.metadata or {})["outcrop.token"]) for row in rows]
            if tokens != sorted(tokens):
                broken.append(f"I1 {thread}: tokens interleave: {tokens}")
            for before, after in pairwise(row.checkpoint for row in rows):
                if same_as(replace(before, created_at=""), replace(after, created_at="")):
                    broken.append(f"I5 {thread}: a row is there twice")
            broken += [
                f"I2 {thread}: {key} {command_id} acted and has no outcome"
                for row in rows
                for key, command_id in (row.checkpoint.metadata or {}).items()
                if key in {"outcrop.command_id", "outcrop.cancel_id"} and command_id not in answers
            ]
            broken += self._broken_states(thread, kind, [row.checkpoint.frozen_state for row in rows])
            if rows and rows[-1].checkpoint.status.value == "running":
                broken.append(f"I6 {thread}: left running")
        broken += [f"I4 {where}: several keys {keys}" for where, keys in self.keys.items() if len(keys) > 1]
        return broken

    def _broken_states(self, thread: str, kind: str, states: list[str]) -> list[str]:
        nodes = [step for step in STEPS_OF[kind] if len(step) == 1]
        allowed = [nodes[:count] for count in range(len(nodes) + 1)]
        counts: list[int] = []
        for state in states:
            done = decode_state(state).get("done", [])
            if done not in allowed:
                return [f"I5 {thread}: {done} can't be"]
            counts.append(len(done))
        return [] if counts == sorted(counts) else [f"I3 {thread}: committed work went back"]

    def _answers(self) -> dict[str, list[Outcome]]:
        answers: dict[str, list[Outcome]] = defaultdict(list)
        for record in self.broker.published:
            if record.topic == "threads.outcomes":
                outcome = decode_outcome(record.value)
                answers[str(outcome.command_id)].append(outcome)
        return answers

    def _broken_answers(self) -> list[str]:
        """A command is refused or it acts; one that a client sent again may be refused first."""
        answers = self._answers()
        broken = [
            f"I2 {command.type.value} of {command.thread_id} has no outcome"
            for command in self.sent
            if str(command.command_id) not in answers
        ]
        for command_id, found in answers.items():
            acted = [told(outcome) for outcome in found if outcome.status.value != "refused"]
            is_alike = all(each == acted[0] for each in acted)
            is_sent_again = sum(str(command.command_id) == command_id for command in self.sent) > 1
            if acted and not (is_alike and (is_sent_again or len(acted) == len(found))):
                told_as = [(each.status.value, each.sequence, each.reason) for each in found]
                broken.append(f"I2 {found[0].command_type.value} of {found[0].thread_id}: unlike {told_as}")
        return broken


def place(thread: str) -> Partition:
    """Where the thread's commands go."""
    return Partition(COMMANDS, partition_for(thread.encode(), PARTITIONS))


def decode_state(text: str) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(text)
    return state
