"""When a group or a map is decided, by whom, and what its failure says. Pure.

Told of one end after the other, a `Tally` answers what is to be done next (engine.md 4.1). A
member that asks a question has not ended: it may still succeed once it is answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from .composites import Join, JoinPolicy, Partial
from .errors import Fatal, NodeError, Transient

if TYPE_CHECKING:
    from collections.abc import Sequence


class Course(Enum):
    """What is to be done after an end."""

    GO_ON = auto()  # undecided: start more as slots free
    MET = auto()  # decided: stop the rest
    FAIL_NOW = auto()  # can't be met any more: stop the rest
    WIND_UP = auto()  # can't be met any more: start no more, let the rest end


@dataclass(frozen=True, slots=True)
class Failure:
    """A member's failure."""

    message: str
    is_fatal: bool
    hint: float | None = None


@dataclass(slots=True)
class Tally:
    """Who of `total` members has ended, and what that means for the join."""

    join: Join
    total: int
    partial: Partial = Partial.FAIL_GROUP
    cancel_siblings: bool = True
    deciding: list[str] = field(default_factory=list[str])
    _ended: int = 0
    _succeeded: int = 0

    @property
    def needed(self) -> int:
        """How many have to count."""
        match self.join.policy:
            case JoinPolicy.ALL:
                return self.total
            case JoinPolicy.QUORUM:
                return self.join.count or 0
            case _:
                return 1

    @property
    def is_met(self) -> bool:
        """Whether enough counted."""
        return len(self.deciding) >= self.needed

    @property
    def is_lost(self) -> bool:
        """Whether it can't be met any more, whatever the rest does."""
        return len(self.deciding) + self.total - self._ended < self.needed

    def succeeded(self, name: str, *, matches: bool = True) -> Course:
        """A member succeeded; under `first_matching`, `matches` is what the predicate said."""
        self._ended += 1
        self._succeeded += 1
        if matches:
            self.deciding.append(name)
        return self.course

    def failed(self) -> Course:
        """A member failed, or timed out."""
        self._ended += 1
        return self.course

    @property
    def course(self) -> Course:
        """What is to be done now."""
        if self.is_met:
            return Course.MET
        if not self.is_lost or self.partial is Partial.KEEP_SUCCEEDED:
            return Course.GO_ON
        return Course.FAIL_NOW if self.cancel_siblings else Course.WIND_UP

    @property
    def reduces(self) -> bool:
        """Whether what there is in the end is reduced, rather than failed."""
        return self.is_met or (self.partial is Partial.KEEP_SUCCEEDED and self._succeeded > 0)

    def error(self, failures: Sequence[tuple[str, Failure]], one: str, many: str) -> NodeError:
        """The failure of the whole; `failures` by name, in the order declared."""
        parts = list[str]()
        if self.join.policy is JoinPolicy.FIRST_MATCHING:
            parts.append(f"no {one} matched the join ({self._succeeded} succeeded)")
        if self.join.policy is JoinPolicy.QUORUM:
            parts.append(
                f"quorum of {self.needed} not reached: {self._succeeded} of {self.total} {many} succeeded"
            )
        parts.extend(f"{one} '{name}': {failure.message}" for name, failure in failures)
        message = "; ".join(parts) or f"no {many} to run"
        fatal = sum(failure.is_fatal for _, failure in failures)
        if self.total - fatal < self.needed:
            return Fatal(message)
        hints = [failure.hint for _, failure in failures if failure.hint is not None]
        return Transient(message, retry_after=max(hints, default=None))
