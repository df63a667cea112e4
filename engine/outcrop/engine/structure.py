"""What is wrong with a graph's structure, at every level: every fault, in a fixed order. Pure.

Works on definitions, so that a graph that was only read is judged like one that was built.
Names are those of the whole: `Sub/Node`, and `Map/*/Node` inside a map's template.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .definition import NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .definition import EdgeDefinition, GraphDefinition, JoinDefinition, NodeDefinition


class ProblemKind(StrEnum):
    """What is wrong in a graph's structure."""

    MISSING_ENTRY_POINT = "MissingEntryPoint"
    DANGLING_EDGE = "DanglingEdge"
    ORPHAN_NODE = "OrphanNode"
    UNGUARDED_CYCLE = "UnguardedCycle"
    EMPTY_GROUP = "EmptyGroup"
    DUPLICATE_BRANCH = "DuplicateBranch"
    INVALID_QUORUM = "InvalidQuorum"
    WAIT_IN_MAP = "WaitInMap"
    BOUNDARY_IN_MAP = "BoundaryInMap"


_CODES = {
    ProblemKind.MISSING_ENTRY_POINT: "STRATA_ERR_MISSING_ENTRY",
    ProblemKind.DANGLING_EDGE: "STRATA_ERR_DANGLING_EDGE",
    ProblemKind.ORPHAN_NODE: "STRATA_ERR_ORPHAN",
    ProblemKind.UNGUARDED_CYCLE: "STRATA_ERR_UNGUARDED_CYCLE",
    ProblemKind.EMPTY_GROUP: "STRATA_ERR_EMPTY_GROUP",
    ProblemKind.DUPLICATE_BRANCH: "STRATA_ERR_DUPLICATE_BRANCH",
    ProblemKind.INVALID_QUORUM: "STRATA_ERR_INVALID_QUORUM",
    ProblemKind.WAIT_IN_MAP: "STRATA_ERR_WAIT_IN_MAP",
    ProblemKind.BOUNDARY_IN_MAP: "STRATA_ERR_BOUNDARY_IN_MAP",
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


def problems_of(definition: GraphDefinition) -> tuple[Problem, ...]:
    """Every fault of the graph and of the graphs inside it.

    A missing entry point is the only one told of its level, because all reach hangs on it,
    and keeps the levels below from being looked at.
    """
    return tuple(_Level(definition, prefix="", in_map=False).problems())


@dataclass(frozen=True, slots=True)
class _Level:
    """One level, where it stands in the whole."""

    graph: GraphDefinition
    prefix: str
    in_map: bool

    def problems(self) -> Iterator[Problem]:
        names = [node.name for node in self.graph.nodes]
        entry = self.graph.entry_point
        if entry not in names:
            name = self.prefix + entry
            message = f"Entry point node '{name}' does not exist in the graph definition."
            yield Problem(ProblemKind.MISSING_ENTRY_POINT, name, message)
            return
        yield from self._dangling(names)
        yield from self._orphans(names)
        yield from self._unguarded_cycles(names)
        for node in self.graph.nodes:
            yield from self._composite(node)
        if self.in_map:
            yield from self._freezing()
        for node in self.graph.nodes:
            if node.graph is not None:
                is_map = node.kind is NodeKind.MAP
                prefix = f"{self.prefix}{node.name}/" + ("*/" if is_map else "")
                yield from _Level(node.graph, prefix, self.in_map or is_map).problems()

    def _composite(self, node: NodeDefinition) -> Iterator[Problem]:
        name = self.prefix + node.name
        join = node.join
        if node.kind is NodeKind.GROUP:
            yield from self._branches(name, node)
            count, most = join.count if join else None, len(node.branches or ())
            if join is not None and join.policy == "quorum" and not (count and 1 <= count <= most):
                told = "none" if count is None else count
                message = (
                    f"Parallel group '{name}' has a quorum of {told}, "
                    f"which isn't between 1 and its {most} branches."
                )
                yield Problem(ProblemKind.INVALID_QUORUM, name, message)
        if node.kind is NodeKind.MAP and join is not None and join.policy == "quorum" and not _some(join):
            told = "none" if join.count is None else join.count
            message = f"Map '{name}' has a quorum of {told}, which isn't at least 1."
            yield Problem(ProblemKind.INVALID_QUORUM, name, message)

    def _branches(self, name: str, node: NodeDefinition) -> Iterator[Problem]:
        branches = [branch.name for branch in node.branches or ()]
        if not branches:
            yield Problem(ProblemKind.EMPTY_GROUP, name, f"Parallel group '{name}' has no branches.")
        told = set[str]()
        for index, branch in enumerate(branches):
            if branch in branches[:index] and branch not in told:
                told.add(branch)
                message = f"Parallel group '{name}' has more than one branch named '{branch}'."
                yield Problem(ProblemKind.DUPLICATE_BRANCH, name, message, branch)

    def _freezing(self) -> Iterator[Problem]:
        for node in self.graph.nodes:
            if node.kind is NodeKind.WAIT:
                name = self.prefix + node.name
                message = f"Wait node '{name}' is inside a map's template; a map item can't wait."
                yield Problem(ProblemKind.WAIT_IN_MAP, name, message)
        for node in self.graph.nodes:
            if node.interrupt is not None:
                name = self.prefix + node.name
                message = f"Interrupt boundary '{name}' is inside a map's template; a map item can't freeze."
                yield Problem(ProblemKind.BOUNDARY_IN_MAP, name, message)

    def _dangling(self, names: Sequence[str]) -> Iterator[Problem]:
        nodes = frozenset(names)
        for link in self.graph.edges:
            start, end = self.prefix + link.from_, self.prefix + link.to
            edge = f"Edge '{start}' -> '{end}'"
            match link.from_ in nodes, link.to in nodes:
                case True, True:
                    continue
                case True, False:
                    message = f"{edge} points at '{end}', which is not a node in the graph."
                case False, True:
                    message = f"{edge} starts at '{start}', which is not a node in the graph."
                case _:
                    ends = f"'{start}' and '{end}'"
                    message = f"{edge} connects {ends}, neither of which is a node in the graph."
            yield Problem(ProblemKind.DANGLING_EDGE, start, message, end)

    def _orphans(self, names: Sequence[str]) -> Iterator[Problem]:
        entry = self.graph.entry_point
        ways = _ways(names, self.graph.edges)
        reached = {entry}
        frontier = [entry]
        while frontier:
            for name in ways[frontier.pop()]:
                if name not in reached:
                    reached.add(name)
                    frontier.append(name)
        for own in names:
            if own not in reached:
                name, at = self.prefix + own, self.prefix + entry
                message = f"Node '{name}' is isolated and unreachable from the entry point '{at}'."
                yield Problem(ProblemKind.ORPHAN_NODE, name, message)

    def _unguarded_cycles(self, names: Sequence[str]) -> Iterator[Problem]:
        """One fault for each edge that leads back to a node on the way to it."""
        ways = _ways(names, [link for link in self.graph.edges if not link.guarded])
        seen: set[str] = set()
        for root in names:
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
                    yield self._cycle(self.prefix + name, self.prefix + end)
                elif end not in seen:
                    seen.add(end)
                    path[end] = iter(ways[end])

    def _cycle(self, start: str, end: str) -> Problem:
        message = (
            f"Unguarded cycle detected between '{start}' and '{end}'. "
            "Add a guarded/conditional edge to protect this loop."
        )
        return Problem(ProblemKind.UNGUARDED_CYCLE, start, message, end)


def _some(join: JoinDefinition) -> bool:
    return join.count is not None and join.count >= 1


def _ways(names: Sequence[str], links: Sequence[EdgeDefinition]) -> dict[str, list[str]]:
    ways: dict[str, list[str]] = {name: [] for name in names}
    for link in links:
        if link.from_ in ways and link.to in ways:
            ways[link.from_].append(link.to)
    return ways
