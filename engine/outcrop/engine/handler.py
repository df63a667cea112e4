"""What people may write as a node, and how it becomes one shape: handler(state, context).

Reads a function's signature once, when it is added, so that a mistake shows at import and
not in the middle of a thread. Runs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from .errors import CompilationFailed
from .node import NodeContext, NodeMode

if TYPE_CHECKING:
    from .node import Handler

S = TypeVar("S")

SyncNode: TypeAlias = Callable[[S], "S | None"]
SyncContextNode: TypeAlias = Callable[[S, NodeContext], "S | None"]
AsyncNode: TypeAlias = Callable[[S], Coroutine[Any, Any, "S | None"]]
AsyncContextNode: TypeAlias = Callable[[S, NodeContext], Coroutine[Any, Any, "S | None"]]
NodeFunction: TypeAlias = "SyncNode[S] | SyncContextNode[S] | AsyncNode[S] | AsyncContextNode[S]"

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_STATE_AND_CONTEXT = 2


def is_async(function: object) -> bool:
    """Whether calling this returns a coroutine: an async function, or an object called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - what it is, not whether it can be called
    )


def node_mode(name: str, function: NodeFunction[S], *, inline: bool) -> NodeMode:
    """Where the function runs; raises `CompilationFailed` for one that can't be a node."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise CompilationFailed(f"node '{name}' is a generator, which would never run: return the state")
    if not is_async(function):
        return NodeMode.INLINE if inline else NodeMode.THREAD
    if inline:
        raise CompilationFailed(
            f"node '{name}' is async and can't run inline: leave inline out, async nodes run on the loop"
        )
    return NodeMode.ASYNC


def node_handler(name: str, function: NodeFunction[S]) -> Handler[S]:
    """The function as handler(state, context); raises `CompilationFailed` for another signature."""
    if _wants_context(name, function):
        return cast("Handler[S]", function)
    plain = cast("SyncNode[S] | AsyncNode[S]", function)
    return lambda state, _context: plain(state)


def _wants_context(name: str, function: NodeFunction[S]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    takes_more = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
    required = [parameter for parameter in positional if parameter.default is Parameter.empty]
    keywords = [
        parameter
        for parameter in parameters
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty
    ]
    if keywords or len(required) > _STATE_AND_CONTEXT or not (positional or takes_more):
        raise CompilationFailed(
            f"node '{name}' is called with (state) or (state, context), and its function takes something else"
        )
    return takes_more or len(positional) >= _STATE_AND_CONTEXT
