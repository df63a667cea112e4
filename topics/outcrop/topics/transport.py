"""The client's way to the broker, on aiokafka: the only module that imports it.

Owns the producer's guarantees (idempotent, acks from all, murmur2) and reading a topic without a group.
Knows nothing of commands beyond their bytes. aiokafka's errors end here: what comes out is of
`errors`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from .errors import (
    BrokerUnreachable,
    MessageTooLarge,
    MissingExtra,
    OutcomesLost,
    SendFailed,
    TopicMissing,
)
from .keys import encode_key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from .headers import Headers

try:
    import aiokafka.errors  # type: ignore[import-untyped]  # it ships no types
except ImportError:
    raise MissingExtra("aiokafka", "kafka") from None

ENVELOPE_BYTES: Final = 64 * 1024
"""Room for key and headers beside a value."""

_CLOSE_SECONDS: Final = 3.0
_POLL_MILLISECONDS: Final = 5_000
_METADATA_MILLISECONDS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Envelope:
    """A command as it goes out."""

    topic: str
    thread_id: str
    command_id: UUID
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the broker is and how to get in; `security` is passed to aiokafka as it is."""

    bootstrap: str
    security: Mapping[str, Any]


class Sender:
    """Sends commands, each confirmed by all in-sync replicas."""

    def __init__(self, connection: Connection, *, limit: int, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._producer: Any = aiokafka.AIOKafkaProducer(
            bootstrap_servers=connection.bootstrap,
            enable_idempotence=True,
            acks="all",
            max_request_size=limit + ENVELOPE_BYTES,
            **connection.security,
        )

    async def start(self, topics: Collection[str], *, auto_create: bool) -> None:
        """Connect, and see that the topics are there (or make the broker make them)."""
        try:
            await self._producer.start()
            if auto_create:
                for topic in topics:
                    await self.partitions(topic)
            else:
                found = cast("set[str]", (await self._producer.client.fetch_all_metadata()).topics())
                for topic in topics:
                    if topic not in found:
                        raise TopicMissing(topic)
        except (aiokafka.errors.KafkaError, OSError) as error:
            raise BrokerUnreachable(self._connection.bootstrap, _told(error)) from error

    async def partitions(self, topic: str) -> set[int]:
        """The topic's partitions, as the broker tells them now."""
        return cast("set[int]", await self._producer.partitions_for(topic))

    async def send(self, envelope: Envelope) -> None:
        """Return when the command is written.

        Raises `MessageTooLarge` or `TopicMissing` when it certainly is not, `SendFailed` when nobody knows.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._producer.send_and_wait(
                    envelope.topic,
                    envelope.value,
                    key=encode_key(envelope.thread_id),
                    headers=list(envelope.headers),
                )
        except aiokafka.errors.MessageSizeTooLargeError as error:
            raise MessageTooLarge(
                f"command {envelope.command_id} of thread '{envelope.thread_id}' has "
                f"{len(envelope.value)} bytes, over the limit of the topic {envelope.topic}: make it smaller "
                "or raise the topic's max.message.bytes"
            ) from error
        except aiokafka.errors.UnknownTopicOrPartitionError as error:
            raise TopicMissing(envelope.topic) from error
        except TimeoutError as error:
            detail = f"no answer within {self._timeout:g} s"
            raise SendFailed(envelope.thread_id, envelope.command_id, detail) from error
        except aiokafka.errors.KafkaError as error:
            raise SendFailed(envelope.thread_id, envelope.command_id, _told(error)) from error

    async def close(self) -> None:
        """Send what is under way, for a few seconds at most, and disconnect."""
        sender = self._producer._sender  # noqa: SLF001 - its task has no public name
        tasks = [] if sender.sender_task is None else [sender.sender_task]
        await _close(self._producer, self._producer.client, tasks)


class Reader:
    """Reads all partitions of a topic from given positions on, without a group."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._consumer: Any = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=connection.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            metadata_max_age_ms=_METADATA_MILLISECONDS,
            **connection.security,
        )

    async def start_at_end(self, partitions: Collection[int]) -> Mapping[int, int]:
        """Connect and stand at the end of these partitions; returns where that is."""
        try:
            await self._consumer.start()
            self._consumer.assign(self._partitions(partitions))
            ends = await self._consumer.end_offsets(self._partitions(partitions))
        except (aiokafka.errors.KafkaError, OSError) as error:
            raise BrokerUnreachable(self._connection.bootstrap, _told(error)) from error
        positions = {partition.partition: cast("int", offset) for partition, offset in ends.items()}
        self._stand(positions)
        return positions

    async def start_at(self, positions: Mapping[int, int]) -> None:
        """Connect and stand at these offsets by partition."""
        try:
            await self._consumer.start()
        except (aiokafka.errors.KafkaError, OSError) as error:
            raise BrokerUnreachable(self._connection.bootstrap, _told(error)) from error
        self._stand(positions)

    async def read(self) -> list[bytes | None]:
        """Wait a while for values; may return none. Raises `OutcomesLost` when it can't go on."""
        try:
            await self._follow_growth()
            batches = await self._consumer.getmany(timeout_ms=_POLL_MILLISECONDS)
        except (aiokafka.errors.KafkaError, aiokafka.errors.ConsumerStoppedError) as error:
            raise OutcomesLost(self._topic, _told(error)) from error
        return [record.value for batch in batches.values() for record in batch]

    async def close(self) -> None:
        """Disconnect."""
        fetcher = self._consumer._fetcher  # noqa: SLF001 - its tasks have no public name
        tasks = [] if fetcher is None else list(fetcher._pending_tasks)  # noqa: SLF001 - as above
        await _close(self._consumer, self._consumer._client, tasks)  # noqa: SLF001 - as above

    async def _follow_growth(self) -> None:
        """Take in partitions that were added since, from their beginning."""
        assigned: set[Any] = self._consumer.assignment()
        known: set[int] = self._consumer.partitions_for_topic(self._topic) or set()
        if len(known) > len(assigned):
            positions = {
                partition.partition: await self._consumer.position(partition) for partition in assigned
            }
            self._stand({number: positions.get(number, 0) for number in known})

    def _stand(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign(self._partitions(positions))
        for number, offset in positions.items():
            self._consumer.seek(aiokafka.TopicPartition(self._topic, number), offset)

    def _partitions(self, numbers: Collection[int]) -> list[Any]:
        return [aiokafka.TopicPartition(self._topic, number) for number in sorted(numbers)]


async def _close(client: Any, connections: Any, tasks: Collection[asyncio.Task[Any]]) -> None:  # noqa: ANN401 - aiokafka ships no types
    """Stop a client, by force where it can't.

    Without a broker aiokafka's own `stop` waits for ever (producer) or gives up half-way (consumer), so
    the tasks that it leaves are ended here, and its connections closed.
    """
    stopping = asyncio.create_task(client.stop())
    await asyncio.wait([stopping], timeout=_CLOSE_SECONDS)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is None:
        return
    left = [stopping, *tasks]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await connections.close()


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
