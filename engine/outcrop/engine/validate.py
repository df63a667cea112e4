"""What a graph must keep to be compiled: single rules first, then its structure.

A broken rule is a `CompilationFailed` with the first message in a fixed order; the structure
is judged as a whole, every fault a `Problem`, from names and edges alone. Knows no handler
and no builder. Messages are the format's own wherever it has one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar, cast

from .errors import CompilationFailed
from .node import EventWait, NodeMode, TimerWait

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from .node import Boundary, NodeSpec
    from .retry import Backoff

S = TypeVar("S")


class ProblemKind(StrEnum):
    """What is wrong in a graph's structure."""

    MISSING_ENTRY_POINT = "MissingEntryPoint"
    DANGLING_EDGE = "DanglingEdge"
    ORPHAN_NODE = "OrphanNode"
    UNGUARDED_CYCLE = "UnguardedCycle"


_CODES = {
    ProblemKind.MISSING_ENTRY_POINT: "STRATA_ERR_MISSING_ENTRY",
    ProblemKind.DANGLING_EDGE: "STRATA_ERR_DANGLING_EDGE",
    ProblemKind.ORPHAN_NODE: "STRATA_ERR_ORPHAN",
    ProblemKind.UNGUARDED_CYCLE: "STRATA_ERR_UNGUARDED_CYCLE",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a graph's structure; `related` is the edge's other end, where there is one."""

    kind: ProblemKind
    node: str
    message: str
    related: str | None = None

    @property
    def code(self) -> str:
        """The format's stable code of this kind of fault."""
        return _CODES[self.kind]


@dataclass(frozen=True, slots=True)
class Link:
    """An edge by its ends; guarded edges have a condition, or are a node's route out of trouble."""

    start: str
    end: str
    guarded: bool


@dataclass(frozen=True, slots=True)
class Structure:
    """A graph by its names: nodes as declared, edges as inserted, routes after them."""

    entry: str
    nodes: Sequence[str]
    links: Sequence[Link]


def check_identity(graph_id: str | None, version: str | None) -> None:
    """A version needs an ID, and neither may be blank."""
    if version is not None and graph_id is None:
        raise CompilationFailed("graph_version needs a graph_id")
    if graph_id is not None and not graph_id.strip():
        raise CompilationFailed("graph_id must not be blank")
    if version is not None and not version.strip():
        raise CompilationFailed("graph_version must not be blank")


def check_waits(waits: Mapping[str, EventWait | TimerWait[S]], boundaries: AbstractSet[str]) -> None:
    """Delays and timeouts are above zero, routes have their timeout, no wait is a boundary."""
    for name, wait in waits.items():
        match wait:
            case TimerWait():
                _check_duration(f"timer '{name}' has a delay", wait.delay)
            case EventWait():
                _check_timeout(f"wait '{name}'", wait.timeout, wait.on_timeout)
                if not wait.event.strip():
                    raise CompilationFailed(f"wait '{name}' needs an event type")
        if name in boundaries:
            raise CompilationFailed(f"'{name}' is a wait node and can't also be an interrupt boundary")


def check_boundaries(boundaries: Mapping[str, Boundary]) -> None:
    """Timeouts are above zero, and a timeout route has one."""
    for name in sorted(boundaries, key=str.encode):
        boundary = boundaries[name]
        _check_timeout(f"interrupt boundary '{name}'", boundary.timeout, boundary.on_timeout)


def check_policies(nodes: Mapping[str, NodeSpec[S]], names: AbstractSet[str]) -> None:
    """Fallbacks exist, counts and delays make sense."""
    for name, node in nodes.items():
        owner = f"recovery policy for '{name}'"
        if node.fallback is not None and node.fallback not in names:
            raise CompilationFailed(f"{owner} falls back to '{node.fallback}', which does not exist")
        if node.retry.max_retries < 0:
            raise CompilationFailed(
                f"{owner} has a max_retries of {node.retry.max_retries}; it must be at least 0"
            )
        if not _is_exception_types(node.retry.give_up_on):
            raise CompilationFailed(f"{owner} has a give_up_on that isn't a tuple of exception types")
        if node.retry.backoff is not None:
            _check_backoff(owner, node.retry.backoff)


def check_timeouts(nodes: Mapping[str, NodeSpec[S]]) -> None:
    """Timeouts are above zero and finite, and only on nodes that can be stopped."""
    for name, node in nodes.items():
        if node.timeout is None:
            continue
        if math.isnan(node.timeout) or node.timeout <= 0:
            raise CompilationFailed(f"timeout for '{name}' must be greater than zero")
        if math.isinf(node.timeout):
            raise CompilationFailed(f"timeout for '{name}' must be finite: leave it out for none")
        if node.mode is NodeMode.INLINE:
            raise CompilationFailed(
                f"node '{name}' runs inline and can't be timed out: "
                "add it without inline=True to have its timeout honoured"
            )


def check_ways_on(waits: AbstractSet[str], starts: AbstractSet[str]) -> None:
    """Every wait has an edge: what answers it has to lead somewhere."""
    for name in sorted(waits - starts, key=str.encode):
        raise CompilationFailed(f"'{name}' is a wait node with no way on: add an edge from it")


def structural_problems(structure: Structure) -> tuple[Problem, ...]:
    """Every fault of the structure: edges, then nodes out of reach, then unguarded cycles.

    A missing entry point is the only one told, because all reach hangs on it.
    """
    if structure.entry not in structure.nodes:
        message = f"Entry point node '{structure.entry}' does not exist in the graph definition."
        return (Problem(ProblemKind.MISSING_ENTRY_POINT, structure.entry, message),)
    return (*_dangling(structure), *_orphans(structure), *_unguarded_cycles(structure))


def _check_duration(what: str, duration: timedelta | None) -> None:
    if duration is not None and duration <= timedelta(0):
        amount = "zero" if duration == timedelta(0) else "less than zero"
        raise CompilationFailed(f"{what} of {amount}; it must be greater than zero")


def _check_timeout(owner: str, timeout: timedelta | None, on_timeout: str | None) -> None:
    _check_duration(f"{owner} has a timeout", timeout)
    if on_timeout is not None and timeout is None:
        raise CompilationFailed(f"{owner} has a timeout route but no timeout")


def _is_exception_types(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(kind, type) and issubclass(kind, Exception) for kind in cast("tuple[object, ...]", value)
    )


def _check_backoff(owner: str, backoff: Backoff) -> None:
    for field, seconds in (("initial delay", backoff.initial), ("max", backoff.max)):
        if not 0 <= seconds < math.inf:
            raise CompilationFailed(
                f"{owner} has a backoff whose {field} is {seconds} s; it must be zero or more, and finite"
            )
    if backoff.max < backoff.initial:
        most, first = (round(seconds * 1000) for seconds in (backoff.max, backoff.initial))
        raise CompilationFailed(
            f"{owner} has a backoff whose max ({most} ms) is below its initial delay ({first} ms)"
        )


def _dangling(structure: Structure) -> Iterator[Problem]:
    nodes = frozenset(structure.nodes)
    for link in structure.links:
        edge = f"Edge '{link.start}' -> '{link.end}'"
        match link.start in nodes, link.end in nodes:
            case True, True:
                continue
            case True, False:
                message = f"{edge} points at '{link.end}', which is not a node in the graph."
            case False, True:
                message = f"{edge} starts at '{link.start}', which is not a node in the graph."
            case _:
                ends = f"'{link.start}' and '{link.end}'"
                message = f"{edge} connects {ends}, neither of which is a node in the graph."
        yield Problem(ProblemKind.DANGLING_EDGE, link.start, message, link.end)


def _orphans(structure: Structure) -> Iterator[Problem]:
    ways = _ways(structure, structure.links)
    reached = {structure.entry}
    frontier = [structure.entry]
    while frontier:
        for name in ways[frontier.pop()]:
            if name not in reached:
                reached.add(name)
                frontier.append(name)
    for name in structure.nodes:
        if name not in reached:
            message = f"Node '{name}' is isolated and unreachable from the entry point '{structure.entry}'."
            yield Problem(ProblemKind.ORPHAN_NODE, name, message)


def _unguarded_cycles(structure: Structure) -> Iterator[Problem]:
    """One fault for each edge that leads back to a node on the way to it."""
    ways = _ways(structure, [link for link in structure.links if not link.guarded])
    seen: set[str] = set()
    for root in structure.nodes:
        if root in seen:
            continue
        seen.add(root)
        path = {root: iter(ways[root])}  # the way down to the current node, outermost first
        while path:
            name = next(reversed(path))
            end = next(path[name], None)
            if end is None:
                del path[name]
            elif end in path:
                message = (
                    f"Unguarded cycle detected between '{name}' and '{end}'. "
                    "Add a guarded/conditional edge to protect this loop."
                )
                yield Problem(ProblemKind.UNGUARDED_CYCLE, name, message, end)
            elif end not in seen:
                seen.add(end)
                path[end] = iter(ways[end])


def _ways(structure: Structure, links: Sequence[Link]) -> dict[str, list[str]]:
    ways: dict[str, list[str]] = {name: [] for name in structure.nodes}
    for link in links:
        if link.start in ways and link.end in ways:
            ways[link.start].append(link.end)
    return ways
