"""Building a graph: nodes, edges, boundaries and waits by name, then `compile()`.

Collects what the author says in the order it is said, and knows nothing about running it.
What can be told wrong at once (a name taken twice, a function that can't be a node) is
refused at once; the rest when compiling, where the whole graph is known. A compiled graph
never changes, whatever is done to its builder later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from outcrop.stores.record import GraphIdentity

from .compiled import CompiledGraph
from .errors import CompilationFailed, GraphInvalid
from .handler import is_async, node_handler, node_mode
from .node import Boundary, Edge, EventWait, NodeMode, NodeSpec, TimerWait
from .options import CheckpointPolicy
from .retry import Retry
from .state import codec_for
from .validate import (
    Link,
    Structure,
    check_boundaries,
    check_identity,
    check_policies,
    check_timeouts,
    check_waits,
    check_ways_on,
    structural_problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .handler import AsyncContextNode, AsyncNode, NodeFunction, SyncContextNode, SyncNode
    from .node import NodeContext

S = TypeVar("S")

NodeRef: TypeAlias = "str | Callable[..., object]"
"""A node by its name, or by the function that was added as it."""

Duration: TypeAlias = timedelta | float
"""A span of time; a plain number is seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeOptions:
    name: str | None = None
    retry: Retry = Retry()  # noqa: RUF009 - frozen, so sharing one is safe
    timeout: Duration | None = None
    fallback: NodeRef | None = None
    inline: bool = False


@dataclass(frozen=True, slots=True)
class _Place(Generic[S]):
    """A name of the graph: a node, a wait, or nothing yet but what a boundary stands on."""

    content: NodeSpec[S] | EventWait | TimerWait[S] | None = None
    function: object = None  # as the author wrote it, to be named by


