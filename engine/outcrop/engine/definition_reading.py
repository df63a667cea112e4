"""A definition read back from JSON, and whether its parts fit each other and its version.

Owns what may stand where in the exported format (engine.md 1.5). Whether the graph so
described makes sense as a graph is `structure`'s. Unknown keys are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from outcrop.stores.record import GraphIdentity

from .composites import JoinPolicy, Partial
from .definition import (
    VERSIONS,
    BranchDefinition,
    EdgeDefinition,
    GraphDefinition,
    InterruptDefinition,
    JoinDefinition,
    NodeDefinition,
    NodeKind,
    WaitDefinition,
)
from .errors import DefinitionInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcrop.stores.record import Json

MOST_LEVELS: Final = 64  # more than anybody draws, and far from the interpreter's own limit

_SINCE: Final = {NodeKind.MAP: "1.3.0", NodeKind.WAIT: "1.4.0"}
_INSIDE: Final = {
    (False, False): "neither branches nor graph",
    (True, False): "branches",
    (False, True): "graph",
    (True, True): "both branches and graph",
}


def read_definition(text: str | bytes) -> GraphDefinition:
    """The definition that `to_json` wrote, here or in another engine of the format.

    Raises `DefinitionInvalid` for the first thing that is off. The graph may be one that
    doesn't compile: `problems_of` tells what is wrong with it.
    """
    try:
        value: Json = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DefinitionInvalid(f"the definition isn't JSON: {error.msg} at line {error.lineno}") from None
    definition = _graph(_Object.of(value, "the definition"), levels=1)
    check_shape(definition)
    return definition


def check_shape(definition: GraphDefinition) -> None:
    """Raise `DefinitionInvalid` for the first part that doesn't fit its version or its node's kind."""
    fault = next(_Shape(definition, at="", prefix="").faults(), None)
    if fault is not None:
        raise DefinitionInvalid(fault)


@dataclass(frozen=True, slots=True)
class _Shape:
    """One level of a definition; `at` says where it is, `prefix` starts the names of its nodes."""

    graph: GraphDefinition
    at: str
    prefix: str

    def faults(self) -> Iterator[str]:
        yield from self._level()
        for node in self.graph.nodes:
            name = self.prefix + node.name
            for fault in (*self._kind(node), *self._freezing(node), *self._inside(node), *self._join(node)):
                yield f"node '{name}' {fault}"
            if node.graph is not None:
                path = name + ("/*" if node.kind is NodeKind.MAP else "")
                yield from _Shape(node.graph, f" (in '{path}')", f"{path}/").faults()
        if self._has("1.6.0"):
            yield from self._routes()

    def _has(self, version: str) -> bool:
        return self.graph.schema_version >= version

    def _level(self) -> Iterator[str]:
        version, identity = self.graph.schema_version, self.graph.identity
        if version not in VERSIONS:
            readable = f"{', '.join(VERSIONS[:-1])} and {VERSIONS[-1]}"
            yield f"unsupported schema_version '{version}'{self.at}: this build reads {readable}"
        if identity is None:
            return
        if not self._has("1.5.0"):
            yield f"the definition{self.at} has an identity, {self._lacks}"
        if not identity.id.strip():
            yield f"the definition{self.at} has an identity with an empty id"

    @property
    def _lacks(self) -> str:
        return f"which schema_version {self.graph.schema_version} doesn't have"

    def _kind(self, node: NodeDefinition) -> Iterator[str]:
        if node.kind is None:
            return
        if not self._has("1.1.0"):
            yield f"has a kind, {self._lacks}"
        if not self._has(_SINCE.get(node.kind, "")):
            yield f"is a {node.kind}, {self._lacks}"

    def _freezing(self, node: NodeDefinition) -> Iterator[str]:
        is_wait, wait = node.kind is NodeKind.WAIT, node.wait
        if is_wait and wait is None:
            yield "is a wait but has no wait"
        if wait is not None and not is_wait:
            yield "has a wait but is not a wait node"
        if wait is not None and wait.kind not in {"event", "timer"}:
            yield f"has a wait of kind '{wait.kind}', which is neither event nor timer"
        if node.interrupt is not None and not self._has("1.6.0"):
            yield f"has an interrupt, {self._lacks}"
        if node.interrupt is not None and is_wait:
            yield "is a wait and can't also have an interrupt"

    def _inside(self, node: NodeDefinition) -> Iterator[str]:
        has = node.branches is not None, node.graph is not None
        match node.kind:
            case NodeKind.GROUP:
                wanted = True, False
            case NodeKind.SUBGRAPH | NodeKind.MAP:
                wanted = False, True
            case _:
                wanted = False, False
        if has != wanted:
            yield f"is a {node.kind or 'plain node'} but has {_INSIDE[has]}"

    def _join(self, node: NodeDefinition) -> Iterator[str]:
        join = node.join
        if join is None:
            return
        if not self._has("1.2.0"):
            yield f"has a join, {self._lacks}"
        if node.kind not in {NodeKind.GROUP, NodeKind.MAP}:
            yield "has a join but is neither a parallel_group nor a map"
        if join.count is not None and join.policy != JoinPolicy.QUORUM:
            yield "has a join with a count, which only a quorum has"
        if join.condition is not None and join.policy != JoinPolicy.FIRST_MATCHING:
            yield "has a join with a condition, which only first_matching has"

    def _routes(self) -> Iterator[str]:
        nodes = {node.name: node for node in self.graph.nodes}
        for edge in self.graph.edges:
            node = nodes.get(edge.from_)
            if node is None:
                continue
            name = self.prefix + node.name
            if edge.condition == "on_reject" and node.interrupt is None:
                yield f"node '{name}' has an on_reject edge but is not an interrupt boundary"
            if edge.condition == "on_timeout" and not _has_timeout(node):
                yield f"node '{name}' has an on_timeout edge but no timeout"


def _has_timeout(node: NodeDefinition) -> bool:
    waiting = node.wait if node.interrupt is None else node.interrupt
    return waiting is not None and waiting.timeout_ms is not None


@dataclass(frozen=True, slots=True)
class _Object:
    """A JSON object and where it is in the whole, to be read key by key."""

    values: dict[str, Json]
    where: str

    @classmethod
    def of(cls, value: Json, where: str) -> _Object:
        if not isinstance(value, dict):
            raise DefinitionInvalid(f"{where} isn't a JSON object")
        return cls(value, where)

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise self._off(key, "text")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self._off(key, "text")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in choices:
            raise self._off(key, f"one of {', '.join(choices)}")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self._off(key, "true or false")
        return value

    def whole(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._off(key, "a whole number from 0")
        return value

    def metadata(self) -> dict[str, str] | None:
        part = self.part("metadata")
        return None if part is None else {key: part.text(key) for key in part.values}

    def part(self, key: str) -> _Object | None:
        value = self.values.get(key)
        return None if value is None else _Object.of(value, self._at(key))

    def parts(self, key: str) -> tuple[_Object, ...] | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._off(key, "a list")
        return tuple(_Object.of(one, f"{self._at(key)}[{index}]") for index, one in enumerate(value))

    def some(self, key: str) -> tuple[_Object, ...]:
        parts = self.parts(key)
        if parts is None:
            raise self._off(key, "a list")
        return parts

    def _at(self, key: str) -> str:
        return f"{self.where}'s {key}" if self.where == "the definition" else f"{self.where}.{key}"

    def _off(self, key: str, expected: str) -> DefinitionInvalid:
        return DefinitionInvalid(f"{self._at(key)} isn't {expected}")


def _graph(level: _Object, levels: int) -> GraphDefinition:
    if levels > MOST_LEVELS:
        raise DefinitionInvalid(f"the definition has more than {MOST_LEVELS} levels of graphs")
    identity = level.part("identity")
    return GraphDefinition(
        schema_version=level.text("schema_version"),
        identity=None
        if identity is None
        else GraphIdentity(identity.text("id"), identity.optional_text("version")),
        entry_point=level.text("entry_point"),
        nodes=tuple(_node(node, levels) for node in level.some("nodes")),
        edges=tuple(
            EdgeDefinition(
                from_=edge.text("from"),
                to=edge.text("to"),
                guarded=edge.flag("guarded"),
                condition=edge.optional_text("condition"),
            )
            for edge in level.some("edges")
        ),
    )


def _node(node: _Object, levels: int) -> NodeDefinition:
    kinds = tuple(kind.value for kind in NodeKind)
    branches, graph = node.parts("branches"), node.part("graph")
    join, wait, interrupt = node.part("join"), node.part("wait"), node.part("interrupt")
    return NodeDefinition(
        name=node.text("name"),
        metadata=node.metadata(),
        kind=None if node.optional_text("kind") is None else NodeKind(node.choice("kind", kinds)),
        branches=None
        if branches is None
        else tuple(BranchDefinition(branch.text("name"), branch.metadata()) for branch in branches),
        graph=None if graph is None else _graph(graph, levels + 1),
        join=None if join is None else _join(join),
        wait=None if wait is None else _wait(wait),
        interrupt=None if interrupt is None else InterruptDefinition(interrupt.whole("timeout_ms")),
    )


def _join(join: _Object) -> JoinDefinition:
    return JoinDefinition(
        policy=join.choice("policy", tuple(JoinPolicy)),
        count=join.whole("count"),
        condition=join.optional_text("condition"),
        partial=join.choice("partial", tuple(Partial)),
    )


def _wait(wait: _Object) -> WaitDefinition:
    return WaitDefinition(
        kind=wait.text("kind"),
        event_type=wait.optional_text("event_type"),
        delay_ms=wait.whole("delay_ms"),
        timeout_ms=wait.whole("timeout_ms"),
    )
