"""What a crash changed: one run's effects, state and executions beside the fault-free one's. Pure.

The same effect in two runs is the same name at the same visit of the same node (`slot`): its
idempotency key tells thread, path and hops. A visit may apply as many effects of one name as
some single execution of it asked for; more means that one execution repeated what another had
done, under a key of its own. So a node that charges twice by two keys of its own is fine, and so
is one that decides otherwise when it runs again; one that makes up a key is found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from outcrop.stores.record import Json

    from .effects import Effect, Execution

Slot: TypeAlias = "tuple[str, str]"
"""A visit and the name of an effect."""


@dataclass(frozen=True, slots=True)
class Doubled:
    """Effect `name` was applied under all these keys where one execution asks for `expected`."""

    name: str
    visit: str
    keys: tuple[str | None, ...]
    expected: int

    @property
    def times(self) -> int:
        """How often it was applied."""
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Lost:
    """Effect `name` was applied less often than without a crash."""

    name: str
    visit: str
    times: int
    expected: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Effect `name` was asked for again under its key, and not applied again."""

    name: str
    key: str
    times: int


def doubled(effects: Sequence[Effect], faultless: Sequence[Effect]) -> tuple[Doubled, ...]:
    """What was applied more often than any execution asked for it, in this run or the fault-free one.

    What no node asked for has no executions: there, all of the fault-free run counts as one.
    """
    most = _most_asked(faultless)
    for slot, times in _most_asked(effects).items():
        if slot[0]:
            most[slot] = max(most[slot], times)
    return tuple(
        Doubled(name, visit, tuple(keys), most[visit, name])
        for (visit, name), keys in _applied(effects).items()
        if len(keys) > most[visit, name]
    )


def lost(
    effects: Sequence[Effect], faultless: Sequence[Effect], varying: frozenset[Slot]
) -> tuple[Lost, ...]:
    """What was applied less often than in the fault-free run, but for what varies anyway."""
    here = _applied(effects)
    return tuple(
        Lost(name, visit, len(here.get((visit, name), ())), len(keys))
        for (visit, name), keys in _applied(faultless).items()
        if len(here.get((visit, name), ())) < len(keys) and (visit, name) not in varying
    )


def repeated(effects: Iterable[Effect]) -> tuple[Repeated, ...]:
    """What a service that honours keys was asked for again."""
    asked = Counter((effect.name, effect.key) for effect in effects if effect.key is not None)
    return tuple(Repeated(name, key, times) for (name, key), times in asked.items() if times > 1)


def varying_slots(one: Sequence[Effect], other: Sequence[Effect]) -> frozenset[Slot]:
    """Effects of which two fault-free runs differ."""
    here, there = _applied(one), _applied(other)
    return frozenset(
        slot for slot in here.keys() | there.keys() if len(here.get(slot, ())) != len(there.get(slot, ()))
    )


def differences(one: Json, other: Json) -> frozenset[str]:
    """The paths at which two JSON values differ, like `lines[0].price`; the empty path is the whole."""
    return frozenset(path for path, _ in set(_leaves(one)) ^ set(_leaves(other)))


def ran_again(executions: Sequence[Execution], faultless: Sequence[Execution]) -> tuple[str, ...]:
    """The paths of nodes and branches with visits that took more executions than without a crash."""
    expected = Counter(execution.visit for execution in faultless)
    paths: Mapping[str, str] = {execution.visit: execution.path for execution in executions}
    took = Counter(execution.visit for execution in executions)
    return tuple(
        dict.fromkeys(paths[visit] for visit, times in took.items() if times > max(expected[visit], 1))
    )


def _applied(effects: Iterable[Effect]) -> dict[Slot, list[str | None]]:
    keys: dict[Slot, list[str | None]] = {}
    for effect in effects:
        if effect.applied:
            keys.setdefault((effect.execution.visit, effect.name), []).append(effect.key)
    return keys


def _most_asked(effects: Iterable[Effect]) -> defaultdict[Slot, int]:
    """How many different effects of a slot one execution asked for, at most."""
    asked: dict[tuple[Slot, int], set[object]] = {}
    for number, effect in enumerate(effects):
        slot = (effect.execution.visit, effect.name)
        # Without a key, each request is an effect of its own.
        asked.setdefault((slot, effect.execution.number), set()).add(
            number if effect.key is None else effect.key
        )
    most: defaultdict[Slot, int] = defaultdict(int)
    for (slot, _), keys in asked.items():
        most[slot] = max(most[slot], len(keys))
    return most


def _leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Each value that holds no other, as text: that tells 1 from true and 1.0."""
    match value:
        case dict() if value:
            for name, inner in value.items():
                yield from _leaves(inner, f"{path}.{name}" if path else name)
        case list() if value:
            for at, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{at}]")
        case _:
            yield path, repr(value)
