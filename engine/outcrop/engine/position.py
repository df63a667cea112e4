"""Where a level of a thread stands between two nodes. A plain value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outcrop.stores.record import Decision

    from .node import LastFailure


@dataclass(slots=True, kw_only=True)
class Position:
    """Where a level stands: the node to run next, and what it starts from. Never changed.

    (Not frozen: one is made for every node, and a frozen one takes four times as long.)
    `hops` counts the nodes run before it. `is_recovery` and `last_failure` are told to the
    node, and hold until a node commits. `nested` is where the child of a subgraph node
    stands, when the level goes on inside it. `is_unasked` says that no person has seen to it that
    the level goes on at this node: a static interrupt may still stop it there.
    """

    node: str
    state: str
    hops: int = 0
    decision: Decision | None = None
    is_recovery: bool = False
    last_failure: LastFailure | None = None
    nested: Position | None = None
    is_unasked: bool = False

    def unasked(self) -> Position:
        """The same, with no person having seen to it that the innermost level goes on."""
        if self.nested is None:
            return replace(self, is_unasked=True)
        return replace(self, nested=self.nested.unasked())

    def states(self) -> list[str]:
        """The states of this level and those inside it, outermost first."""
        return [self.state, *(() if self.nested is None else self.nested.states())]
