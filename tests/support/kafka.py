"""A listener that remembers, and topics of their own, for tests of the worker on a broker."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # the stubs hide it

from outcrop.worker.cluster import Cluster
from outcrop.worker.consumer import KafkaLog
from outcrop.worker.outbox import KafkaOutbox
from outcrop.worker.ports import Assigned, Message, Partition, Position, Record
from outcrop.worker.settings import Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence


def create_topic(bootstrap: str, topic: str, partitions: int = 4, **config: str) -> None:
    """Make a topic on a real broker and wait until it is known."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([new])[topic].result(timeout=30)
    deadline = time.monotonic() + 30
    while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
        assert time.monotonic() < deadline, f"{topic} never came"


@dataclass
class Recorder:
    """A `LogListener` that keeps what it hears; `finals` answers a revocation."""

    assigned: list[Assigned] = field(default_factory=list[Assigned])
    messages: list[Message] = field(default_factory=list[Message])
    revoked: list[set[Partition]] = field(default_factory=list[set[Partition]])
    lost: list[set[Partition]] = field(default_factory=list[set[Partition]])
    failures: list[Exception] = field(default_factory=list[Exception])
    finals: dict[Partition, Position] = field(default_factory=dict[Partition, Position])
    owned: dict[Partition, Position | None] = field(default_factory=dict["Partition", "Position | None"])
    handover: asyncio.Event | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def on_assigned(self, assigned: Assigned) -> None:
        self.assigned.append(assigned)
        self.owned.update(assigned.positions)
        self._news.set()

    def on_messages(self, messages: Sequence[Message]) -> None:
        self.messages.extend(messages)
        self._news.set()

    async def on_revoked(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        self.revoked.append(set(partitions))
        self._news.set()
        if self.handover is not None:
            await self.handover.wait()
        for partition in partitions:
            self.owned.pop(partition, None)
        return {p: position for p, position in self.finals.items() if p in partitions}

    def on_lost(self, partitions: Collection[Partition]) -> None:
        self.lost.append(set(partitions))
        for partition in partitions:
            self.owned.pop(partition, None)
        self._news.set()

    def on_failed(self, error: Exception) -> None:
        self.failures.append(error)
        self._news.set()

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for news until the condition holds; fails the test if it doesn't in time."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._news.clear()
                await self._news.wait()


@dataclass
class Deployment:
    """Topics and a group of their own on one broker, and the settings that name them."""

    bootstrap: str
    embedded: bool = False
    partitions: int = 4
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def commands(self) -> str:
        return f"commands-{self.tag}"

    def create(self, *, max_message_bytes: int = 1_048_588) -> Deployment:
        """Make the topics; the embedded broker makes them itself."""
        if not self.embedded:
            for topic in (self.commands, f"outcomes-{self.tag}", f"dead-{self.tag}"):
                create_topic(
                    self.bootstrap, topic, self.partitions, **{"max.message.bytes": str(max_message_bytes)}
                )
        return self

    def settings(self, **other: object) -> Settings:
        """Settings for a member, with short timeouts."""
        protocol = "consumer" if self.embedded else "cooperative"
        return load_settings(
            {
                "bootstrap": self.bootstrap,
                "group": f"group-{self.tag}",
                "commands_topic": self.commands,
                "outcomes_topic": f"outcomes-{self.tag}",
                "dead_topic": f"dead-{self.tag}",
                "auto_create": self.embedded,
                "group_protocol": protocol,
                "session_timeout": "6s",
                "heartbeat_interval": "300ms",
                "store": "memory:",
                "log_level": "warning",
            }
            | other,
            environment={},
        )

    @asynccontextmanager
    async def outbox(self) -> AsyncIterator[KafkaOutbox]:
        outbox = KafkaOutbox(self.settings())
        try:
            yield outbox
        finally:
            await outbox.close()

    async def send(self, count: int, *, value: bytes = b"{}") -> None:
        """Put `count` commands of as many threads on the commands topic."""
        async with self.outbox() as outbox:
            await outbox.publish([Record(self.commands, f"t{n}".encode(), value) for n in range(count)])

    @asynccontextmanager
    async def member(
        self, recorder: Recorder | None = None, **settings: object
    ) -> AsyncIterator[tuple[KafkaLog, Recorder]]:
        """A member of the group, joined when the block begins."""
        recorder = recorder or Recorder()
        chosen = self.settings(**settings)
        cluster = Cluster(chosen)
        await cluster.check([self.commands])  # the embedded broker makes it now
        log = KafkaLog(chosen, cluster, [self.commands])
        await log.start(recorder)
        try:
            yield log, recorder
        finally:
            await log.close()
