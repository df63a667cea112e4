"""What the crash-point explorer found, as data and as text for a terminal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import BrokenByCrashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .comparing import Doubled, Lost, Repeated
    from .life import CrashPoint

_MOST_POINTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run that crashed at `point`, recovered, and went on to its end, beside the fault-free one.

    `doubled` and `lost` effects, `skipped` stops (the paths of nodes where the thread should have
    waited), another `end`, state `differences` (their paths) and a `problem` that kept it from its
    end break it. `repeated` effects were asked for again and not applied
    again, and nodes that `ran_again` are what a recovery is: both are fine. A point that
    another run doesn't come to (`crashed` is false) tells nothing.
    """

    point: CrashPoint
    crashed: bool = True
    end: str = ""
    expected_end: str = ""
    doubled: tuple[Doubled, ...] = ()
    lost: tuple[Lost, ...] = ()
    skipped: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    ran_again: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the crash changed nothing but the number of attempts."""
        return not any(True for _ in self.faults())

    def faults(self) -> Iterator[str]:
        """What broke, a sentence each."""
        if self.problem is not None:
            yield f"the run didn't come to its end: {self.problem}"
            return
        yield from map(_told, self.doubled)
        yield from map(_told, self.lost)
        for path in self.skipped:
            yield f"the thread went on at '{path}' without waiting there"
        if self.end != self.expected_end:
            yield f"the thread ended {self.end}, not {self.expected_end}"
        for path in self.differences:
            yield f"the final state differs at '{path}'" if path else "the final state differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of a graph at every crash point; `str()` is for people.

    `faultless` are double effects without any crash, as by a retry. `varying` is what two
    fault-free runs already differ in, which wasn't compared.
    """

    trials: tuple[Trial, ...]
    faultless: tuple[Doubled, ...] = ()
    varying: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[Trial, ...]:
        """The trials in which a crash changed something."""
        return tuple(trial for trial in self.trials if not trial.is_ok)

    @property
    def is_ok(self) -> bool:
        """Whether nothing broke, with a crash or without."""
        return not self.faultless and not self.broken

    def assert_ok(self) -> None:
        """Raise an `AssertionError` with the whole report unless nothing broke."""
        if not self.is_ok:
            raise BrokenByCrashes(str(self))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        count, broken = len(self.trials), len(self.broken)
        points = "1 crash point" if count == 1 else f"{count} crash points"
        yield f"{points}: {broken or 'none'} broke the run"
        for one in self.faultless:
            yield ""
            yield f"without any crash, {_told(one)}"
            yield from _keys(one)
        yield from self._faults()
        yield from self._notes()

    def _faults(self) -> Iterator[str]:
        by_fault: dict[str, list[Trial]] = {}
        for trial in self.trials:
            for fault in trial.faults():
                by_fault.setdefault(fault, []).append(trial)
        for fault, trials in by_fault.items():
            yield ""
            yield fault
            yield from _points(trials)
            for one in trials[0].doubled:
                if _told(one) == fault:
                    yield from _keys(one)

    def _notes(self) -> Iterator[str]:
        again = Counter(path for trial in self.trials for path in trial.ran_again)
        repeated = Counter(one.name for trial in self.trials for one in trial.repeated)
        missed = [trial for trial in self.trials if not trial.crashed]
        if again or repeated or missed or self.varying:
            yield ""
        if again:
            yield f"ran again after a crash: {_counted(again)}"
        if repeated:
            yield f"asked for again under the same key, and not applied again: {_counted(repeated)}"
        if missed:
            yield f"not come to in another run: {', '.join(str(trial.point) for trial in missed)}"
        if self.varying:
            yield f"not compared, as two runs without a crash differ there: {', '.join(self.varying)}"


def _told(one: Doubled | Lost) -> str:
    where = f"at {one.visit}" if one.visit else "outside any node"
    return f"effect '{one.name}' happened {_times(one.times)}, not {_times(one.expected)}, {where}"


def _points(trials: list[Trial]) -> Iterator[str]:
    for trial in trials[:_MOST_POINTS]:
        yield f"  after a crash at {trial.point}"
    if len(trials) > _MOST_POINTS:
        yield f"  and at {len(trials) - _MOST_POINTS} more"


def _keys(one: Doubled) -> Iterator[str]:
    for key in one.keys:
        yield "    without a key" if key is None else f"    under key {key}"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counter.most_common())
