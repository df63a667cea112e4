"""Worker processes, their store and their clock in one test: the handler's real parts, no broker.

`World` holds a memory store and a manual clock. `world.process(name)` is the handling half of one
worker; `world.send(command)` gives a command its place in the log; `await process.handle(message)`
runs it with time passing only while everybody waits. What nodes did is in `world.ran`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from outcrop.engine.clock import ManualClock
from outcrop.engine.graph import Graph
from outcrop.engine.node import NodeContext  # noqa: TC001 - nodes are inspected at run time
from outcrop.engine.options import CheckpointPolicy
from outcrop.engine.threads import Threads
from outcrop.stores.memory import MemoryStore
from outcrop.topics.codec import decode_outcome, encode_command
from outcrop.topics.headers import command_headers
from outcrop.topics.ids import uuid7
from outcrop.topics.messages import (
    AnyCommand,
    Cancel,
    DecisionBody,
    End,
    GraphRef,
    Outcome,
    Recover,
    Rerun,
    Resume,
    Run,
    Signal,
    Update,
    Wake,
)
from outcrop.worker.control import Control, Handled, Unfinished
from outcrop.worker.handler import Handler
from outcrop.worker.handling import HandlingSettings
from outcrop.worker.ports import Message, Partition
from outcrop.worker.registry import Registry
from outcrop.worker.watch import UNWATCHED, Watch

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from uuid import UUID

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.engine.recorder import Telemetry
    from outcrop.stores.port import Store
    from outcrop.stores.record import Checkpoint, Row

TTL = timedelta(seconds=30)
TOPIC = "threads.commands"
State = dict[str, Any]
T = TypeVar("T")


class Hooks:
    """What tests do to nodes: hold one at a gate, make it fail or crash so many times."""

    def __init__(self) -> None:
        self.entered: dict[str, asyncio.Event] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.crashes: dict[str, int] = {}
        self.failures: dict[str, int] = {}

    def gate(self, node: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Hold the node: returns the event it sets on entering, and the one it waits for."""
        self.entered[node], self.gates[node] = asyncio.Event(), asyncio.Event()
        return self.entered[node], self.gates[node]

    async def visit(self, node: str) -> None:
        if self.crashes.get(node, 0) > 0:
            self.crashes[node] -= 1
            await die()
        if self.failures.get(node, 0) > 0:
            self.failures[node] -= 1
            raise RuntimeError("broken on purpose")
        if node in self.gates:
            self.entered[node].set()
            await self.gates[node].wait()


