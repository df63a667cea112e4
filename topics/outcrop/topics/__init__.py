"""Commands and outcomes of threads on Kafka: messages, keys, topics and the client.

Importing this needs no Kafka library; the client, the embedded broker and the topic administration ask
for `outcrop[kafka]` when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .codec import decode_command, decode_outcome, encode_command, encode_outcome
from .embedded import EmbeddedBroker
from .errors import (
    BadCommand,
    BadEvent,
    BadOutcome,
    BrokerUnreachable,
    ClientClosed,
    MessageTooLarge,
    MissingExtra,
    OutcomesLost,
    OutcomeTimeout,
    SendFailed,
    TopicMissing,
    TopicRefused,
    TopicsError,
)
from .events import Event, EventType, decode_event, encode_event
from .messages import (
    Cancel,
    Command,
    CommandType,
    DecisionBody,
    End,
    ErrorBody,
    GraphRef,
    Outcome,
    OutcomeStatus,
    QuestionBody,
    Recover,
    Rerun,
    Resume,
    Run,
    Signal,
    Update,
    WaitBody,
    Wake,
)
from .names import TopicNames
from .partitioner import partition_for

if TYPE_CHECKING:
    from .client import ThreadsClient
    from .handle import Handle

__all__ = [
    "BadCommand",
    "BadEvent",
    "BadOutcome",
    "BrokerUnreachable",
    "Cancel",
    "ClientClosed",
    "Command",
    "CommandType",
    "DecisionBody",
    "EmbeddedBroker",
    "End",
    "ErrorBody",
    "Event",
    "EventType",
    "GraphRef",
    "Handle",
    "MessageTooLarge",
    "MissingExtra",
    "Outcome",
    "OutcomeStatus",
    "OutcomeTimeout",
    "OutcomesLost",
    "QuestionBody",
    "Recover",
    "Rerun",
    "Resume",
    "Run",
    "SendFailed",
    "Signal",
    "ThreadsClient",
    "TopicMissing",
    "TopicNames",
    "TopicRefused",
    "TopicsError",
    "Update",
    "WaitBody",
    "Wake",
    "decode_command",
    "decode_event",
    "decode_outcome",
    "encode_command",
    "encode_event",
    "encode_outcome",
    "partition_for",
]


def __getattr__(name: str) -> object:
    if name in ("Handle", "ThreadsClient"):
        from . import client  # noqa: PLC0415 - it needs aiokafka, which is optional

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
