"""An in-memory command log and outbox for deterministic worker tests.

`MemoryBroker` holds topics, one group's commits and what was published. `MemoryLog` is one
member: nothing moves by itself, the test says when partitions come (`assign`), messages
arrive (`deliver`), partitions go (`revoke`, `lose`) or the process dies (`crash`). A member
that comes later starts from the commits, so whatever wasn't committed is delivered again.

    broker = MemoryBroker()
    broker.append(key=b"t1", value=b"{}")
    log, outbox = MemoryLog(broker), MemoryOutbox(broker)
    worker = Worker(log, Publisher(outbox, …), handler, …)
    await worker.start()
    log.assign(); log.deliver()
    await broker.until(lambda: len(broker.published) == 1)

`zombie()` makes a member lose its partitions without knowing: its commits are refused, but it
goes on handling and publishing. After `crash()` its commits and publishes never return.
`outbox.before` is called with the records before they are published (crash there to lose
them), `outbox.after` once they are, before the worker hears of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from outcrop.worker.errors import CommitRefused, PublishFailed, Undelivered
from outcrop.worker.ports import Assigned, Message, Partition, Position, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from outcrop.worker.ports import LogListener

COMMANDS = "threads.commands"
P0 = Partition(COMMANDS, 0)


class MemoryBroker:
    """The command topic's partitions, the group's commits, and all that was published."""

    def __init__(self, partitions: int = 1, topic: str = COMMANDS) -> None:
        self.topic = topic
        self.log: dict[Partition, list[Message]] = {Partition(topic, n): [] for n in range(partitions)}
        self.committed: dict[Partition, Position] = {}
        self.commits: list[tuple[Partition, Position]] = []
        self.published: list[Record] = []
        self.history: list[str] = []  # "publish TOPIC" and "commit TOPIC/N OFFSET", in order

    def append(
        self,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
        *,
        partition: int = 0,
        gap: int = 0,
    ) -> Message:
        """Append a message, after `gap` offsets that hold none."""
        where = Partition(self.topic, partition)
        messages = self.log[where]
        offset = (messages[-1].offset + 1 if messages else 0) + gap
        messages.append(Message(where, offset, key, value, headers))
        return messages[-1]

    async def until(self, condition: Callable[[], bool], turns: int = 2000) -> None:
        """Let the loop turn until the condition holds; fails the test if it never does."""
        for _ in range(turns):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("the condition never came to hold")

    async def settle(self, turns: int = 50) -> None:
        """Let the loop turn, for checking that something doesn't happen."""
        for _ in range(turns):
            await asyncio.sleep(0)


class MemoryLog:
    """One group member on a `MemoryBroker`; a `CommandLog`."""

    def __init__(self, broker: MemoryBroker, topic_id: str = "topic-1") -> None:
        self._broker = broker
        self._topic_id = topic_id
        self._listener: LogListener | None = None
        self._fetch: dict[Partition, int] = {}
        self.paused: set[Partition] = set()
        self._dead = False
        self._fenced = False
        self.closed = False

    @property
    def owned(self) -> frozenset[Partition]:
        """What the member believes that it owns."""
        return frozenset(self._fetch)

    def assign(self, *partitions: Partition) -> None:
        """Give partitions (all by default) to the member, from where the group has committed."""
        chosen = partitions or tuple(self._broker.log)
        positions = {partition: self._broker.committed.get(partition) for partition in chosen}
        for partition, position in positions.items():
            self._fetch[partition] = position.offset if position else 0
            self.paused.discard(partition)
        self._fenced = False
        self._heard().on_assigned(Assigned(positions))

    def deliver(self, count: int | None = None) -> int:
        """Deliver what is in unpaused partitions, at most `count` messages; returns how many."""
        batch: list[Message] = []
        for partition in self._fetch:
            if partition in self.paused:
                continue
            for message in self._broker.log[partition]:
                if message.offset >= self._fetch[partition] and (count is None or len(batch) < count):
                    batch.append(message)
                    self._fetch[partition] = message.offset + 1
        if batch:
            self._heard().on_messages(batch)
        return len(batch)

    async def revoke(self, *partitions: Partition) -> None:
        """Take partitions (all by default) away in order: hand over, commit, go."""
        going = partitions or tuple(self._fetch)
        positions = await self._heard().on_revoked(going)
        if not self._dead and not self._fenced:
            self._commit(positions)
        for partition in going:
            self._fetch.pop(partition, None)

    def lose(self, *partitions: Partition) -> None:
        """Tell the member that partitions (all by default) are gone already."""
        going = partitions or tuple(self._fetch)
        for partition in going:
            self._fetch.pop(partition, None)
        self._heard().on_lost(going)

    def zombie(self) -> None:
        """Take everything away without telling: commits are refused from now on."""
        self._fenced = True

    def crash(self) -> None:
        """The process is gone: nothing it does reaches the broker any more."""
        self._dead = True

    @property
    def dead(self) -> bool:
        """Whether `crash` was called."""
        return self._dead

    async def start(self, listener: LogListener) -> None:
        self._listener = listener

    def pause(self, partitions: Collection[Partition]) -> None:
        self.paused |= set(partitions) & self._fetch.keys()

    def resume(self, partitions: Collection[Partition]) -> None:
        self.paused -= set(partitions)

    async def commit(self, positions: Mapping[Partition, Position]) -> None:
        if self._dead:
            await _for_ever()
        if self._fenced or not positions.keys() <= self._fetch.keys():
            raise CommitRefused("this member doesn't own the partitions any more")
        self._commit(positions)

    async def topic_id(self, topic: str) -> str:
        del topic
        return self._topic_id

    async def close(self) -> None:
        if self._fetch and not self._dead:
            await self.revoke()
        self.closed = True

    def _commit(self, positions: Mapping[Partition, Position]) -> None:
        for partition, position in positions.items():
            self._broker.committed[partition] = position
            self._broker.commits.append((partition, position))
            self._broker.history.append(f"commit {partition.topic}/{partition.number} {position.offset}")

    def _heard(self) -> LogListener:
        assert self._listener is not None, "start the worker first"
        return self._listener


class MemoryOutbox:
    """Publishes to a `MemoryBroker`, as long as its log (if given) is alive; an `Outbox`."""

    def __init__(self, broker: MemoryBroker, log: MemoryLog | None = None) -> None:
        self._broker = broker
        self._log = log
        self.before: Callable[[Sequence[Record]], None] = lambda _: None
        self.after: Callable[[Sequence[Record]], None] = lambda _: None
        self.refuse: Callable[[Record], Undelivered | None] = lambda _: None
        self.closed = False

    async def publish(self, records: Sequence[Record]) -> None:
        self.before(records)
        await self._alive()
        refused = {id(record): failure for record in records if (failure := self.refuse(record))}
        for record in records:
            if id(record) not in refused:
                self._broker.published.append(record)
                self._broker.history.append(f"publish {record.topic}")
        self.after(records)
        await self._alive()
        if refused:
            raise PublishFailed(list(refused.values()))

    async def close(self) -> None:
        self.closed = True

    async def _alive(self) -> None:
        if self._log is not None and self._log.dead:
            await _for_ever()


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
