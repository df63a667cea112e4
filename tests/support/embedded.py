"""A stand-in for a worker, on any broker: it takes commands and publishes outcomes as told.

For tests of the client's side. The broker is `outcrop.topics.EmbeddedBroker` or a real one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiokafka import (  # type: ignore[import-untyped]  # it ships no types
    AIOKafkaConsumer,
    AIOKafkaProducer,
    TopicPartition,
)

from outcrop.topics import Outcome, OutcomeStatus, TopicNames, decode_command, encode_outcome
from outcrop.topics.headers import outcome_headers
from outcrop.topics.keys import encode_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from outcrop.topics.messages import AnyCommand

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def outcome_of(
    command_id: UUID, thread_id: str = "t", status: OutcomeStatus = OutcomeStatus.COMPLETED, **fields: Any
) -> Outcome:
    """An outcome as a worker would write it."""
    return Outcome.model_validate(
        {
            "command_id": command_id,
            "command_type": "run",
            "thread_id": thread_id,
            "status": status,
            "worker": "test/1",
            "started_at": WHEN,
            "finished_at": WHEN,
            **fields,
        }
    )


@dataclass
class StandIn:
    """Reads what clients sent and answers it."""

    names: TopicNames
    producer: AIOKafkaProducer
    consumer: AIOKafkaConsumer

    async def next_record(self) -> Any:
        """The next raw record of the command topic."""
        return await self.consumer.getone()

    async def next_command(self) -> AnyCommand:
        """The next command."""
        record = await self.next_record()
        return decode_command(record.key, record.value, record.headers)

    async def publish(self, outcome: Outcome) -> None:
        """Publish an outcome."""
        await self.publish_raw(encode_key(outcome.thread_id), encode_outcome(outcome))

    async def publish_to(self, topic: str, key: bytes, value: bytes) -> None:
        """Publish any bytes on any topic."""
        await self.producer.send_and_wait(topic, value, key=key)

    async def publish_raw(self, key: bytes, value: bytes) -> None:
        """Publish any bytes on the outcome topic."""
        await self.producer.send_and_wait(
            self.names.outcomes, value, key=key, headers=list(outcome_headers())
        )


@asynccontextmanager
async def stand_in(bootstrap: str, names: TopicNames) -> AsyncIterator[StandIn]:
    """A stand-in worker that reads commands from the beginning."""
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        numbers = await producer.partitions_for(names.commands)
        await producer.partitions_for(names.outcomes)
        consumer.assign([TopicPartition(names.commands, number) for number in numbers])
        yield StandIn(names, producer, consumer)
