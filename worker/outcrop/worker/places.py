"""Reads where the group stands in the partitions that a member got.

The blocking part of `starting`. Makes the first commits of a group that is being made, so that
the members that come a moment later don't take their share for a lost one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.topics.errors import MissingExtra

from .client_values import client_offsets, client_partition, client_partitions, reason_of
from .errors import LogFailed
from .ports import Partition, Position
from .starting import Place, is_new_group, starting_point

try:
    from confluent_kafka import KafkaException
except ImportError:  # pragma: no cover - the packaging tests install without extras
    raise MissingExtra("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, TopicPartition

_CALL: Final = 10.0
_ATTEMPTS: Final = 3


def starting_positions(
    consumer: Consumer, topics: Sequence[str], partitions: Sequence[Partition]
) -> dict[Partition, Position]:
    """Where to read on in each partition; raises `OffsetLost` where that can't be known."""
    committed = _committed(consumer, partitions)
    if None not in committed.values():
        return {partition: position for partition, position in committed.items() if position}
    everywhere = _committed(consumer, _all_partitions(consumer, topics))
    new_group = is_new_group(everywhere)
    lows = {p: _low(consumer, p) for p in everywhere}
    if new_group and any(lows.values()):
        first = {partition: Position(low) for partition, low in lows.items()}
        consumer.commit(offsets=client_offsets(first), asynchronous=False)
    return {
        partition: starting_point(partition, Place(position, lows[partition]), new_group=new_group)
        for partition, position in committed.items()
    }


def _low(consumer: Consumer, partition: Partition) -> int:
    return consumer.get_watermark_offsets(client_partition(partition), timeout=_CALL)[0]


def _all_partitions(consumer: Consumer, topics: Sequence[str]) -> list[Partition]:
    found: list[Partition] = []
    for topic in topics:
        metadata = consumer.list_topics(topic, timeout=_CALL).topics[topic]
        found += [Partition(topic, number) for number in metadata.partitions]
    return found


def _committed(consumer: Consumer, partitions: Sequence[Partition]) -> dict[Partition, Position | None]:
    """The group's stable committed positions; tries again where the coordinator is moving."""
    for attempt in range(_ATTEMPTS):
        try:
            found = consumer.committed(client_partitions(partitions), timeout=_CALL)
        except KafkaException as error:
            if attempt + 1 == _ATTEMPTS:
                raise LogFailed(f"the group's offsets can't be read: {reason_of(error)}") from None
            continue
        return {Partition(one.topic, one.partition): _position(one) for one in found}
    raise AssertionError("unreachable")  # pragma: no cover - the loop returns or raises


def _position(found: TopicPartition) -> Position | None:
    if found.error is not None:
        raise LogFailed(f"the group's offset of {found.topic}/{found.partition} can't be read: {found.error}")
    return None if found.offset < 0 else Position(found.offset, found.metadata or "")
