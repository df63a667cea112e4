"""The outbox on librdkafka's idempotent producer.

Delivery reports come on a thread of the outbox's own and become futures of the loop, so
publishing never blocks the loop and never waits for the consumer.
"""

from __future__ import annotations

import asyncio
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from outcrop.topics.errors import MissingExtra

from .client_config import producer_config
from .errors import PublishFailed, Undelivered
from .logs import client_logger

try:
    from confluent_kafka import KafkaError, KafkaException, Producer
except ImportError:  # pragma: no cover - the packaging tests install without extras
    raise MissingExtra("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message as KafkaMessage

    from .ports import Record
    from .settings import Settings

_POLL: Final = 0.1
_FLUSH: Final = 10.0
_NEVER: Final = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_ARG,  # noqa: SLF001 - how the client names its own errors
    )
)
_NO_SUCH_TOPIC: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the same
    )
)
"""For ever where a command's `reply_to` named the topic; our own topics are worth waiting for."""


class KafkaOutbox:
    """Publishes records; an `Outbox`. Made and used on the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._producer = Producer(producer_config(settings), logger=client_logger())
        self._own = frozenset((settings.commands_topic, settings.outcomes_topic, settings.dead_topic))
        self._loop = asyncio.get_running_loop()
        self._closing = Event()
        self._thread = Thread(target=self._poll, name="outcrop-outbox", daemon=True)
        self._thread.start()

    async def publish(self, records: Sequence[Record]) -> None:
        """Produce all at once and wait for every report."""
        reports = [self._produce(record) for record in records]
        undelivered = [failure for report in reports if (failure := await report) is not None]
        if undelivered:
            raise PublishFailed(undelivered)

    async def close(self) -> None:
        """Flush for a bounded time, then end the thread; idempotent."""
        if not self._closing.is_set():
            await asyncio.to_thread(self._producer.flush, _FLUSH)
            self._closing.set()
            await asyncio.to_thread(self._thread.join)

    def _produce(self, record: Record) -> asyncio.Future[Undelivered | None]:
        reported: asyncio.Future[Undelivered | None] = self._loop.create_future()

        def report(error: KafkaError | None, _: KafkaMessage) -> None:
            failure = None if error is None else self._undelivered(record, error)
            self._tell(reported, failure)

        try:
            self._producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=report,
            )
        except BufferError:
            reported.set_result(Undelivered(record, "the producer's queue is full", permanent=False))
        except KafkaException as error:
            reported.set_result(self._undelivered(record, error.args[0]))
        except ValueError as error:  # a null character in the name of the topic
            reported.set_result(Undelivered(record, str(error), permanent=True))
        return reported

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL)

    def _tell(self, reported: asyncio.Future[Undelivered | None], failure: Undelivered | None) -> None:
        def settle() -> None:
            if not reported.done():
                reported.set_result(failure)

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def _undelivered(self, record: Record, error: KafkaError) -> Undelivered:
        code = error.code()
        permanent = code in _NEVER or (code in _NO_SUCH_TOPIC and record.topic not in self._own)
        return Undelivered(record, str(error.str()), permanent=permanent)
