"""Scripts: how the world answers a thread, and which nodes it makes fail.

Owns the choice of an answer for a stop, and that everything in a script comes to pass. A stop
is told by its row, so one that a crash makes come again gets the same answer again. Knows no
store and runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from .errors import ScriptFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from outcrop.engine.options import Answer
    from outcrop.engine.questions import Question
    from outcrop.stores.record import Json, Wait

V = TypeVar("V")
W = TypeVar("W")


class TimesOut:
    """A failure that hangs until the node's timeout passes."""

    def __repr__(self) -> str:
        return "TIMES_OUT"


TIMES_OUT: Final = TimesOut()

Fault: TypeAlias = "Exception | TimesOut"


@dataclass(frozen=True, slots=True, init=False)
class InTurn(Generic[V]):
    """One value after the other, each for one stop or attempt."""

    values: tuple[V, ...]

    def __init__(self, *values: V) -> None:
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where a thread waits: `at` is the path, `state` its state there as the graph's type."""

    at: str
    sequence: int
    state: Any
    wait: Wait | None
    questions: tuple[Question, ...] = ()


Reply: TypeAlias = "V | InTurn[V] | Callable[[W], V]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What happens to a thread from outside.

    `decisions` answer boundaries and static interrupts by name (`approve`, or `Work/approve`), `replies` the
    questions of `ctx.interrupt` by ID or by the path of the node, `signals` waits by event
    type (a signal's value is its payload). A value is used each time, `InTurn(…)` one value
    after the other, a function is asked: of the `Stop`, replies of the `Question`.

    `failures` make attempts of nodes fail by path (`charge`, `checks/score`), one after the
    other: an exception is raised in place of the node's work, `TIMES_OUT` hangs until the
    node's timeout. A boundary or wait that has a timeout and no answer here times out; timers
    need nothing.
    """

    decisions: Mapping[str, Reply[Answer, Stop]] = field(default_factory=dict[str, Any])
    replies: Mapping[str, Reply[Json, Question]] = field(default_factory=dict[str, Any])
    signals: Mapping[str, Reply[Mapping[str, Json], Stop]] = field(default_factory=dict[str, Any])
    failures: Mapping[str, Sequence[Fault] | Fault] = field(default_factory=dict[str, Any])


class Performance:
    """A script being followed through one run, crashes included."""

    def __init__(self, script: Script) -> None:
        self._decisions: _Lines[Answer, Stop] = _Lines("decisions", script.decisions)
        self._replies: _Lines[Json, Question] = _Lines("replies", script.replies)
        self._signals: _Lines[Mapping[str, Json], Stop] = _Lines("signals", script.signals)
        self._failures = {
            path: [faults] if isinstance(faults, (Exception, TimesOut)) else list(faults)
            for path, faults in script.failures.items()
        }

    def decision(self, stop: Stop) -> Answer | None:
        """The answer to the boundary, or None without one."""
        line = self._decisions.named(stop.at, stop.at.rpartition("/")[2])
        return None if line is None else line.value(stop.sequence, stop)

    def reply(self, stop: Stop, question: Question) -> Json:
        """The answer to the question; raises `ScriptFailed` without one."""
        line = self._replies.named(question.id, question.path)
        if line is None:
            raise ScriptFailed(
                f"node '{question.path}' asks '{question.id}' ({question.payload!r}), and the script has no "
                f"reply: add replies={{'{question.path}': …}}"
            )
        return line.value((stop.sequence, question.id), question)

    def signal(self, stop: Stop, event: str) -> Mapping[str, Json] | None:
        """The payload of the signal, or None without one."""
        line = self._signals.named(event)
        return None if line is None else line.value(stop.sequence, stop)

    def fault(self, path: str) -> Fault | None:
        """How the next attempt of the node fails, if it does."""
        faults = self._failures.get(path)
        return faults.pop(0) if faults else None

    def times_out(self, node: str) -> bool:
        """Whether some node of that name is to time out."""
        return any(
            path.rpartition("/")[2] == node and any(isinstance(fault, TimesOut) for fault in faults)
            for path, faults in self._failures.items()
        )

    def unused(self) -> list[str]:
        """What never came to pass."""
        return [
            *self._decisions.unused(),
            *self._replies.unused(),
            *self._signals.unused(),
            *(f"failures['{path}']: {faults}" for path, faults in self._failures.items() if faults),
        ]


class _Line(Generic[V, W]):
    """One entry of a script, and what it has answered so far."""

    def __init__(self, where: str, said: object) -> None:
        self._where = where
        self._said = said
        self._values = cast("InTurn[V]", said).values if isinstance(said, InTurn) else None
        self._given: dict[object, V] = {}

    def value(self, stop: object, asked: W) -> V:
        """The answer at this stop; the same when it is asked for again."""
        if stop not in self._given:
            self._given[stop] = self._next(asked)
        return self._given[stop]

    def unused(self) -> str | None:
        """What of it never came, or None."""
        if self._values is not None and len(self._given) < len(self._values):
            return f"{self._where}: {self._values[len(self._given) :]}"
        return None if self._given else self._where

    def _next(self, asked: W) -> V:
        if self._values is None:
            return (
                cast("Callable[[W], V]", self._said)(asked) if callable(self._said) else cast("V", self._said)
            )
        at = len(self._given)
        if at == len(self._values):
            raise ScriptFailed(f"{self._where} has {at} value(s), and another is asked for: {asked}")
        return self._values[at]


class _Lines(Generic[V, W]):
    """One kind of answers, by name."""

    def __init__(self, what: str, said: Mapping[str, Reply[V, W]]) -> None:
        self._lines: dict[str, _Line[V, W]] = {
            name: _Line(f"{what}['{name}']", value) for name, value in said.items()
        }

    def named(self, *names: str) -> _Line[V, W] | None:
        return next((self._lines[name] for name in names if name in self._lines), None)

    def unused(self) -> Iterator[str]:
        return (told for line in self._lines.values() if (told := line.unused()) is not None)
