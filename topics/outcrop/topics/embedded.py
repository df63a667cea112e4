"""A Kafka broker inside this process, for demonstrations, development and quick tests.

It is librdkafka's mock cluster on a loopback port: other processes and clients connect to it like to
any broker. It makes topics at their first use, with 4 partitions each, keeps them in memory and bounded, and
guarantees nothing: transactions look accepted and are not. Never for data that matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from .errors import MissingExtra, TopicsError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from confluent_kafka import Producer

EMBEDDED_PARTITIONS: Final = 4
"""How many partitions each topic of the embedded broker has."""

_START_SECONDS: Final = 10.0
_LOOKS: Final = 20


class EmbeddedBroker:
    """A broker that lives from `start` to `close`, or as long as its `with` block."""

    def __init__(self) -> None:
        self._cluster: Producer | None = None
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """The `host:port` to connect to; raises `TopicsError` when the broker isn't running."""
        if self._cluster is None:
            raise TopicsError("the embedded broker isn't running: start it first")
        return self._bootstrap

    def start(self) -> None:
        """Listen on a free loopback port; nothing more when it runs already."""
        if self._cluster is not None:
            return
        try:
            from confluent_kafka import Producer  # noqa: PLC0415 - an optional extra
        except ImportError:
            raise MissingExtra("confluent-kafka", "kafka") from None
        cluster = Producer({"bootstrap.servers": "embedded", "test.mock.num.brokers": 1, "log_level": 3})
        broker = next(iter(cluster.list_topics(timeout=_START_SECONDS).brokers.values()))
        self._bootstrap = f"{broker.host}:{broker.port}"
        self._cluster = cluster

    def make(self, topics: Iterable[str]) -> None:
        """Make topics now instead of at their first use, which fails for whoever is first."""
        if self._cluster is None:
            raise TopicsError("the embedded broker isn't running: start it first")
        for topic in topics:
            for _ in range(_LOOKS):  # asking makes it; a later answer has it
                if self._cluster.list_topics(topic, timeout=_START_SECONDS).topics[topic].error is None:
                    break
            else:
                raise TopicsError(f"the embedded broker doesn't make the topic {topic}")

    def close(self) -> None:
        """Stop listening and forget all messages; idempotent."""
        self._cluster = None  # the mock cluster lives and dies with the producer that made it

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
