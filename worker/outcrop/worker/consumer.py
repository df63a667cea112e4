"""The command log on librdkafka's consumer.

`KafkaLog` is the event loop's side: it asks the poll thread (see `polling`) for everything
and hands its news to the listener. Nothing here blocks the loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .client_config import consumer_config
from .errors import CommitRefused
from .polling import Poller

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .cluster import Cluster
    from .ports import Assigned, LogListener, Message, Partition, Position
    from .settings import Settings

_GRACE = 5.0


class KafkaLog:
    """One member of the group; a `CommandLog`."""

    def __init__(self, settings: Settings, cluster: Cluster, topics: Sequence[str]) -> None:
        self._settings = settings
        self._cluster = cluster
        self._topics = tuple(topics)
        self._poller: Poller | None = None
        self._stays: dict[Partition, int] = {}

    @property
    def member(self) -> bool:
        """Whether the group has given this member its share, which may be none."""
        return self._poller is not None and self._poller.member

    async def start(self, listener: LogListener) -> None:
        """Join the group."""
        self._poller = Poller(
            consumer_config(self._settings),
            self._topics,
            _Ears(listener, self._stays),
            asyncio.get_running_loop(),
            patience=max(self._settings.handover_timeout, self._settings.shutdown_timeout).total_seconds()
            + _GRACE,
            eager=self._settings.group_protocol == "range",
        )
        self._poller.start()

    def pause(self, partitions: Collection[Partition]) -> None:
        """Stop fetching, at the poll thread's next turn."""
        if self._poller is not None:
            self._poller.pause(frozenset(partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        """Fetch again, at the poll thread's next turn."""
        if self._poller is not None:
            self._poller.resume(frozenset(partitions))

    async def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Commit; the answer comes with the poll thread's turns."""
        if self._poller is None:
            raise CommitRefused("the log isn't started")
        stays = {partition: self._stays.get(partition, 0) for partition in positions}
        await asyncio.wrap_future(self._poller.commit(dict(positions), stays))

    async def topic_id(self, topic: str) -> str:
        """The topic's ID."""
        return await self._cluster.topic_id(topic)

    async def close(self) -> None:
        """Leave the group."""
        if self._poller is not None:
            await self._poller.close()


class _Ears:
    """Passes the poll thread's news on, remembering which stay of each partition is known here."""

    def __init__(self, listener: LogListener, stays: dict[Partition, int]) -> None:
        self._listener = listener
        self._stays = stays

    def assigned(self, assigned: Assigned, stays: Mapping[Partition, int]) -> None:
        self._stays.update(stays)
        self._listener.on_assigned(assigned)

    def messages(self, messages: Sequence[Message]) -> None:
        self._listener.on_messages(messages)

    async def revoked(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        positions = await self._listener.on_revoked(partitions)
        self._forget(partitions)
        return positions

    def lost(self, partitions: Collection[Partition]) -> None:
        self._listener.on_lost(partitions)
        self._forget(partitions)

    def failed(self, error: Exception) -> None:
        self._listener.on_failed(error)

    def _forget(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._stays.pop(partition, None)
