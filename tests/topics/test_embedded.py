from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from outcrop.topics import EmbeddedBroker, TopicsError
from outcrop.topics.embedded import EMBEDDED_PARTITIONS

PRODUCE = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("from.outside", b"hello", key=b"t", partition=2)
sys.exit(producer.flush(20))
"""


def test_other_processes_reach_it() -> None:
    with EmbeddedBroker() as broker:
        subprocess.run([sys.executable, "-c", PRODUCE, broker.bootstrap], check=True, timeout=60)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        try:
            consumer.assign([TopicPartition("from.outside", 2, 0)])
            message = consumer.poll(20)
            partitions = consumer.list_topics("from.outside", timeout=20).topics["from.outside"].partitions
        finally:
            consumer.close()
    assert message is not None
    assert message.value() == b"hello"
    assert len(partitions) == EMBEDDED_PARTITIONS


def test_start_and_close_are_idempotent() -> None:
    broker = EmbeddedBroker()
    broker.start()
    address = broker.bootstrap
    broker.start()
    assert broker.bootstrap == address
    broker.close()
    broker.close()
    with pytest.raises(TopicsError, match="isn't running"):
        _ = broker.bootstrap


def test_two_live_side_by_side() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap != other.bootstrap


def test_topics_made_beforehand_are_there_for_whoever_asks_first() -> None:
    with EmbeddedBroker() as broker:
        broker.make(["early"])
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        try:
            found = consumer.list_topics("early", timeout=20).topics["early"]
        finally:
            consumer.close()
    assert found.error is None
    assert len(found.partitions) == EMBEDDED_PARTITIONS
