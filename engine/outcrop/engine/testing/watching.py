"""A compiled graph with every handler watched: which node ran under which key, and which is to fail.

Owns the wrapping, at every level; what a node does and how it runs stays its own. The one
exception: a sync node that is to time out is run from an async one, whose timeout can be skipped to.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

from outcrop.engine.composites import Group
from outcrop.engine.node import NodeMode

from .effects import Execution, current
from .script import TimesOut

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.engine.composites import Composite
    from outcrop.engine.node import NodeContext, NodeSpec

    from .script import Performance

S = TypeVar("S")


@dataclass(slots=True)
class Watcher:
    """Sees every execution of a graph's nodes, and makes those fail that the script says."""

    script: Performance
    executions: list[Execution] = field(default_factory=list[Execution])
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def watched(self, graph: CompiledGraph[S]) -> CompiledGraph[S]:
        """The graph, watched on all its levels."""
        nodes = {name: self._node(node) for name, node in graph.nodes.items()}
        composites = {name: self._composite(one) for name, one in graph.composites.items()}
        return replace(graph, nodes=MappingProxyType(nodes), composites=MappingProxyType(composites))

    def _composite(self, composite: Composite[S]) -> Composite[S]:
        if isinstance(composite, Group):
            return replace(composite, branches=tuple(map(self._node, composite.branches)))
        return replace(composite, child=self.watched(composite.child))

    def _node(self, spec: NodeSpec[S]) -> NodeSpec[S]:
        if spec.mode is NodeMode.COMPOSITE:
            return spec
        if spec.mode is NodeMode.ASYNC:
            handler = cast("Callable[[S, NodeContext], Awaitable[S | None]]", spec.handler)
            return replace(spec, handler=self._async(handler))
        plain = cast("Callable[[S, NodeContext], S | None]", spec.handler)
        if self.script.times_out(spec.name):
            return replace(spec, mode=NodeMode.ASYNC, handler=self._async(_threaded(plain)))
        return replace(spec, handler=self._sync(plain))

    def _async(
        self, handler: Callable[[S, NodeContext], Awaitable[S | None]]
    ) -> Callable[[S, NodeContext], Awaitable[S | None]]:
        async def watched(state: S, context: NodeContext) -> S | None:
            with self._execution(context) as hangs:
                if hangs:
                    await asyncio.get_running_loop().create_future()
                return await handler(state, context)

        return watched

    def _sync(self, handler: Callable[[S, NodeContext], S | None]) -> Callable[[S, NodeContext], S | None]:
        def watched(state: S, context: NodeContext) -> S | None:
            with self._execution(context):
                return handler(state, context)

        return watched

    @contextmanager
    def _execution(self, context: NodeContext) -> Generator[bool]:
        """Around one attempt; fails it as the script says, or tells that it is to hang."""
        execution = Execution(
            number=next(self._numbers),
            path=context.node_path,
            visit=context.idempotency_key,
            attempt=context.attempt,
            is_recovery=context.is_recovery,
        )
        self.executions.append(execution)
        before = current.set(execution)
        try:
            fault = self.script.fault(context.node_path)
            if isinstance(fault, Exception):
                raise fault
            yield isinstance(fault, TimesOut)
        finally:
            current.reset(before)


def _threaded(
    handler: Callable[[S, NodeContext], S | None],
) -> Callable[[S, NodeContext], Awaitable[S | None]]:
    async def threaded(state: S, context: NodeContext) -> S | None:
        return await asyncio.to_thread(handler, state, context)

    return threaded