@dataclass
class World:
    """One store, one clock, one command partition, and what nodes did."""

    clock: ManualClock = field(default_factory=ManualClock)
    hooks: Hooks = field(default_factory=Hooks)
    ran: list[tuple[str, str]] = field(default_factory=list)
    offsets: Any = field(default_factory=lambda: count(10))
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock.now)

    # Graphs

    def graph(
        self, name: str, policy: CheckpointPolicy = CheckpointPolicy.EVERY_NODE
    ) -> CompiledGraph[State]:
        """`line`: a, b, c; `approval`: a, gate, b; `events`: a, first, b, second, c; `timer`: a, pause, b.

        `timeout` is `approval` with ten minutes for the answer, `twice` is `events` with one event for both;
        `questions`: a, ask (for a colour, then whatever it is given for a price), b.
        """
        graph = Graph(dict[str, Any], id=name, version="1")
        steps = {
            "line": ("a", "b", "c"),
            "approval": ("a", "gate", "b"),
            "timeout": ("a", "gate", "b"),
            "events": ("a", "first", "b", "second", "c"),
            "twice": ("a", "once", "b", "again", "c"),
            "timer": ("a", "pause", "b"),
            "questions": ("a", "ask", "b"),
        }[name]
        for step in steps:
            match step:
                case "gate" if name == "timeout":
                    graph.interrupt("gate", timeout=timedelta(minutes=10))
                case "gate":
                    graph.interrupt("gate", on_reject="b")
                case "first" | "second":
                    graph.wait_for_event(step, event=f"{step}.came")
                case "once" | "again":
                    graph.wait_for_event(step, event="came")
                case "ask":
                    self._asker(graph)
                case "pause":
                    graph.timer("pause", delay=timedelta(minutes=5))
                case _:
                    self._node(graph, step)
        for before, after in pairwise(steps):
            graph.edge(before, after)
        return graph.compile(checkpoints=policy)

    def _node(self, graph: Graph[State], name: str) -> None:
        async def node(state: State, context: NodeContext) -> None:
            self.ran.append((context.thread_id, name))
            await self.hooks.visit(name)
            state["done"] = [*state.get("done", []), name]

        node.__name__ = name
        graph.node(node)

    def _asker(self, graph: Graph[State]) -> None:
        @graph.node
        async def ask(state: State, context: NodeContext) -> None:
            self.ran.append((context.thread_id, "ask"))
            state["colour"] = await context.interrupt({"of": state["amount"]}, id="colour")
            await self.hooks.visit("ask")
            state["price"] = await context.interrupt("price?", id="price")

    # Commands

    def id(self) -> UUID:
        """A new command ID, of now."""
        return uuid7(self.clock.now(), next(self.offsets).to_bytes(10, "big"))

    def common(self, thread: str, command_id: UUID | None) -> dict[str, Any]:
        return {
            "command_id": command_id or self.id(),
            "thread_id": thread,
            "sent_at": self.clock.now(),
        }

    def run(
        self, graph: str = "line", thread: str = "t", *, command_id: UUID | None = None, **more: Any
    ) -> Run:
        fields: dict[str, Any] = {"graph": GraphRef(id=graph), "state": {"amount": 5}} | self.common(
            thread, command_id
        )
        return Run(**fields | more)

    def resume(
        self, thread: str = "t", *, approved: bool = True, command_id: UUID | None = None, **more: Any
    ) -> Resume:
        decision = DecisionBody(approved=approved, by="ann")
        return Resume(**{"decision": decision} | self.common(thread, command_id) | more)

    def signal(self, event: str, thread: str = "t", *, command_id: UUID | None = None, **more: Any) -> Signal:
        return Signal(event=event, **self.common(thread, command_id) | more)

    def update(
        self, values: State, thread: str = "t", *, command_id: UUID | None = None, **more: Any
    ) -> Update:
        return Update(values=values, **self.common(thread, command_id) | more)

    def rerun(
        self, at_sequence: int, thread: str = "t", *, command_id: UUID | None = None, **more: Any
    ) -> Rerun:
        return Rerun(at_sequence=at_sequence, **self.common(thread, command_id) | more)

    def end(self, thread: str = "t", **more: Any) -> End:
        return End(**self.common(thread, None) | more)

    def cancel(self, thread: str = "t", **more: Any) -> Cancel:
        return Cancel(**self.common(thread, None) | more)

    def wake(self, sequence: int, thread: str = "t", **more: Any) -> Wake:
        return Wake(sequence=sequence, **self.common(thread, None) | more)

    def recover(self, sequence: int, thread: str = "t", **more: Any) -> Recover:
        return Recover(sequence=sequence, **self.common(thread, None) | more)

    def send(self, command: AnyCommand, *, partition: int = 0) -> Message:
        """The command's message, behind all sent before."""
        return Message(
            Partition(TOPIC, partition),
            next(self.offsets),
            command.thread_id.encode(),
            encode_command(command),
            command_headers(command),
        )

    # Processes and time

    def process(
        self,
        name: str = "w0",
        *graphs: CompiledGraph[State],
        store: Store | None = None,
        watch: Watch = UNWATCHED,
        telemetry: Telemetry | None = None,
        **settings: Any,
    ) -> Process:
        """One worker's handling, serving all graphs of this world unless told which."""
        served = graphs or tuple(
            self.graph(each)
            for each in ("line", "approval", "timeout", "events", "twice", "timer", "questions")
        )
        return Process(self, name, served, store or self.store, watch, telemetry, settings)

    async def passing(self, work: Coroutine[Any, Any, T], *, longest: float = 3600.0) -> T:
        """Await `work`, moving time to the next timer whenever everybody waits."""
        task = asyncio.ensure_future(work)
        deadline = self.clock.monotonic() + longest
        while True:
            for _ in range(60):
                if task.done():
                    return await task
                await asyncio.sleep(0)
            assert self.clock.monotonic() < deadline, "the work waits for something that never comes"
            self.clock.advance(self.clock.next_due or 1.0)

    async def settle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    # What the log says

    async def rows(self, thread: str = "t") -> list[Row]:
        return list((await self.store.get_log(thread, limit=1000)).entries)

    async def latest(self, thread: str = "t") -> Checkpoint:
        row = await self.store.load(thread)
        assert row is not None
        return row.checkpoint

    async def statuses(self, thread: str = "t") -> list[str]:
        """The rows, shortly: `running:a>b`."""
        return [shape(row.checkpoint) for row in await self.rows(thread)]


