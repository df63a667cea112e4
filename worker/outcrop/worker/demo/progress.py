"""What the shop knows of its threads while they move, from outcomes alone. Pure: time comes in.

An outcome may come twice (that is what at-least-once means); the second changes nothing but
the count of repeats.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from outcrop.topics import OutcomeStatus

if TYPE_CHECKING:
    from uuid import UUID

    from outcrop.topics import Outcome

_RATE_SECONDS = 3.0


class Stage(StrEnum):
    """Where a thread is, as its owner sees it."""

    MOVING = "moving"
    PERSON = "waiting for a person"
    EVENT = "waiting for an event"
    TIMER = "waiting for a timer"
    COMPLETED = "completed"
    ENDED = "ended"
    FAILED = "failed"


FINISHED = frozenset({Stage.COMPLETED, Stage.ENDED, Stage.FAILED})
_WAITS = {"human": Stage.PERSON, "event": Stage.EVENT, "timer": Stage.TIMER}


@dataclass(slots=True)
class Progress:
    """Counts, fed with what was sent and what came back."""

    threads: int
    stages: dict[str, Stage] = field(default_factory=dict[str, Stage])
    by_worker: Counter[str] = field(default_factory=Counter[str])
    latencies: list[float] = field(default_factory=list[float])
    refusals: list[str] = field(default_factory=list[str])
    outcomes: int = 0
    repeats: int = 0
    _sent: dict[UUID, float] = field(default_factory=dict["UUID", float])
    _seen: set[UUID] = field(default_factory=set["UUID"])
    _recent: deque[float] = field(default_factory=deque[float])

    def sent(self, thread_id: str, command_id: UUID, at: float) -> None:
        """A command of the thread goes out at `at` seconds."""
        self._sent[command_id] = at
        self.stages[thread_id] = Stage.MOVING

    def came(self, outcome: Outcome, at: float) -> Stage | None:
        """An outcome came; the thread's new stage, or None for a repeat or a refusal."""
        if outcome.command_id in self._seen:
            self.repeats += 1
            return None
        self._seen.add(outcome.command_id)
        self.outcomes += 1
        self.by_worker[outcome.worker] += 1
        self._recent.append(at)
        if (sent := self._sent.pop(outcome.command_id, None)) is not None:
            self.latencies.append(at - sent)
        if outcome.status is OutcomeStatus.REFUSED:
            self.refusals.append(f"{outcome.thread_id}: {outcome.command_type.value} {outcome.reason}")
            return None
        self.stages[outcome.thread_id] = stage = _stage_of(outcome)
        return stage

    def rate(self, now: float) -> float:
        """Outcomes a second, lately."""
        while self._recent and self._recent[0] < now - _RATE_SECONDS:
            self._recent.popleft()
        return len(self._recent) / _RATE_SECONDS

    def count(self, stage: Stage) -> int:
        """How many threads are there."""
        return sum(1 for place in self.stages.values() if place is stage)

    @property
    def finished(self) -> int:
        """How many threads are at their end."""
        return sum(1 for place in self.stages.values() if place in FINISHED)

    @property
    def is_over(self) -> bool:
        """Whether every thread is at its end."""
        return self.finished == self.threads


def _stage_of(outcome: Outcome) -> Stage:
    match outcome.status:
        case OutcomeStatus.COMPLETED:
            return Stage.COMPLETED
        case OutcomeStatus.ENDED:
            return Stage.ENDED
        case OutcomeStatus.INTERRUPTED:
            return Stage.PERSON if outcome.wait is None else _WAITS[outcome.wait.kind]
        case OutcomeStatus.FAILED | OutcomeStatus.CANCELLED | OutcomeStatus.REFUSED:
            return Stage.FAILED
