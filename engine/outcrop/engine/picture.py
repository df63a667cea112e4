"""What there is to draw of a definition: boxes inside boxes, and links between them. Pure.

Knows no drawing language; texts are as the graph's author wrote them, to be escaped by the
writer. Every level has a point where it starts and one where it ends, and links into a box
with boxes inside lead to its start and leave from its end: no language links boxes like that
well. Draws graphs that don't compile, too: what an edge misses is a box of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .composites import JoinPolicy, Partial
from .definition import NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .definition import GraphDefinition, JoinDefinition, NodeDefinition, WaitDefinition
    from .thread_path import Place, ThreadPath


class Look(StrEnum):
    """What a box is."""

    START = "start"
    END = "end"
    NODE = "node"
    BRANCH = "branch"
    WAIT = "wait"
    MISSING = "missing"
    GROUP = "group"
    MAP = "map"
    SUBGRAPH = "subgraph"


class Paint(StrEnum):
    """What a thread has to do with a box."""

    VISITED = "visited"
    CURRENT = "current"
    AROUND = "around"  # the thread is somewhere inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Something drawn; `asks` when a person is waited for after it, `inner` when it holds boxes."""

    id: str
    look: Look
    lines: tuple[str, ...] = ()
    asks: bool = False
    paint: Paint | None = None
    inner: tuple[Box, ...] | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A way from box to box; `is_route` for a way out of trouble."""

    start: str
    end: str
    label: str | None = None
    is_route: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """All of a graph; the links of every level are together."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]

    def every_box(self) -> Iterator[Box]:
        """Each box, those inside after the one that holds them."""
        todo = list(reversed(self.boxes))
        while todo:
            box = todo.pop()
            yield box
            todo += reversed(box.inner or ())


_LOOKS = {
    None: Look.NODE,
    NodeKind.GROUP: Look.GROUP,
    NodeKind.MAP: Look.MAP,
    NodeKind.SUBGRAPH: Look.SUBGRAPH,
    NodeKind.WAIT: Look.WAIT,
}
_HOLDING = frozenset({Look.GROUP, Look.MAP, Look.SUBGRAPH})
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def picture_of(definition: GraphDefinition, path: ThreadPath | None = None) -> Picture:
    """The picture of the graph, with a thread's way through it painted."""
    links = list[Link]()
    boxes = _Level(definition, "n", (), path, links).boxes()
    return Picture(boxes, tuple(links))


@dataclass(frozen=True, slots=True)
class _Level:
    """One level: `prefix` starts the IDs of its boxes, `place` is where it is; fills `links`."""

    graph: GraphDefinition
    prefix: str
    place: Place
    path: ThreadPath | None
    links: list[Link]

    def boxes(self) -> tuple[Box, ...]:
        ids = {node.name: f"{self.prefix}{index}" for index, node in enumerate(self.graph.nodes)}
        start, end = _points(self.prefix)
        missing = self._missing(ids)
        holds = {node.name for node in self.graph.nodes if _LOOKS[node.kind] in _HOLDING}
        entries = {name: f"{id_}_s" if name in holds else id_ for name, id_ in (ids | missing).items()}
        exits = {name: f"{id_}_e" if name in holds else id_ for name, id_ in (ids | missing).items()}
        self.links.append(Link(start.id, entries[self.graph.entry_point]))
        going_on = set[str]()
        for edge in self.graph.edges:
            label = edge.condition or ("if" if edge.guarded else None)
            self.links.append(
                Link(exits[edge.from_], entries[edge.to], label, is_route=edge.condition is not None)
            )
            if edge.condition is None:
                going_on.add(edge.from_)
        self.links.extend(Link(exits[name], end.id) for name in ids if name not in going_on)
        nodes = (self._node(node, f"{self.prefix}{index}") for index, node in enumerate(self.graph.nodes))
        absent = (Box(id=id_, look=Look.MISSING, lines=(name, "missing")) for name, id_ in missing.items())
        return (start, *nodes, *absent, end)

    def _missing(self, ids: dict[str, str]) -> dict[str, str]:
        named = [self.graph.entry_point]
        for edge in self.graph.edges:
            named += (edge.from_, edge.to)
        absent = dict.fromkeys(name for name in named if name not in ids)
        return {name: f"{self.prefix}x{index}" for index, name in enumerate(absent)}

    def _node(self, node: NodeDefinition, id_: str) -> Box:
        look = _LOOKS[node.kind]
        place = (*self.place, node.name)
        inner: tuple[Box, ...] | None = None
        if look is Look.GROUP:
            inner = self._branches(node, f"{id_}_")
        elif look in _HOLDING and node.graph is not None:
            below = (*place, "*") if look is Look.MAP else place
            inner = _Level(node.graph, f"{id_}_", below, self.path, self.links).boxes()
        elif look in _HOLDING:
            inner = _points(f"{id_}_")
        return Box(
            id=id_,
            look=look,
            lines=(node.name, *_told(node)),
            asks=node.interrupt is not None,
            paint=self._paint(place),
            inner=inner,
        )

    def _branches(self, group: NodeDefinition, prefix: str) -> tuple[Box, ...]:
        start, end = _points(prefix)
        branches = tuple(
            Box(id=f"{prefix}{index}", look=Look.BRANCH, lines=(branch.name,))
            for index, branch in enumerate(group.branches or ())
        )
        for branch in branches:
            self.links.extend((Link(start.id, branch.id), Link(branch.id, end.id)))
        return (start, *branches, end)

    def _paint(self, place: Place) -> Paint | None:
        if self.path is None:
            return None
        current = self.path.current
        if current is not None and current[: len(place)] == place:
            return Paint.CURRENT if current == place else Paint.AROUND
        return Paint.VISITED if place in self.path.visited else None


def _points(prefix: str) -> tuple[Box, Box]:
    return Box(id=f"{prefix}s", look=Look.START), Box(id=f"{prefix}e", look=Look.END)


def _told(node: NodeDefinition) -> Iterator[str]:
    """What a box says below its name."""
    match node.kind:
        case NodeKind.GROUP:
            yield "parallel group"
        case NodeKind.MAP:
            yield "map"
        case NodeKind.SUBGRAPH:
            yield "subgraph"
        case _:
            pass
    if node.join is not None:
        yield from _join(node.join)
    if node.wait is not None:
        yield from _wait(node.wait)
    if node.interrupt is not None:
        yield "waits for a person"
        yield from _at_most(node.interrupt.timeout_ms)


def _join(join: JoinDefinition) -> Iterator[str]:
    match join.policy:
        case JoinPolicy.QUORUM:
            yield f"a quorum of {join.count} decides"
        case JoinPolicy.FIRST_SUCCESS:
            yield "the first success decides"
        case JoinPolicy.FIRST_MATCHING:
            yield "the first match decides"
        case _:
            pass
    if join.partial == Partial.KEEP_SUCCEEDED:
        yield "keeps what succeeded"


def _wait(wait: WaitDefinition) -> Iterator[str]:
    if wait.kind == "event":
        yield f"waits for event {wait.event_type}"
    elif wait.delay_ms is None:
        yield "waits until a time in the state"
    else:
        yield f"waits for {_span(wait.delay_ms)}"
    yield from _at_most(wait.timeout_ms)


def _at_most(timeout_ms: int | None) -> Iterator[str]:
    if timeout_ms is not None:
        yield f"{_span(timeout_ms)} at most"


def _span(milliseconds: int) -> str:
    """A span in words: `1 h 30 min`."""
    parts = list[str]()
    for size, unit in _UNITS:
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"
