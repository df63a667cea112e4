"""One attempt of a composite node, as `groups`, `maps` and `subgraphs` see it.

What they may use of the level that runs them, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cancellation import CancelToken
    from .compiled import CompiledGraph
    from .ends import LevelEnd
    from .node import NodeContext, NodeSpec
    from .position import Position
    from .run import Run
    from .state import StateCodec

S = TypeVar("S")


class Child(Protocol):
    """A level to be run below this one."""

    async def run(self, start: Position, *, is_fresh: bool = True) -> LevelEnd:
        """Run it to an end; raises what the run itself dies of (a lost lease, a panic)."""
        ...


class OpenChild(Protocol):
    """Makes the level below the visited node."""

    def __call__(
        self, graph: CompiledGraph[Any], *, name: str, token: CancelToken, is_item: bool, is_recovery: bool
    ) -> Child:
        """A child's level. `name` is the subgraph node's, or `<map>/<key>` for an item of a map.

        An item's level writes no rows, asks no questions and keeps no results;
        `is_recovery` is told to every node of an item's.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Visit(Generic[S]):
    """An attempt of the composite node `spec`, which starts from `position.state` (JSON text).

    `context` is the attempt's own: a branch's is made from it with `dataclasses.replace`.
    `token` fires when the attempt is to stop: cancelled, timed out, or its siblings decided.
    `path` is the node's, `hops` its hop at each level from the outermost in (a branch has its
    group's). `keeps` is whether results may be kept (not inside a map's item).
    """

    run: Run
    states: StateCodec[S]
    spec: NodeSpec[S]
    position: Position
    context: NodeContext
    token: CancelToken
    path: str
    hops: Sequence[int]
    keeps: bool
    open_child: OpenChild
