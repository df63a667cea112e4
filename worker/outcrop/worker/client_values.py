"""Between the client library's values and ours: messages, partitions, offsets, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from outcrop.topics.errors import MissingExtra

from .ports import Message, Partition

try:
    from confluent_kafka import TopicPartition
except ImportError:  # pragma: no cover - the packaging tests install without extras
    raise MissingExtra("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka import KafkaException
    from confluent_kafka import Message as KafkaMessage

    from .ports import Position


def received(message: KafkaMessage) -> Message:
    """A fetched message."""
    where = Partition(message.topic() or "", message.partition() or 0)
    return Message(where, message.offset() or 0, message.key(), message.value(), _headers(message))


def _headers(message: KafkaMessage) -> tuple[tuple[str, bytes], ...]:
    """A message's headers; none where a name isn't UTF-8, which the client can't tell."""
    try:
        told = cast("list[tuple[str, bytes | None]]", message.headers() or [])  # the stub allows more
    except (SystemError, UnicodeDecodeError):
        return ()
    return tuple((name, value or b"") for name, value in told)


def client_partition(partition: Partition) -> TopicPartition:
    """A partition."""
    return TopicPartition(partition.topic, partition.number)


def client_partitions(partitions: Collection[Partition]) -> list[TopicPartition]:
    """Partitions."""
    return [client_partition(partition) for partition in partitions]


def client_offsets(positions: Mapping[Partition, Position]) -> list[TopicPartition]:
    """Positions, metadata and all."""
    return [
        TopicPartition(partition.topic, partition.number, position.offset, position.metadata)
        for partition, position in positions.items()
    ]


def reason_of(error: KafkaException) -> str:
    """What the client says about an error."""
    return str(error.args[0].str())