def shape(checkpoint: Checkpoint) -> str:
    stamp = "*" if checkpoint.resumed_at else ""
    return (
        f"{checkpoint.status.value}{stamp}:{checkpoint.suspended_node or '-'}>{checkpoint.next_node or '-'}"
    )


class Process:
    """The handling half of one worker process."""

    def __init__(
        self,
        world: World,
        name: str,
        graphs: tuple[CompiledGraph[State], ...],
        store: Store,
        watch: Watch,
        telemetry: Telemetry | None,
        settings: dict[str, Any],
    ) -> None:
        self.world = world
        self.waiting: list[Row] = []
        self.registry = Registry(
            graphs, lambda graph: Threads(graph, store, clock=world.clock, telemetry=telemetry)
        )
        self.handler = Handler(
            store=store,
            registry=self.registry,
            topic_id=_topic_id,
            settings=HandlingSettings(worker=name, lease_ttl=TTL, max_recoveries=3, **settings),
            clock=world.clock,
            waiting=self.waiting.append,
            watch=watch,
            uniform=lambda: 0.5,
        )

    async def handle(self, message: Message, control: Control | None = None) -> Handled | Unfinished:
        return await self.world.passing(self.handler.handle(message, control or Control()))

    async def outcome(self, message: Message, control: Control | None = None) -> Outcome:
        """Handle the message and return its one outcome."""
        found = outcomes(await self.handle(message, control))
        assert len(found) == 1, found
        return found[0]

    async def crash(self, message: Message, control: Control | None = None) -> None:
        """Handle the message until the process dies; its lease is left to expire."""
        with pytest.raises(asyncio.CancelledError):
            await self.handle(message, control)
        self.world.clock.advance(TTL.total_seconds() + 1)


class DyingStore:
    """A store in a process that dies before or after its n-th save (from 1); then nothing returns."""

    def __init__(self, inner: MemoryStore, *, before: int = 0, after: int = 0) -> None:
        self._inner = inner
        self._before = before
        self._after = after
        self._saves = 0
        self._dead = False

    async def save(self, *args: Any, **options: Any) -> Any:
        self._saves += 1
        await self._die_if(self._saves == self._before)
        saved = await self._inner.save(*args, **options)
        await self._die_if(self._saves == self._after)
        return saved

    async def _die_if(self, now: bool) -> None:
        self._dead = self._dead or now
        if self._dead:
            await die()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            await self._die_if(now=False)
            return await method(*args, **options)

        return method if name == "renewals" else call


async def die() -> None:
    """The process dies here: its run is dropped, and nothing of it returns."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.get_running_loop().create_future()


async def _topic_id(topic: str) -> str:
    return f"id-of-{topic}"


def outcomes(handled: Handled | Unfinished, topic: str = "threads.outcomes") -> list[Outcome]:
    assert isinstance(handled, Handled), "the message was left unfinished"
    return [decode_outcome(record.value) for record in handled.records if record.topic == topic]


def letters(handled: Handled | Unfinished) -> list[dict[str, str]]:
    """The headers of the dead letters among the records."""
    assert isinstance(handled, Handled), "the message was left unfinished"
    return [
        {name: value.decode(errors="replace") for name, value in record.headers}
        for record in handled.records
        if record.topic == "threads.dead"
    ]


def told(outcome: Outcome) -> dict[str, Any]:
    """The part of an outcome that may not differ between two deliveries."""
    free = {"run_id", "worker", "started_at", "finished_at", "recovered"}
    return outcome.model_dump(exclude=free)
