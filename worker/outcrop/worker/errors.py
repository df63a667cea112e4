"""What goes wrong around the log.

    OutcropError
    └── WorkerError
        ├── SettingsInvalid    the settings are off; says which and why
        ├── GraphsNotFound     MODULE:NAME doesn't lead to compiled graphs
        ├── TopicsMissing      topics that the worker needs don't exist
        ├── OffsetLost         a partition's committed offset isn't in the log any more
        ├── LogFailed          the consumer can't go on
        ├── CommitRefused      the membership is gone; the messages come again elsewhere
        └── PublishFailed      records that the brokers don't have

Messages never carry a payload, a state or a credential.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from outcrop.stores.errors import OutcropError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ports import Partition, Record


class WorkerError(OutcropError):
    """The worker can't do what it was asked to."""

    code: ClassVar[str] = "OUTCROP_WORKER"


class SettingsInvalid(WorkerError):
    """A setting is missing, unknown or out of range."""

    code: ClassVar[str] = "OUTCROP_WORKER_SETTINGS"


class GraphsNotFound(WorkerError):
    """`MODULE:NAME` doesn't lead to compiled graphs."""

    code: ClassVar[str] = "OUTCROP_WORKER_GRAPHS"


class TopicsMissing(WorkerError):
    """Topics that the worker reads or writes don't exist; all of them are named at once."""

    code: ClassVar[str] = "OUTCROP_WORKER_TOPICS"

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(f"the broker has no topic {', '.join(topics)}: make it with `outcrop topics create`")
        self.topics = tuple(topics)


class OffsetLost(WorkerError):
    """The log no longer has what the group was to read next: commands may be lost."""

    code: ClassVar[str] = "OUTCROP_WORKER_OFFSET_LOST"

    def __init__(self, partition: Partition, detail: str) -> None:
        super().__init__(
            f"the group's place in {partition.topic}/{partition.number} is lost ({detail}): commands may have"
            " been deleted unread; find out which, then set the group's offset with kafka-consumer-groups"
        )
        self.partition = partition


class LogFailed(WorkerError):
    """The consumer failed for good."""

    code: ClassVar[str] = "OUTCROP_WORKER_LOG"


class CommitRefused(WorkerError):
    """The broker refused a commit: this member doesn't own the partitions any more."""

    code: ClassVar[str] = "OUTCROP_WORKER_COMMIT"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A record that the brokers don't have; `permanent` when trying again can't help."""

    record: Record
    reason: str
    permanent: bool


class PublishFailed(WorkerError):
    """Some records weren't delivered; the others of the same call were."""

    code: ClassVar[str] = "OUTCROP_WORKER_PUBLISH"

    def __init__(self, undelivered: Sequence[Undelivered]) -> None:
        first = undelivered[0]
        super().__init__(f"{len(undelivered)} records not delivered; to {first.record.topic}: {first.reason}")
        self.undelivered = tuple(undelivered)
