"""One key, one partition, whichever client produced the message."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # it ships no types
from aiokafka.partitioner import DefaultPartitioner  # type: ignore[import-untyped]  # as above
from confluent_kafka import Message, Producer
from hypothesis import given
from hypothesis import strategies as st

from outcrop.topics import EmbeddedBroker, partition_for
from outcrop.topics.admin import TopicAdmin
from outcrop.topics.embedded import EMBEDDED_PARTITIONS
from outcrop.topics.partitioner import LIBRDKAFKA_PARTITIONER, murmur2
from outcrop.topics.provisioning import TopicSettings

if TYPE_CHECKING:
    from outcrop.topics import TopicNames

# From Kafka's own UtilsTest.testMurmur2.
JAVA_HASHES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]
PINNED = [
    (b"", 12, 9),
    (b"21", 4, 0),
    (b"foobar", 4, 2),
    (b"foobar", 12, 6),
    (b"order-1", 4, 2),
    (b"order-1", 12, 10),
    (b"order-1042", 12, 6),
    (b"order-1042", 100, 38),
    ("fil-é-日本".encode(), 12, 7),
    (b"\xff" * 7, 7, 4),
]
KEYS = [b"order-%d" % number for number in range(40)] + ["fil-é-日本".encode(), b"21", b"foobar", b"\xff" * 7]


@pytest.mark.parametrize(("key", "hashed"), JAVA_HASHES)
def test_hash_is_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@pytest.mark.parametrize(("key", "partitions", "partition"), PINNED)
def test_pinned_partitions(key: bytes, partitions: int, partition: int) -> None:
    assert partition_for(key, partitions) == partition


@given(st.binary(max_size=64), st.integers(1, 200))
def test_same_as_aiokafkas_default_partitioner(key: bytes, partitions: int) -> None:
    numbers = list(range(partitions))
    assert partition_for(key, partitions) == DefaultPartitioner()(key, numbers, numbers)


async def _by_aiokafka(bootstrap: str, topic: str) -> dict[bytes, int]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        return {key: (await producer.send_and_wait(topic, b"x", key=key)).partition for key in KEYS}


def _by_librdkafka(bootstrap: str, topic: str, **settings: Any) -> dict[bytes, int]:
    placed: dict[bytes, int] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        placed[key] = partition

    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for key in KEYS:
        producer.produce(topic, b"x", key=key, on_delivery=delivered)
    assert producer.flush(20) == 0
    return placed


async def test_both_clients_place_keys_as_we_do_on_the_embedded_broker(embedded: str) -> None:
    topic = f"placing-{uuid.uuid4()}"
    expected = {key: partition_for(key, EMBEDDED_PARTITIONS) for key in KEYS}
    assert await _by_aiokafka(embedded, topic) == expected
    assert _by_librdkafka(embedded, topic, partitioner=LIBRDKAFKA_PARTITIONER) == expected


def test_librdkafkas_own_default_would_split_threads() -> None:
    """Why the setting is needed; if this fails, librdkafka has changed its default."""
    with EmbeddedBroker() as broker:
        expected = {key: partition_for(key, EMBEDDED_PARTITIONS) for key in KEYS}
        assert _by_librdkafka(broker.bootstrap, "placing") != expected


@pytest.mark.kafka
async def test_both_clients_place_keys_as_we_do_on_a_real_broker(
    kafka_bootstrap: str, names: TopicNames
) -> None:
    await TopicAdmin(kafka_bootstrap).create_topics(TopicSettings(names=names, partitions=12))
    expected = {key: partition_for(key, 12) for key in KEYS}
    assert await _by_aiokafka(kafka_bootstrap, names.commands) == expected
    placed = _by_librdkafka(kafka_bootstrap, names.commands, partitioner=LIBRDKAFKA_PARTITIONER)
    assert placed == expected
