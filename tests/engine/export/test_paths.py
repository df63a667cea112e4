"""Every path that a run tells of is one of the exported graph (A042)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.engine import Answer, Threads
from outcrop.engine.definition import NodeKind
from outcrop.stores import MemoryStore
from support.fan_outs import Watch
from support.twins import twin

if TYPE_CHECKING:
    from outcrop.engine import GraphDefinition

ITEMS = [{"id": "x", "n": 3}, {"id": "y", "n": -1}]


def resolves(definition: GraphDefinition, path: str) -> bool:
    """Whether the path leads to a node, a branch or an item of the definition."""
    name, _, rest = path.partition("/")
    node = next((one for one in definition.nodes if one.name == name), None)
    if node is None:
        return False
    if node.kind is NodeKind.GROUP and rest:
        return rest in {branch.name for branch in node.branches or ()}
    if node.kind is NodeKind.MAP:
        rest = rest.partition("/")[2]  # past the item's key
    return not rest or (node.graph is not None and resolves(node.graph, rest))


@pytest.mark.parametrize("name", ["fanout", "mapped", "nested"])
async def test_paths_of_events_resolve(name: str) -> None:
    """A042."""
    graph, watch = twin(name), Watch()
    threads = Threads(graph, MemoryStore(), telemetry=watch)
    await threads.run("t", {"items": ITEMS})
    if name == "nested":
        await threads.resume("t", Answer())
    paths = {event.node_path for event in watch.events if event.node_path}
    assert any("/" in path for path in paths)
    assert [path for path in sorted(paths) if not resolves(graph.definition(), path)] == []
