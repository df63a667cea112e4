"""Building a graph: nodes, edges, boundaries and waits by name, then `compile()`.

Collects what the author says in the order it is said, and knows nothing about running it.
What can be told wrong at once (a name taken twice, a function that can't be a node) is
refused at once; the rest when compiling, where the whole graph is known. A compiled graph
never changes, whatever is done to its builder later.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, Unpack, overload

from outcrop.stores.record import GraphIdentity

from .compiled import CompiledGraph, GraphParts
from .composites import FanOut, Join, Map, Partial, Subgraph, streams
from .defining import define
from .errors import CompilationFailed, GraphInvalid
from .group_builder import GroupBuilder
from .handler import is_async
from .node import Boundary, Edge, EventWait, NodeMode, NodeSpec, TimerWait
from .node_decorator import NodeDecorator, node_spec, optional_span, seconds
from .options import CheckpointPolicy
from .retry import Retry
from .state import codec_for
from .structure import problems_of
from .validate import check_hops, check_identity, check_interrupts, check_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from .compiled import Migration
    from .composites import Composite, Joined
    from .definition import GraphDefinition
    from .handler import NodeFunction
    from .node import NodeContext
    from .node_decorator import Duration, NodeOptions, NodeRef

S = TypeVar("S")
C = TypeVar("C")
I = TypeVar("I")  # noqa: E741 - an item

_ALL = Join()
_NO_METADATA: Mapping[str, str] = MappingProxyType({})


class Policies(TypedDict, total=False):
    """What may be said of every node that is made of other work; see `Graph.node`."""

    retry: Retry
    timeout: Duration | None
    fallback: NodeRef | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Place(Generic[S]):
    """A name of the graph: a node, a wait, or nothing yet but what a boundary stands on."""

    content: NodeSpec[S] | EventWait | TimerWait[S] | None = None
    function: object = None  # as the author wrote it, to be named by
    composite: GroupBuilder[S] | Map[S] | Subgraph[S] | None = None


class Graph(Generic[S]):
    """A graph over states of one type: a pydantic model, a dataclass, a TypedDict or a dict.

    The first name added is the entry, unless `entry` says otherwise. `id` and `version` are
    written on every row, and only a graph of the same ones may carry a thread on.
    """

    def __init__(
        self,
        state_type: type[S],
        *,
        id: str | None = None,  # noqa: A002 - `Graph(Order, id="orders")` is what it is called
        version: str | None = None,
    ) -> None:
        self._states = codec_for(state_type)
        self._id = id
        self._version = version
        self._places: dict[str, _Place[S]] = {}
        self._edges: list[tuple[str, Edge[S]]] = []
        self._boundaries: dict[str, Boundary] = {}
        self._metadata: dict[str, Mapping[str, str]] = {}
        self._entry: str | None = None

    @property
    def node(self) -> NodeDecorator[S]:
        """Add a node: `@graph.node`, or `@graph.node(retry=…, timeout=…, fallback=…)`."""
        return NodeDecorator(self._add_function)

    def edge(self, from_: NodeRef, to: NodeRef, when: Callable[[S], bool] | None = None) -> None:
        """Add a way on; a node's edges are tried in the order added, and the first that holds is taken.

        `when` sees the state as the node left it; an edge without one always holds, so put it
        last. A node with no edges ends the run; one whose edges all say no fails it.
        """
        if is_async(when):
            raise CompilationFailed(
                f"the edge from '{self._name(from_)}' to '{self._name(to)}' has an async condition, "
                "which would always hold: make it a plain function of the state"
            )
        self._edges.append((self._name(from_), Edge(self._name(to), when)))

    def entry(self, node: NodeRef) -> None:
        """Start at this node instead of the first one added."""
        self._entry = self._name(node)

    def interrupt(
        self,
        node: NodeRef,
        *,
        on_reject: NodeRef | None = None,
        timeout: Duration | None = None,
        on_timeout: NodeRef | None = None,
    ) -> None:
        """Wait for a person's answer after this node, before going on.

        An approval goes on along the node's edges; a rejection to `on_reject`, or along the
        edges too without one. Unanswered for `timeout`, the thread goes to `on_timeout`, or
        ends without one. A name that has no node yet becomes one that only waits; a node
        added by that name later does its work first. Saying it again replaces all of it.
        """
        name = self._name(node)
        self._places.setdefault(name, _Place())
        self._boundaries[name] = Boundary(
            on_reject=self._optional_name(on_reject),
            timeout=optional_span(timeout),
            on_timeout=self._optional_name(on_timeout),
        )

    def wait_for_event(
        self,
        name: str,
        *,
        event: str,
        timeout: Duration | None = None,
        on_timeout: NodeRef | None = None,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> None:
        """Add a node that waits for an event of this type, whose payload is laid over the state.

        Without the event for `timeout`, the thread goes to `on_timeout`, or ends without one.
        """
        wait = EventWait(
            event=event, timeout=optional_span(timeout), on_timeout=self._optional_name(on_timeout)
        )
        self._add(name, _Place(wait), metadata)

    @overload
    def timer(self, name: str, *, delay: Duration, metadata: Mapping[str, str] = ...) -> None: ...
    @overload
    def timer(
        self, name: str, *, until: Callable[[S], datetime], metadata: Mapping[str, str] = ...
    ) -> None: ...
    def timer(
        self,
        name: str,
        *,
        delay: Duration | None = None,
        until: Callable[[S], datetime] | None = None,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> None:
        """Add a node that waits for a while, or until an aware time that the state tells."""
        if (delay is None) == (until is None):
            raise CompilationFailed(f"timer '{name}' takes either a delay or an until, and exactly one")
        self._add(name, _Place(TimerWait(delay=optional_span(delay), until=until)), metadata)

    def group(
        self,
        name: str,
        *,
        reduce: Callable[[S, Sequence[S]], S | None] | None = None,
        reduce_outcomes: Callable[[S, Joined[S]], S | None] | None = None,
        join: Join = _ALL,
        partial: Partial = Partial.FAIL_GROUP,
        max_concurrency: int | None = None,
        branch_timeout: Duration | None = None,
        cancel_siblings: bool = True,
        keep_finished: bool = False,
        **policies: Unpack[Policies],
    ) -> GroupBuilder[S]:
        """Add a node that runs branches beside each other; add them with `@group.branch`.

        Each branch starts from the state that the node starts with. `reduce` puts the states of
        those that decided (all, unless `join` says otherwise) into the entry state, in the order
        declared; `reduce_outcomes` is told how every branch ended. `partial` says what becomes
        of a join that can't be met. `keep_finished` saves results as they come, so that a
        recovery runs only the unfinished branches.
        """
        fan_out = FanOut(
            reduce=reduce,
            reduce_outcomes=reduce_outcomes,
            join=join,
            partial=partial,
            max_concurrency=max_concurrency,
            timeout=seconds(branch_timeout),
            cancel_siblings=cancel_siblings,
            keep_finished=keep_finished,
        )
        group: GroupBuilder[S] = GroupBuilder(name, fan_out)
        self._add_composite(name, group, policies)
        return group

    def map(
        self,
        name: str,
        child: CompiledGraph[C],
        *,
        items: Callable[[S], Sequence[I]],
        key: Callable[[I], str],
        input: Callable[[S, I], C],  # noqa: A002 - what it is called
        reduce: Callable[[S, Sequence[C]], S | None] | None = None,
        reduce_outcomes: Callable[[S, Joined[C]], S | None] | None = None,
        join: Join = _ALL,
        partial: Partial = Partial.FAIL_GROUP,
        max_concurrency: int = 8,
        item_timeout: Duration | None = None,
        cancel_siblings: bool = True,
        max_items: int | None = None,
        keep_finished: bool = False,
        **policies: Unpack[Policies],
    ) -> None:
        """Add a node that runs the child graph for each item of the state, as `group` runs branches.

        `key` names an item in paths and idempotency keys, and must be the same when the node runs
        again; `input` makes the child's state, when the item starts.
        """
        fan_out = FanOut(
            reduce=reduce,
            reduce_outcomes=reduce_outcomes,
            join=join,
            partial=partial,
            max_concurrency=max_concurrency,
            timeout=seconds(item_timeout),
            cancel_siblings=cancel_siblings,
            keep_finished=keep_finished,
        )
        map_ = Map(items=items, key=key, input=input, child=child, fan_out=fan_out, max_items=max_items)
        self._add_composite(name, map_, policies)

    def subgraph(
        self,
        name: str,
        child: CompiledGraph[C],
        *,
        input: Callable[[S], C],  # noqa: A002 - what it is called
        output: Callable[[S, C], S | None],
        **policies: Unpack[Policies],
    ) -> None:
        """Add a node that runs a whole graph, over states of its own type.

        `input` makes the child's first state; `output` puts its last into the state that the
        node started with.
        """
        self._add_composite(name, Subgraph(child=child, input=input, output=output), policies)

    def definition(self) -> GraphDefinition:
        """The graph as data, whether it compiles or not; a compiled graph's has its identity too."""
        return define(self._parts())

    def compile(
        self,
        *,
        checkpoints: CheckpointPolicy = CheckpointPolicy.BOUNDARIES,
        max_node_hops: int | None = None,
        migration: Migration | None = None,
        interrupt_before: Iterable[NodeRef] = (),
        interrupt_after: Iterable[NodeRef] = (),
    ) -> CompiledGraph[S]:
        """The graph, checked and fixed, ready to run threads.

        At most `max_node_hops` nodes run at this level in a thread's life; a loop that runs
        away fails there. `migration` takes a level of another version of this graph, and
        returns it as this version has it, or None to refuse it. Threads wait for a person
        before and after the nodes named in `interrupt_before` and `interrupt_after`.

        Raises `CompilationFailed` for the first rule broken, else `GraphInvalid` with every
        fault of the structure.
        """
        parts = self._parts()
        before, after = self._stops(interrupt_before), self._stops(interrupt_after)
        check_hops(max_node_hops)
        check_identity(self._id, self._version, migrates=migration is not None)
        check_parts(parts)
        check_interrupts(parts.nodes.keys(), parts.composites, before | after)
        if problems := problems_of(define(parts)):
            raise GraphInvalid(problems)
        return CompiledGraph(
            identity=None if self._id is None else GraphIdentity(self._id, self._version),
            policy=checkpoints,
            entry=parts.entry,
            states=self._states,
            names=parts.names,
            nodes=parts.nodes,
            waits=parts.waits,
            composites=parts.composites,
            edges=MappingProxyType(self._edges_by_node()),
            ways=parts.ways,
            boundaries=parts.boundaries,
            max_node_hops=max_node_hops,
            migration=migration,
            interrupt_before=before,
            interrupt_after=after,
            streaming=frozenset(
                name
                for name, node in parts.nodes.items()
                if node.streams or streams(parts.composites.get(name))
            ),
            metadata=parts.metadata,
        )

    def _stops(self, nodes: Iterable[NodeRef]) -> frozenset[str]:
        if isinstance(nodes, str):
            raise CompilationFailed(f"interrupts are named in a list: ['{nodes}'], not '{nodes}'")
        return frozenset(map(self._name, nodes))

    def _parts(self) -> GraphParts[S]:
        """The graph as it is now, out of reach of what is said later."""
        return GraphParts(
            entry=next(iter(self._places), "") if self._entry is None else self._entry,
            names=tuple(self._places),
            nodes=MappingProxyType(dict(self._nodes())),
            waits=MappingProxyType(dict(self._waits())),
            composites=MappingProxyType(dict(self._composites())),
            boundaries=MappingProxyType(dict(self._boundaries)),
            ways=tuple(self._edges),
            metadata=MappingProxyType(dict(self._metadata)),
        )

    def _add_function(self, function: NodeFunction[S], options: NodeOptions) -> None:
        fallback = self._optional_name(options.fallback)
        spec: NodeSpec[S] = node_spec(function, options, fallback=fallback)
        self._add(spec.name, _Place(spec, function), options.metadata)

    def _add_composite(
        self, name: str, composite: GroupBuilder[S] | Map[S] | Subgraph[S], policies: Policies
    ) -> None:
        spec: NodeSpec[S] = NodeSpec(
            name=name,
            handler=_pass_through,
            mode=NodeMode.COMPOSITE,
            retry=policies.get("retry", Retry()),
            timeout=seconds(policies.get("timeout")),
            fallback=self._optional_name(policies.get("fallback")),
        )
        self._add(name, _Place(spec, composite=composite), policies.get("metadata", {}))

    def _add(self, name: str, place: _Place[S], metadata: Mapping[str, str] = _NO_METADATA) -> None:
        """Add a name, or put something in the place that a boundary made for it."""
        if not name or "/" in name:
            raise CompilationFailed(f"'{name}' is no name of a node: paths are made of names with / between")
        if name in self._places and self._places[name].content is not None:
            raise CompilationFailed(f"'{name}' was already added to the graph: give this one another name")
        self._places[name] = place
        if metadata:
            self._metadata[name] = dict(metadata)

    def _name(self, node: NodeRef) -> str:
        if isinstance(node, str):
            return node
        names = [name for name, place in self._places.items() if place.function == node]
        if len(names) == 1:
            return names[0]
        label = getattr(node, "__name__", repr(node))
        if names:
            raise CompilationFailed(f"function '{label}' is more than one node: say which by its name")
        raise CompilationFailed(f"function '{label}' is not a node of this graph: add it first")

    def _optional_name(self, node: NodeRef | None) -> str | None:
        return None if node is None else self._name(node)

    def _nodes(self) -> Iterator[tuple[str, NodeSpec[S]]]:
        for name, place in self._places.items():
            if place.content is None:
                yield name, NodeSpec(name=name, handler=_pass_through, mode=NodeMode.INLINE, retry=Retry())
            elif isinstance(place.content, NodeSpec):
                yield name, place.content

    def _waits(self) -> Iterator[tuple[str, EventWait | TimerWait[S]]]:
        for name, place in self._places.items():
            if isinstance(place.content, (EventWait, TimerWait)):
                yield name, place.content

    def _edges_by_node(self) -> dict[str, tuple[Edge[S], ...]]:
        edges: dict[str, tuple[Edge[S], ...]] = {}
        for start, edge in self._edges:
            edges[start] = (*edges.get(start, ()), edge)
        return edges

    def _composites(self) -> Iterator[tuple[str, Composite[S]]]:
        for name, place in self._places.items():
            if isinstance(place.composite, GroupBuilder):
                yield name, place.composite.built()
            elif place.composite is not None:
                yield name, place.composite


def _pass_through(_state: object, _context: NodeContext) -> None:
    return None
