"""What an attempt of a node, and a run of a level, can come to: closed unions. Plain values.

An attempt's end says nothing of retries; a level's end has the level's own row, not saved yet:
the level above nests it in its own, and the outermost is saved by `runner`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from outcrop.stores.record import Checkpoint, Decision

    from .outcome import FailureKind
    from .questions import Question

S = TypeVar("S")


class Cut(Enum):
    """What stopped an attempt from outside: the level's token, or the node's timeout."""

    CANCELLED = auto()
    TIMED_OUT = auto()


@dataclass(slots=True)
class Produced(Generic[S]):
    """The attempt left this state (the handler returned it, or edited its copy into it)."""

    state: S


@dataclass(slots=True)
class Raised:
    """The attempt failed; `nested` is the row of the child that failed inside it."""

    error: Exception
    nested: Checkpoint | None = None


@dataclass(slots=True)
class CutShort:
    """The attempt was stopped; `nested` is the row of the child that was stopped inside it."""

    cut: Cut
    nested: Checkpoint | None = None


@dataclass(slots=True)
class Suspended:
    """The attempt waits for somebody: a child froze in it, or it asks `questions`."""

    nested: Checkpoint | None = None
    questions: tuple[Question, ...] = ()


@dataclass(slots=True)
class Parted:
    """A child stopped after a commit because the run was asked to."""


AttemptEnd: TypeAlias = "Produced[S] | Raised | CutShort | Suspended | Parted"


@dataclass(slots=True, kw_only=True)
class LevelDone:
    """The level ran to its graph's end; `node` committed last."""

    node: str
    state: str
    hops: int
    decision: Decision | None


@dataclass(slots=True, kw_only=True)
class LevelFroze:
    """The level waits; `row` says where and for what."""

    row: Checkpoint
    questions: tuple[Question, ...] = ()


@dataclass(slots=True, kw_only=True)
class LevelFailed:
    """The level failed. Without a `row` there is nothing to resume at it.

    `hint` is in seconds. `hops` and `limit` are there where a hop limit was reached.
    """

    kind: FailureKind
    message: str
    node: str
    row: Checkpoint | None = None
    attempts: int | None = None
    is_fatal: bool = True
    hint: float | None = None
    hops: int | None = None
    limit: int | None = None


@dataclass(slots=True, kw_only=True)
class LevelCancelled:
    """The level's token fired; `row` says where."""

    row: Checkpoint


@dataclass(slots=True, kw_only=True)
class LevelParted:
    """The level stopped after a commit because the run was asked to; its rows are saved."""


LevelEnd: TypeAlias = LevelDone | LevelFroze | LevelFailed | LevelCancelled | LevelParted
