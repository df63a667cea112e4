"""The single rules that a graph must keep to be compiled, each in its turn.

A broken rule is a `CompilationFailed` with the first message in a fixed order; what is wrong
with the whole is `structure`'s. Knows no builder. Messages are the format's own wherever it
has one.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .composites import Composite, Group, Map, Subgraph
from .errors import CompilationFailed
from .handler import is_async
from .interrupts import has_node, inside
from .node import EventWait, NodeMode, TimerWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from .compiled import CompiledGraph, GraphParts
    from .composites import FanOut
    from .node import Boundary, NodeSpec
    from .retry import Backoff

S = TypeVar("S")


def check_hops(max_node_hops: int | None) -> None:
    """A limit lets one node run at least."""
    if max_node_hops is not None and max_node_hops < 1:
        raise CompilationFailed("max_node_hops must be at least 1")


def check_identity(graph_id: str | None, version: str | None, *, migrates: bool) -> None:
    """A version and a migration need an ID, and none may be blank."""
    if version is not None and graph_id is None:
        raise CompilationFailed("graph_version needs a graph_id")
    if migrates and graph_id is None:
        raise CompilationFailed("a migration needs a graph_id")
    if graph_id is not None and not graph_id.strip():
        raise CompilationFailed("graph_id must not be blank")
    if version is not None and not version.strip():
        raise CompilationFailed("graph_version must not be blank")


def check_parts(parts: GraphParts[Any]) -> None:
    """Each part by itself; the first rule broken is told."""
    composites = parts.composites
    _check_groups({name: one for name, one in composites.items() if isinstance(one, Group)})
    _check_maps({name: one for name, one in composites.items() if isinstance(one, Map)})
    _check_reductions(composites)
    _check_waits(parts.waits, parts.boundaries.keys())
    _check_boundaries(parts.boundaries)
    _check_policies(parts.nodes, parts.nodes.keys() | parts.waits.keys())
    _check_timeouts(parts.nodes)
    _check_metadata(parts.metadata, composites)
    _check_ways_on(parts.waits.keys(), {start for start, _ in parts.ways})


def _check_groups(groups: Mapping[str, Group[Any]]) -> None:
    """Groups have branches, each by a name of its own, and limits that let them run."""
    for name, group in groups.items():
        owner = f"parallel group '{name}'"
        if not group.branches:
            raise CompilationFailed(f"{owner} has no branches")
        seen = set[str]()
        for branch in group.branches:
            if branch.name in seen:
                raise CompilationFailed(f"{owner} has more than one branch named '{branch.name}'")
            if not branch.name or "/" in branch.name:
                raise CompilationFailed(f"{owner} has a branch named '{branch.name}', which is no name")
            seen.add(branch.name)
        _check_fan_out(owner, group.fan_out, "branch")


def _check_maps(maps: Mapping[str, Map[Any]]) -> None:
    """Maps have limits that let them run, and items that can't freeze."""
    for name, map_ in maps.items():
        owner = f"map '{name}'"
        _check_fan_out(owner, map_.fan_out, "item")
        if map_.max_items is not None and map_.max_items < 1:
            raise CompilationFailed(f"{owner} has a max_items of {map_.max_items}; it must be at least 1")
        where = next(_freezing(map_.child, "", frozenset()), None)
        if where is not None:
            raise CompilationFailed(f"{owner} runs a graph with {where}; a map item can't freeze")


def _freezing(graph: CompiledGraph[Any], prefix: str, stops: frozenset[str]) -> Iterator[str]:
    """Where an item would freeze, in node order; `stops` are the static interrupts set above."""
    stops |= graph.interrupt_before | graph.interrupt_after
    for name in graph.names:
        path = prefix + name
        if name in graph.boundaries:
            yield f"an interrupt boundary at '{path}'"
        if name in graph.waits:
            yield f"a wait at '{path}'"
        if name in stops:
            yield f"a static interrupt at '{path}'"
        composite = graph.composites.get(name)
        if isinstance(composite, (Map, Subgraph)):
            yield from _freezing(composite.child, f"{path}/", inside(stops, name))


