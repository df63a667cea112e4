"""`@graph.node` and `@group.branch`: a function becomes a node, with options.

Owns how functions are named and turned into `NodeSpec`s; where they go is the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from .errors import CompilationFailed
from .handler import node_handler, node_mode
from .node import NodeSpec
from .retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .handler import AsyncContextNode, AsyncNode, NodeFunction, SyncContextNode, SyncNode

S = TypeVar("S")

NodeRef: TypeAlias = "str | Callable[..., object]"
"""A node by its name, or by the function that was added as it."""

Duration: TypeAlias = timedelta | float
"""A span of time; a plain number is seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What may be said of a node beside its function."""

    name: str | None = None
    retry: Retry = Retry()  # noqa: RUF009 - frozen, so sharing one is safe
    timeout: Duration | None = None
    fallback: NodeRef | None = None
    inline: bool = False
    streams: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOptions:
    """What may be said of a group's branch beside its function."""

    name: str | None = None
    streams: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


class NodeDecorator(Generic[S]):
    """`@graph.node`, bare or with options; returns the function as it was.

    A node is sync or async, and takes the state, or the state and a `NodeContext`. It edits
    its own copy of the state and returns nothing, or returns the new state. Async nodes run
    on the event loop, sync ones on worker threads, or with `inline` on the loop at once
    (for work of microseconds: nothing else runs meanwhile, and no timeout can stop it). One
    that `streams` emits through `ctx.stream`, and runs in streaming runs only. `metadata`
    describes the node in exports.
    """

    def __init__(
        self,
        add: Callable[[NodeFunction[S], NodeOptions], None],
        options: NodeOptions = NodeOptions(),
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
        streams: bool = False,
        metadata: Mapping[str, str] = ...,
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


class BranchDecorator(Generic[S]):
    """`@group.branch`, bare or with options; returns the function as it was.

    A branch is what a node is, sync or async; its retries and its timeout are the group's.
    """

    def __init__(
        self,
        add: Callable[[NodeFunction[S], BranchOptions], None],
        options: BranchOptions = BranchOptions(),
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
        self, *, name: str | None = None, streams: bool = False, metadata: Mapping[str, str] = ...
    ) -> BranchDecorator[S]: ...
    def __call__(self, function: NodeFunction[S] | None = None, **options: Any) -> object:
        """Add the function as a branch, named like it unless `name` says otherwise."""
        if function is None:
            return BranchDecorator(self._add, replace(self._options, **options))
        self._add(function, self._options)
        return function


def node_spec(
    function: NodeFunction[S], options: NodeOptions | BranchOptions, *, fallback: str | None = None
) -> NodeSpec[S]:
    """The function as a node; raises `CompilationFailed` when it can't be one."""
    name = options.name or getattr(function, "__name__", None)
    if name is None or name == "<lambda>":
        raise CompilationFailed("a node that is no named function needs a name: node(name=…)")
    if isinstance(options, BranchOptions):
        options = NodeOptions(streams=options.streams)
    return NodeSpec(
        name=name,
        handler=node_handler(name, function),
        mode=node_mode(name, function, inline=options.inline),
        retry=options.retry,
        timeout=seconds(options.timeout),
        fallback=fallback,
        streams=options.streams,
    )


def seconds(duration: Duration | None) -> float | None:
    """A span in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def optional_span(duration: Duration | None) -> timedelta | None:
    """A span as one, where there is one."""
    if duration is None or isinstance(duration, timedelta):
        return duration
    return timedelta(seconds=duration)
