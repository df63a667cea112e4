"""What the topics of a deployment should look like, and how found ones differ from that.

Pure: knows no broker. Settings of a topic that nobody asks for are the broker's own business and
never a difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from .names import TopicNames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """How to make the topics.

    `replication` None is the broker's default. Commands and outcomes have the same retention: it must
    be shorter than the time that finished threads are kept. `with_events` adds the topic of run events.
    """

    names: TopicNames = field(default_factory=TopicNames)
    partitions: int = 12
    replication: int | None = None
    retention: timedelta = timedelta(days=7)
    dead_retention: timedelta = timedelta(days=30)
    events_retention: timedelta = timedelta(days=1)
    max_message_bytes: int = 1_048_588
    with_events: bool = False

    def __post_init__(self) -> None:
        """Refuse what no broker could make; raises `ValueError`."""
        if self.partitions < 1:
            raise ValueError(f"partitions is {self.partitions}; a topic has at least one")
        if self.replication is not None and self.replication < 1:
            raise ValueError(f"replication is {self.replication}; it is at least 1, or None for the broker's")

    def specs(self) -> tuple[TopicSpec, ...]:
        """The topics to make, one spec each."""
        retentions = {
            self.names.commands: self.retention,
            self.names.outcomes: self.retention,
            self.names.dead: self.dead_retention,
        }
        if self.with_events:
            retentions[self.names.events] = self.events_retention
        return tuple(self._spec(name, retention) for name, retention in retentions.items())

    def _spec(self, name: str, retention: timedelta) -> TopicSpec:
        config = {
            "cleanup.policy": "delete",
            "max.message.bytes": str(self.max_message_bytes),
            "retention.ms": str(retention // _MILLISECOND),
        }
        return TopicSpec(name, self.partitions, self.replication, config)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it should be."""

    name: str
    partitions: int
    replication: int | None
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """One topic as the broker describes it."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting of one topic that isn't as asked for; `found` None: the whole topic is missing."""

    topic: str
    setting: str
    wanted: str
    found: str | None

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.topic}: missing"
        return f"{self.topic}: {self.setting} is {self.found}, wanted {self.wanted}"


@dataclass(frozen=True, slots=True)
class CreateReport:
    """What creating did: topics made, topics that were there, and how those differ."""

    created: Sequence[str]
    existing: Sequence[str]
    differences: Sequence[Difference]


def compare(spec: TopicSpec, found: FoundTopic | None) -> list[Difference]:
    """List how a topic differs from its spec."""
    if found is None:
        return [Difference(spec.name, "topic", "present", None)]
    pairs = [("partitions", str(spec.partitions), str(found.partitions))]
    if spec.replication is not None:
        pairs.append(("replication", str(spec.replication), str(found.replication)))
    pairs += [(name, wanted, found.config.get(name, "unset")) for name, wanted in spec.config.items()]
    return [Difference(spec.name, name, wanted, has) for name, wanted, has in pairs if wanted != has]