def _check_reductions(composites: Mapping[str, Composite[Any]]) -> None:
    """A group or a map says in one way what becomes of its results, by plain functions."""
    for name, composite in composites.items():
        for what, function in _functions(composite):
            if is_async(function):
                raise CompilationFailed(f"'{name}' has an async {what}: make it a plain function")
        if isinstance(composite, Subgraph):
            continue
        fan_out = composite.fan_out
        if (fan_out.reduce is None) == (fan_out.reduce_outcomes is None):
            raise CompilationFailed(f"'{name}' takes either a reduce or a reduce_outcomes, and exactly one")


def _functions(composite: Composite[Any]) -> Iterator[tuple[str, Callable[..., object] | None]]:
    match composite:
        case Group():
            pass
        case Map():
            yield from (("items", composite.items), ("key", composite.key), ("input", composite.input))
        case Subgraph():
            yield from (("input", composite.input), ("output", composite.output))
            return
    fan_out = composite.fan_out
    yield from (("reduce", fan_out.reduce), ("reduce_outcomes", fan_out.reduce_outcomes))
    yield "match", fan_out.join.matches


def check_interrupts(
    nodes: AbstractSet[str], composites: Mapping[str, Composite[Any]], paths: AbstractSet[str]
) -> None:
    """Static interrupts name nodes that there are, of this level or inside its subgraphs."""
    for path in sorted(paths):
        if not has_node(nodes, composites, path):
            raise CompilationFailed(f"the graph is to be interrupted at '{path}', and has no such node")


def _check_waits(waits: Mapping[str, EventWait | TimerWait[S]], boundaries: AbstractSet[str]) -> None:
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


def _check_boundaries(boundaries: Mapping[str, Boundary]) -> None:
    """Timeouts are above zero, and a timeout route has one."""
    for name in sorted(boundaries, key=str.encode):
        boundary = boundaries[name]
        _check_timeout(f"interrupt boundary '{name}'", boundary.timeout, boundary.on_timeout)


def _check_policies(nodes: Mapping[str, NodeSpec[S]], names: AbstractSet[str]) -> None:
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


def _check_timeouts(nodes: Mapping[str, NodeSpec[S]]) -> None:
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


def _check_metadata(
    metadata: Mapping[str, Mapping[str, str]], composites: Mapping[str, Composite[Any]]
) -> None:
    """Keys of nodes' and branches' metadata are the author's own."""
    owners = [(f"node '{name}'", metadata[name]) for name in sorted(metadata)]
    for name, composite in composites.items():
        if isinstance(composite, Group):
            owners += [
                (f"branch '{branch}' of parallel group '{name}'", keys)
                for branch, keys in composite.branch_metadata.items()
            ]
    for owner, keys in owners:
        for key in keys:
            if not key:
                raise CompilationFailed(f"metadata on {owner} has an empty key")
            if key.startswith("strata."):
                raise CompilationFailed(f"metadata key '{key}' on {owner} is reserved")


def _check_ways_on(waits: AbstractSet[str], starts: AbstractSet[str]) -> None:
    """Every wait has an edge: what answers it has to lead somewhere."""
    for name in sorted(waits - starts, key=str.encode):
        raise CompilationFailed(f"'{name}' is a wait node with no way on: add an edge from it")


def _check_fan_out(owner: str, fan_out: FanOut, one: str) -> None:
    most, timeout = fan_out.max_concurrency, fan_out.timeout
    if most is not None and most < 1:
        raise CompilationFailed(f"{owner} has a max_concurrency of {most}; it must be at least 1")
    if timeout is not None and not 0 < timeout < math.inf:
        amount = "zero" if timeout == 0 else f"{timeout} s"
        raise CompilationFailed(f"{owner} has {_a(one)} timeout of {amount}; it must be greater than zero")


def _a(one: str) -> str:
    return f"an {one}" if one == "item" else f"a {one}"


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
