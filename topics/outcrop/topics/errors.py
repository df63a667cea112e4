"""What goes wrong with messages, topics and the client.

    OutcropError                     the root of every error of this project
    └── TopicsError
        ├── BadCommand               a message on a command topic that can never be handled
        ├── BadOutcome               a message on the outcome topic that can't be read
        ├── BadEvent                 a message on the events topic that can't be read
        ├── MissingExtra             a library of an optional extra isn't installed
        ├── BrokerUnreachable        no broker answers at the given address
        ├── TopicMissing             a topic isn't there; `outcrop topics create` makes it
        ├── TopicRefused             the broker won't make or describe a topic
        ├── MessageTooLarge          the message is over the client's, the topic's or the broker's limit
        ├── SendFailed               the broker didn't confirm: the command may or may not be there
        ├── OutcomesLost             outcomes or events can't be read any more; open a new client
        ├── OutcomeTimeout           no outcome came in time; it may still come
        └── ClientClosed             the client isn't running

Every error carries a stable `code`. Neither it nor its text holds a state, a payload or a secret.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from outcrop.stores.errors import OutcropError

if TYPE_CHECKING:
    from uuid import UUID


class BadKind(StrEnum):
    """Why a command can't be handled; the values are stable, on the wire and in metrics."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    NO_KEY = "no_key"
    KEY_MISMATCH = "key_mismatch"
    UNSUPPORTED_VERSION = "unsupported_version"
    UNKNOWN_TYPE = "unknown_type"
    INVALID_METADATA = "invalid_metadata"
    TOO_LARGE = "too_large"


class TopicsError(OutcropError):
    """Something is wrong with a message, a topic or the way to the broker."""

    code: ClassVar[str] = "OUTCROP_TOPICS"


class BadCommand(TopicsError):
    """A message that can never be handled as a command.

    `thread_id` and `command_id` are there when the message tells them and they are valid, so
    that its sender can be answered; `message` names the field and the problem, never a whole value.
    """

    code: ClassVar[str] = "OUTCROP_BAD_COMMAND"

    def __init__(
        self, kind: BadKind, message: str, thread_id: str | None = None, command_id: UUID | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.thread_id = thread_id
        self.command_id = command_id


class BadOutcome(TopicsError):
    """A message that can't be read as an outcome; `command_id` is there when the message tells it."""

    code: ClassVar[str] = "OUTCROP_BAD_OUTCOME"

    def __init__(self, message: str, command_id: UUID | None = None) -> None:
        super().__init__(message)
        self.command_id = command_id


class BadEvent(TopicsError):
    """A message that can't be read as an event."""

    code: ClassVar[str] = "OUTCROP_BAD_EVENT"


class MissingExtra(TopicsError):
    """A library of an optional extra isn't installed; the text has the line that installs it."""

    code: ClassVar[str] = "OUTCROP_MISSING_EXTRA"

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed: run pip install 'outcrop[{extra}]'")
        self.library = library
        self.extra = extra


class BrokerUnreachable(TopicsError):
    """No broker answers at the address; nothing was sent."""

    code: ClassVar[str] = "OUTCROP_BROKER_UNREACHABLE"

    def __init__(self, bootstrap: str, detail: str) -> None:
        super().__init__(
            f"no Kafka broker answers at {bootstrap} ({detail}): check that it runs, the address and the "
            "security settings"
        )
        self.bootstrap = bootstrap


class TopicMissing(TopicsError):
    """A topic isn't there and isn't made by itself."""

    code: ClassVar[str] = "OUTCROP_TOPIC_MISSING"

    def __init__(self, topic: str) -> None:
        super().__init__(f"the topic {topic} doesn't exist: make it with `outcrop topics create`")
        self.topic = topic


class TopicRefused(TopicsError):
    """The broker refused to make or to describe a topic."""

    code: ClassVar[str] = "OUTCROP_TOPIC_REFUSED"

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(f"the broker refused the topic {topic}: {detail}")
        self.topic = topic


class MessageTooLarge(TopicsError):
    """A message is over a limit; it was not sent."""

    code: ClassVar[str] = "OUTCROP_MESSAGE_TOO_LARGE"


class SendFailed(TopicsError):
    """The broker didn't confirm a command, which may or may not be there.

    Send it again with the same `command_id`: workers carry one command out once.
    """

    code: ClassVar[str] = "OUTCROP_SEND_FAILED"

    def __init__(self, thread_id: str, command_id: UUID, detail: str) -> None:
        super().__init__(
            f"command {command_id} of thread '{thread_id}' was not confirmed ({detail}): it may or may not "
            "have been written; send it again with the same command_id"
        )
        self.thread_id = thread_id
        self.command_id = command_id


class OutcomesLost(TopicsError):
    """Outcomes or events can't be read any more; commands go on, and a new client can follow them."""

    code: ClassVar[str] = "OUTCROP_OUTCOMES_LOST"

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(f"reading {topic} failed ({detail}): open a new client")
        self.topic = topic


class OutcomeTimeout(TopicsError):
    """No outcome came in time; the command goes on and its handle can be awaited again."""

    code: ClassVar[str] = "OUTCROP_OUTCOME_TIMEOUT"

    def __init__(self, thread_id: str, command_id: UUID, seconds: float) -> None:
        super().__init__(
            f"no outcome of command {command_id} of thread '{thread_id}' within {seconds:g} s: it goes on; "
            "await its handle again, or look at the thread with `outcrop thread inspect`"
        )
        self.thread_id = thread_id
        self.command_id = command_id


class ClientClosed(TopicsError):
    """The client isn't running: use it inside its `async with` block."""

    code: ClassVar[str] = "OUTCROP_CLIENT_CLOSED"
