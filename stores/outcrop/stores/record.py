"""The checkpoint record: what one row of a thread's log says.

Owns the field names, statuses and derived facts (state, updated_at, levels) that every
engine of the Strata format shares. Knows no store, no JSON text layout (see `codec`) and
no graph. Records are immutable: a new fact is a new row.

Times are text, `YYYY-MM-DDTHH:MM:SSZ`, because the format orders them as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class Status(StrEnum):
    """What a checkpoint says its thread was doing when it was written."""

    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    ENDED = "ended"
    RUNNING = "running"


class ThreadState(StrEnum):
    """Where a thread stands: its latest status, or `resumed` once a resume stamped it."""

    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RESUMED = "resumed"
    COMPLETED = "completed"
    ENDED = "ended"
    RUNNING = "running"


class WaitKind(StrEnum):
    """Who or what answers an interrupted thread."""

    HUMAN = "human"
    EVENT = "event"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Wait:
    """What an interrupted level waits for; `wake_at` is when it is due, if ever."""

    kind: WaitKind
    event_type: str | None = None
    wake_at: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer in effect at one level, until the next boundary is answered."""

    boundary: str
    is_approved: bool
    reviewer: str
    overrides: Mapping[str, Json]
    decided_at: str


@dataclass(frozen=True, slots=True)
class GraphIdentity:
    """The ID and version of the graph that wrote a level."""

    id: str
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One row of a thread's log, without its sequence (the store assigns that).

    `frozen_state` is JSON *text*: it is written once, when a node commits, and parsed
    only by whoever thaws it, so listing and storing never read a state.
    """

    schema_version: str
    thread_id: str
    status: Status
    suspended_node: str | None
    next_node: str | None
    frozen_state: str
    metadata: Mapping[str, str] | None
    created_at: str
    resumed_at: str | None = None
    nested: Checkpoint | None = None
    decision: Decision | None = None
    wait: Wait | None = None
    graph: GraphIdentity | None = None

    @property
    def state(self) -> ThreadState:
        """The state of a thread whose latest row this is."""
        return ThreadState.RESUMED if self.resumed_at is not None else ThreadState(self.status.value)

    @property
    def updated_at(self) -> str:
        """When a thread whose latest row this is was last updated."""
        return self.created_at if self.resumed_at is None else self.resumed_at

    def levels(self) -> Iterator[Checkpoint]:
        """This level and every nested one, outermost first."""
        level: Checkpoint | None = self
        while level is not None:
            yield level
            level = level.nested

    @property
    def innermost(self) -> Checkpoint:
        """The deepest level, the one that waits, failed or runs."""
        *_, last = self.levels()
        return last

    @property
    def waiting_at(self) -> tuple[str, ...]:
        """The suspended node of each level that has one, outermost first."""
        nodes = (level.suspended_node for level in self.levels())
        return tuple(node for node in nodes if node is not None)


@dataclass(frozen=True, slots=True)
class Row:
    """A checkpoint at its place in its thread's log; sequences count from 0."""

    sequence: int
    checkpoint: Checkpoint


class NoteKind(StrEnum):
    """What a note beside a row holds."""

    ANSWER = "answer"  # what the node at `path` has been answered so far
    FINISHED = "finished"  # the result of the branch or item at `path`
    PARENT = "parent"  # the sequence of the row that this one hangs on; `path` is empty
    QUESTION = "question"  # what the node at `path` asks


@dataclass(frozen=True, slots=True)
class Note:
    """Something of ours that belongs to one row and is no part of the format.

    A row has one note at most of a kind and a path (`Work/Ask`, `checks/score`). `value` is
    JSON text. Other engines of the format neither see notes nor carry them on.
    """

    kind: NoteKind
    path: str
    value: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim on a thread: `token` fences saves, `expires_at` is on the store's clock."""

    thread_id: str
    owner: str
    token: int
    expires_at: datetime
