"""Graphs that do nothing, to be built, exported and drawn."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeAlias

from outcrop.engine import CompiledGraph, Graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine.group_builder import GroupBuilder

State: TypeAlias = dict[str, Any]


def graph_of(*names: str, **options: Any) -> Graph[State]:
    """A line of nodes."""
    graph: Graph[State] = Graph(dict, **options)
    for name in names:
        add(graph, name)
    for start, end in itertools.pairwise(names):
        graph.edge(start, end)
    return graph


def add(graph: Graph[State], name: str, **options: Any) -> None:
    """A node that does nothing."""

    def handler(_state: State) -> None:
        return None

    graph.node(name=name, **options)(handler)


def add_group(graph: Graph[State], name: str, *branches: str, **options: Any) -> GroupBuilder[State]:
    """A group of branches that do nothing."""
    group = graph.group(name, **({"reduce": _reduce} | options))
    for branch in branches:
        add_branch(group, branch)
    return group


def add_branch(group: GroupBuilder[State], name: str, **options: Any) -> None:
    """A branch that does nothing."""

    def handler(_state: State) -> None:
        return None

    group.branch(name=name, **options)(handler)


def add_subgraph(graph: Graph[State], name: str, child: CompiledGraph[State], **options: Any) -> None:
    """A subgraph whose result nobody uses."""
    graph.subgraph(name, child, input=dict, output=_output, **options)


def add_map(graph: Graph[State], name: str, child: CompiledGraph[State], **options: Any) -> None:
    """A map over nothing."""
    graph.map(name, child, items=_items, key=str, input=_input, **({"reduce": _reduce} | options))


def always(_state: State) -> bool:
    """A condition that holds."""
    return True


def _reduce(_state: State, _states: Sequence[State]) -> None:
    return None


def _output(_state: State, _child: State) -> None:
    return None


def _items(_state: State) -> list[str]:
    return []


def _input(_state: State, _item: str) -> State:
    return {}
