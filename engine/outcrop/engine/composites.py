"""Nodes made of other work: groups of branches, maps over items, subgraphs. Plain values.

Built by `graph`, checked by `validate`, run by `groups`, `maps` and `subgraphs`. Each is one
node of its level, whose policies (retry, timeout, fallback) are its `NodeSpec`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .compiled import CompiledGraph
    from .node import NodeSpec

S = TypeVar("S")


class JoinPolicy(StrEnum):
    """Which branches or items decide that the work is done."""

    ALL = "all"
    FIRST_SUCCESS = "first_success"
    FIRST_MATCHING = "first_matching"
    QUORUM = "quorum"


@dataclass(frozen=True, slots=True)
class Join:
    """When a group or a map is done: see `all_of`, `first_success`, `first_matching`, `quorum`."""

    policy: JoinPolicy = JoinPolicy.ALL
    count: int | None = None
    matches: Callable[[Any], bool] | None = None


def all_of() -> Join:
    """Every branch has to succeed."""
    return Join()


def first_success() -> Join:
    """The first branch that succeeds decides; the others are told to stop."""
    return Join(JoinPolicy.FIRST_SUCCESS)


def first_matching(matches: Callable[[Any], bool]) -> Join:
    """The first branch whose state `matches` decides; asked once of each that succeeds."""
    return Join(JoinPolicy.FIRST_MATCHING, matches=matches)


def quorum(count: int) -> Join:
    """The first `count` branches that succeed decide."""
    return Join(JoinPolicy.QUORUM, count=count)


class Partial(StrEnum):
    """What becomes of a group or a map whose join can't be met any more."""

    FAIL_GROUP = "fail_group"  # it fails
    KEEP_SUCCEEDED = "keep_succeeded"  # everything runs, and what succeeded is reduced, if anything did


class OutcomeStatus(StrEnum):
    """How a branch or an item ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class BranchOutcome(Generic[S]):
    """How one branch or item ended: its state when it succeeded, the error's text when it failed."""

    name: str
    status: OutcomeStatus
    state: S | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Joined(Generic[S]):
    """How the whole ended: every outcome in the order declared, and who decided, in the order they did."""

    outcomes: tuple[BranchOutcome[S], ...]
    join_met: bool
    deciding: tuple[str, ...]

    @property
    def succeeded(self) -> list[S]:
        """The states of those that succeeded, in the order declared."""
        return [
            cast("S", outcome.state) for outcome in self.outcomes if outcome.status is OutcomeStatus.SUCCEEDED
        ]


Reduce: TypeAlias = Callable[[Any, "Sequence[Any]"], Any]
"""reduce(entry_state, states): edits the entry state or returns the new one."""

ReduceOutcomes: TypeAlias = Callable[[Any, "Joined[Any]"], Any]
"""The same, told of every outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """How branches or items run beside each other; `timeout` is in seconds, for each of them.

    Exactly one of `reduce` and `reduce_outcomes` is given. `keep_finished` saves each result
    as it is finished, so that a recovery runs only the others.
    """

    reduce: Reduce | None = None
    reduce_outcomes: ReduceOutcomes | None = None
    join: Join = field(default_factory=Join)
    partial: Partial = Partial.FAIL_GROUP
    max_concurrency: int | None = None
    timeout: float | None = None
    cancel_siblings: bool = True
    keep_finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Generic[S]):
    """Branches that start from the same state, one `NodeSpec` each, in the order declared.

    A branch's own retry and fallback are the group's; its `NodeSpec` has none.
    """

    branches: tuple[NodeSpec[S], ...]
    fan_out: FanOut
    branch_metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict["str", "Mapping[str, str]"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(Generic[S]):
    """One run of `child` for each item of the state; `input` is asked when the item starts."""

    items: Callable[[S], Sequence[Any]]
    key: Callable[[Any], str]
    input: Callable[[S, Any], Any]
    child: CompiledGraph[Any]
    fan_out: FanOut
    max_items: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph(Generic[S]):
    """A child graph run as one node; `output` gets the parent's state as the node started with it."""

    child: CompiledGraph[Any]
    input: Callable[[S], Any]
    output: Callable[[S, Any], S | None]


Composite: TypeAlias = "Group[S] | Map[S] | Subgraph[S]"


def streams(composite: Composite[Any] | None) -> bool:
    """Whether something inside emits chunks."""
    match composite:
        case Group(branches=branches):
            return any(branch.streams for branch in branches)
        case Map(child=child) | Subgraph(child=child):
            return bool(child.streaming)
        case None:
            return False
