"""What the worker asks of the brokers beside reading and writing: which topics there are.

Blocking calls of librdkafka's admin client, each on a thread, each bounded.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from typing import TYPE_CHECKING, Any, Final

from outcrop.topics.errors import BrokerUnreachable, MissingExtra, TopicMissing, TopicRefused

from .client_config import common_config
from .errors import TopicsMissing

try:
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient
except ImportError:  # pragma: no cover - the packaging tests install without extras
    raise MissingExtra("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .settings import Settings

_TIMEOUT: Final = 10.0
_ATTEMPTS: Final = 3


class Cluster:
    """The brokers, as one set of settings reaches them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = AdminClient(common_config(settings) | {"log_level": 0})  # what fails is raised

    async def check(self, topics: Sequence[str]) -> None:
        """Raise `BrokerUnreachable`, or `TopicsMissing` with every topic that isn't there."""
        missing: list[str] = []
        for topic in topics:
            try:
                await self.partition_count(topic)
            except TopicMissing:
                missing.append(topic)
        if missing:
            raise TopicsMissing(missing)

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has now; raises `BrokerUnreachable` or `TopicMissing`."""
        for attempt in range(_ATTEMPTS):
            count = await asyncio.to_thread(self._count, topic)
            if count:
                return count
            if not self._settings.auto_create:
                break
            await asyncio.sleep(0.1 * (attempt + 1))  # the broker is making it
        raise TopicMissing(topic)

    async def topic_id(self, topic: str) -> str:
        """The topic's UUID; its name and its broker's address where topics come and go with the broker.

        Rows outlive an embedded broker, and the offsets of the next one start anew: under one ID for
        both, the next one's commands would seem to have been passed long ago.
        """
        if self._settings.auto_create:
            return f"{topic}@{self._settings.bootstrap}"
        return await asyncio.to_thread(self._describe, topic)

    def _count(self, topic: str) -> int:
        try:
            found = self._admin.list_topics(topic, timeout=_TIMEOUT).topics.get(topic)
        except KafkaException as error:
            raise BrokerUnreachable(self._settings.bootstrap, _reason(error)) from None
        return 0 if found is None or found.error is not None else len(found.partitions)

    def _describe(self, topic: str) -> str:
        admin: Any = self._admin  # the stub doesn't say what the futures bring
        future = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT)[topic]
        try:
            text = str(future.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(topic) from None
            raise TopicRefused(topic, _reason(error)) from None
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")))


def _reason(error: KafkaException) -> str:
    return str(error.args[0].str())
