"""What the worker needs of Kafka, as ports: the log it reads and the records it writes.

The consumer's poll thread sits behind `CommandLog`, so that a simulation can take its
place. Every method is called on the worker's event loop, and every listener callback
arrives there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message as fetched."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One message to produce."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A committed position: everything below `offset` is done, and what `metadata` encodes above it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that came to this member, with what their last owner committed (None: nothing)."""

    positions: Mapping[Partition, Position | None] = field(
        default_factory=dict["Partition", "Position | None"]
    )


class LogListener(Protocol):
    """What the worker does when the log speaks."""

    def on_assigned(self, assigned: Assigned) -> None:
        """Partitions came; messages of theirs follow."""
        ...

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Messages came, in offset order within each partition."""
        ...

    async def on_revoked(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        """Partitions are about to go: hand over, and say what to commit before they do.

        Bounded by the worker's handover timeout; the log keeps the membership meanwhile.
        """
        ...

    def on_lost(self, partitions: Collection[Partition]) -> None:
        """Partitions are gone already: commit nothing of theirs."""
        ...

    def on_failed(self, error: Exception) -> None:
        """The log can't go on; the worker must stop."""
        ...


class CommandLog(Protocol):
    """The command topics as one group member reads them."""

    async def start(self, listener: LogListener) -> None:
        """Join the group and poll until `close`."""
        ...

    def pause(self, partitions: Collection[Partition]) -> None:
        """Stop fetching from partitions; those not owned are ignored."""
        ...

    def resume(self, partitions: Collection[Partition]) -> None:
        """Fetch from paused partitions again."""
        ...

    async def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Commit positions; raises `CommitRefused` where the membership is gone."""
        ...

    async def topic_id(self, topic: str) -> str:
        """The topic's ID (its UUID; name and broker where topics come and go with an embedded one)."""
        ...

    async def close(self) -> None:
        """Leave the group; `on_revoked` is called for what is still owned."""
        ...


class Outbox(Protocol):
    """Where outcomes, dead letters and the drivers' commands go."""

    async def publish(self, records: Sequence[Record]) -> None:
        """Return when the brokers have all of `records`; idempotent against client retries.

        Raises `PublishFailed` for what can't be delivered (a record over the limit, an unknown topic).
        """
        ...

    async def close(self) -> None:
        """Flush and close."""
        ...
