"""Building a parallel group: its branches, by `@group.branch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from .composites import Group
from .node_decorator import BranchDecorator, node_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .composites import FanOut
    from .handler import NodeFunction
    from .node import NodeSpec
    from .node_decorator import BranchOptions

S = TypeVar("S")


class GroupBuilder(Generic[S]):
    """What `Graph.group` returns: add branches to it, in the order that their results come in."""

    def __init__(self, name: str, fan_out: FanOut) -> None:
        self.name = name
        self._fan_out = fan_out
        self._branches: list[NodeSpec[S]] = []
        self._metadata: dict[str, Mapping[str, str]] = {}

    @property
    def branch(self) -> BranchDecorator[S]:
        """Add a branch: `@group.branch`, or `@group.branch(name=…)`."""
        return BranchDecorator(self._add)

    def built(self) -> Group[S]:
        """The group as it is now."""
        return Group(
            branches=tuple(self._branches), fan_out=self._fan_out, branch_metadata=dict(self._metadata)
        )

    def _add(self, function: NodeFunction[S], options: BranchOptions) -> None:
        branch: NodeSpec[S] = node_spec(function, options)
        self._branches.append(branch)
        if options.metadata:
            self._metadata[branch.name] = dict(options.metadata)