class NodeDecorator(Generic[S]):
    """`@graph.node`, bare or with options; returns the function as it was.

    A node is sync or async, and takes the state, or the state and a `NodeContext`. It edits
    its own copy of the state and returns nothing, or returns the new state. Async nodes run
    on the event loop, sync ones on worker threads, or with `inline` on the loop at once
    (for work of microseconds: nothing else runs meanwhile, and no timeout can stop it).
    """

    def __init__(
        self,
        add: Callable[[NodeFunction[S], _NodeOptions], None],
        options: _NodeOptions = _NodeOptions(),
    ) -> None:
        self._add = add
        self._options = options

    @overload
    def __call__(self, function: AsyncNode[S], /) -> AsyncNode[S]: ...
    @overload
    def __call__(self, function: AsyncContextNode[S], /) -> AsyncContextNode[S]: ...
    @overload
    def __call__(self, function: SyncNode[S], /) -> SyncNode[S]: ...
    @overload
    def __call__(self, function: SyncContextNode[S], /) -> SyncContextNode[S]: ...
    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        retry: Retry = ...,
        timeout: Duration | None = None,
        fallback: NodeRef | None = None,
        inline: bool = False,
    ) -> NodeDecorator[S]: ...
    def __call__(
        self,
        function: NodeFunction[S] | None = None,
        **options: Any,
    ) -> object:
        """Add the function as a node, named like it unless `name` says otherwise.

        `timeout` is for each attempt; `retry` says what follows a failed one, and `fallback`
        names the node that follows the last. Raises `CompilationFailed` when the name is
        taken or the function can't be a node.
        """
        if function is None:
            return NodeDecorator(self._add, replace(self._options, **options))
        self._add(function, self._options)
        return function


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
            timeout=_optional_span(timeout),
            on_timeout=self._optional_name(on_timeout),
        )

    def wait_for_event(
        self,
        name: str,
        *,
        event: str,
        timeout: Duration | None = None,
        on_timeout: NodeRef | None = None,
    ) -> None:
        """Add a node that waits for an event of this type, whose payload is laid over the state.

        Without the event for `timeout`, the thread goes to `on_timeout`, or ends without one.
        """
        wait = EventWait(
            event=event, timeout=_optional_span(timeout), on_timeout=self._optional_name(on_timeout)
        )
        self._add(name, _Place(wait))

    @overload
    def timer(self, name: str, *, delay: Duration) -> None: ...
    @overload
    def timer(self, name: str, *, until: Callable[[S], datetime]) -> None: ...
    def timer(
        self,
        name: str,
        *,
        delay: Duration | None = None,
        until: Callable[[S], datetime] | None = None,
    ) -> None:
        """Add a node that waits for a while, or until an aware time that the state tells."""
        if (delay is None) == (until is None):
            raise CompilationFailed(f"timer '{name}' takes either a delay or an until, and exactly one")
        self._add(name, _Place(TimerWait(delay=_optional_span(delay), until=until)))

    def compile(self, *, checkpoints: CheckpointPolicy = CheckpointPolicy.BOUNDARIES) -> CompiledGraph[S]:
        """The graph, checked and fixed, ready to run threads.

        Raises `CompilationFailed` for the first rule broken, else `GraphInvalid` with every
        fault of the structure.
        """
        nodes = dict(self._nodes())
        waits = dict(self._waits())
        check_identity(self._id, self._version)
        check_waits(waits, self._boundaries.keys())
        check_boundaries(self._boundaries)
        check_policies(nodes, self._places.keys())
        check_timeouts(nodes)
        check_ways_on(waits.keys(), self._edges_by_node().keys())
        structure = self._structure()
        if problems := structural_problems(structure):
            raise GraphInvalid(problems)
        return CompiledGraph(
            identity=None if self._id is None else GraphIdentity(self._id, self._version),
            policy=checkpoints,
            entry=structure.entry,
            states=self._states,
            nodes=MappingProxyType(nodes),
            waits=MappingProxyType(waits),
            edges=MappingProxyType(self._edges_by_node()),
            boundaries=MappingProxyType(dict(self._boundaries)),
        )

    def _add_function(self, function: NodeFunction[S], options: _NodeOptions) -> None:
        name = options.name or getattr(function, "__name__", None)
        if name is None or name == "<lambda>":
            raise CompilationFailed("a node that is no named function needs a name: node(name=…)")
        timeout = options.timeout
        spec: NodeSpec[S] = NodeSpec(
            name=name,
            handler=node_handler(name, function),
            mode=node_mode(name, function, inline=options.inline),
            retry=options.retry,
            timeout=timeout.total_seconds() if isinstance(timeout, timedelta) else timeout,
            fallback=self._optional_name(options.fallback),
        )
        self._add(name, _Place(spec, function))

    def _add(self, name: str, place: _Place[S]) -> None:
        """Add a name, or put something in the place that a boundary made for it."""
        if name in self._places and self._places[name].content is not None:
            raise CompilationFailed(f"'{name}' was already added to the graph: give this one another name")
        self._places[name] = place

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

    def _structure(self) -> Structure:
        first = next(iter(self._places), "")
        return Structure(
            entry=first if self._entry is None else self._entry,
            nodes=tuple(self._places),
            links=(
                *(Link(start, edge.to, edge.when is not None) for start, edge in self._edges),
                *self._routes(),
            ),
        )

    def _routes(self) -> Iterator[Link]:
        """Ways out of trouble: fallbacks, then rejections, then timeouts, in node order."""
        for name, node in self._nodes():
            if node.fallback is not None:
                yield Link(name, node.fallback, guarded=True)
        for name in self._places:
            boundary = self._boundaries.get(name)
            if boundary is not None and boundary.on_reject is not None:
                yield Link(name, boundary.on_reject, guarded=True)
        for name, place in self._places.items():
            waiting = place.content if isinstance(place.content, EventWait) else self._boundaries.get(name)
            if waiting is not None and waiting.on_timeout is not None:
                yield Link(name, waiting.on_timeout, guarded=True)


def _pass_through(_state: object, _context: NodeContext) -> None:
    return None


def _optional_span(duration: Duration | None) -> timedelta | None:
    if duration is None or isinstance(duration, timedelta):
        return duration
    return timedelta(seconds=duration)
