"""What happens in runs, on the wire: one message for each fact, and for each token that a node streams.

Owns the message, its JSON and its types. Whoever reads events ignores fields and types that it
doesn't know, so that workers may be newer; events are for watching, and nothing may depend on one.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from .codec import problems
from .errors import BadEvent
from .instants import Instant  # noqa: TC001 - pydantic needs it at run time
from .messages import VERSION, ThreadId


class EventType(StrEnum):
    """The types of this version; what each has in `data` is said in topics/README.md."""

    RUN_STARTED = "run_started"
    RESUMED = "resumed"
    RECOVERED = "recovered"
    NODE_STARTED = "node_started"
    NODE_COMPLETED = "node_completed"
    RETRY_SCHEDULED = "retry_scheduled"
    BRANCH_STARTED = "branch_started"
    BRANCH_COMPLETED = "branch_completed"
    MAP_EXPANDED = "map_expanded"
    JOIN_DECIDED = "join_decided"
    CHECKPOINT_SAVED = "checkpoint_saved"
    INTERRUPTED_AT = "interrupted_at"
    HOP_LIMIT_EXCEEDED = "hop_limit_exceeded"
    LEASE_ACQUIRED = "lease_acquired"
    LEASE_LOST = "lease_lost"
    RUN_COMPLETED = "run_completed"
    TOKEN = "token"  # noqa: S105 - no password


class Event(BaseModel):
    """One fact of a run, or one token of a streaming node.

    `sequence` counts the run's facts from 1, and its tokens for themselves: where a number is
    missing, the worker had to leave it out. `node` is the node's path, `Work/Draft`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    type: str
    thread_id: ThreadId
    run_id: str
    sequence: int
    at: Instant
    node: str | None = None
    attempt: int | None = None
    data: dict[str, JsonValue] = Field(default_factory=dict)


def encode_event(event: Event) -> bytes:
    """The event's JSON, without the optional fields that it doesn't have."""
    return event.model_dump_json(exclude_none=True).encode()


def decode_event(value: bytes | None) -> Event:
    """The event that a message holds; raises `BadEvent`, and nothing else, for what is none."""
    try:
        return Event.model_validate_json(value or b"")
    except ValidationError as error:
        raise BadEvent(f"not an event: {problems(error)}") from None
