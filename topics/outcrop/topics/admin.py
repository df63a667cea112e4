"""Makes topics and tells how existing ones differ, through confluent-kafka.

The only module that administers a broker. It never changes a topic that exists: a drift
is reported, for a person to decide.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from .errors import BrokerUnreachable, MissingExtra, TopicRefused
from .provisioning import CreateReport, Difference, FoundTopic, compare

try:
    import confluent_kafka.admin
    from confluent_kafka import KafkaError, KafkaException
except ImportError:
    raise MissingExtra("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .provisioning import TopicSettings, TopicSpec

_KAFKA: Final[Any] = confluent_kafka.admin
"""Untyped on purpose: the library exports no types for half of what is used here."""

_SECONDS: Final = 15.0
_QUIET: Final = 2
"""Errors are raised; librdkafka would write each attempt to stderr too."""

_LOOK_AGAIN_SECONDS: Final = 0.05
_BROKER_DEFAULT: Final = -1


class TopicAdmin:
    """Topic administration of one cluster; `security` is passed to librdkafka as it is."""

    def __init__(
        self, bootstrap: str, *, security: Mapping[str, str] | None = None, timeout: float = _SECONDS
    ) -> None:
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._client: Any = _KAFKA.AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": _QUIET, **(security or {})}
        )

    async def create_topics(self, settings: TopicSettings) -> CreateReport:
        """Make the topics that are missing, and report the others.

        Raises `BrokerUnreachable`, and `TopicRefused` for the first topic that the broker won't make.
        """
        specs = settings.specs()
        found = await self._find(specs)
        missing = [spec for spec in specs if spec.name not in found]
        created = [spec.name for spec in missing if await self._create(spec)]
        await self._await_visible([spec.name for spec in missing])
        if len(created) < len(missing):  # another process made some meanwhile
            found = await self._find(specs)
        existing = [spec for spec in specs if spec.name not in created]
        differences = [found_one for spec in existing for found_one in compare(spec, found.get(spec.name))]
        return CreateReport(created, [spec.name for spec in existing], differences)

    async def check_topics(self, settings: TopicSettings) -> list[Difference]:
        """List how the broker's topics differ from the settings; raises like `create_topics`."""
        specs = settings.specs()
        found = await self._find(specs)
        return [difference for spec in specs for difference in compare(spec, found.get(spec.name))]

    async def _create(self, spec: TopicSpec) -> bool:
        replication = _BROKER_DEFAULT if spec.replication is None else spec.replication
        topic = _KAFKA.NewTopic(spec.name, spec.partitions, replication, config=dict(spec.config))
        future = self._client.create_topics([topic], request_timeout=self._timeout)[spec.name]
        try:
            await asyncio.wrap_future(future)
        except KafkaException as error:
            cause = _cause(error)
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise TopicRefused(spec.name, cause.str()) from error
        return True

    async def _find(self, specs: Sequence[TopicSpec]) -> dict[str, FoundTopic]:
        """Describe those of the topics that exist."""
        topics = await self._topics()
        found: dict[str, FoundTopic] = {}
        for name in [spec.name for spec in specs if spec.name in topics]:
            partitions = topics[name].partitions
            replicas = min((len(partition.replicas) for partition in partitions.values()), default=0)
            found[name] = FoundTopic(name, len(partitions), replicas, await self._config(name))
        return found

    async def _await_visible(self, names: Sequence[str]) -> None:
        """Wait for new topics to reach the metadata: what starts right after must find them."""
        missing = set(names)
        try:
            async with asyncio.timeout(self._timeout):
                while missing := missing.difference(await self._topics()):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except TimeoutError as error:
            detail = f"it was made, but the broker doesn't list it within {self._timeout:g} s"
            raise TopicRefused(min(missing), detail) from error

    async def _topics(self) -> Mapping[str, Any]:
        try:
            metadata = await asyncio.to_thread(self._client.list_topics, timeout=self._timeout)
        except KafkaException as error:
            raise BrokerUnreachable(self._bootstrap, _cause(error).str()) from error
        return cast("Mapping[str, Any]", metadata.topics)

    async def _config(self, name: str) -> dict[str, str]:
        resource = _KAFKA.ConfigResource(_KAFKA.ResourceType.TOPIC, name)
        future = self._client.describe_configs([resource], request_timeout=self._timeout)[resource]
        try:
            entries = await asyncio.wrap_future(future)
        except KafkaException as error:
            raise TopicRefused(name, _cause(error).str()) from error
        return {entry.name: entry.value for entry in entries.values() if entry.value is not None}


def _cause(error: KafkaException) -> KafkaError:
    cause = error.args[0]
    assert isinstance(cause, KafkaError)  # noqa: S101 - confluent-kafka always puts one there
    return cause
