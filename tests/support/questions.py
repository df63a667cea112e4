"""Nodes that ask, and what became of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .levels import waiting

if TYPE_CHECKING:
    from outcrop.engine import Graph, NodeContext, Question, RunResult

    from .engine import Doc, World

THREE = ("colour", "size", "price")


class Asker:
    """A node `ask` that asks its questions one after the other, and puts the answers on the trail."""

    def __init__(self, *ids: str | None, name: str = "ask") -> None:
        self.ids = ids or (None,)
        self.name = name
        self.contexts: list[NodeContext] = []
        self.answers: list[list[Any]] = []

    def add_to(self, graph: Graph[Doc], **options: Any) -> None:
        """Add it as a node."""
        graph.node(name=self.name, **options)(self.work)

    async def work(self, doc: Doc, ctx: NodeContext) -> None:
        """Each start of it notes the answers that it gets."""
        self.contexts.append(ctx)
        got: list[Any] = []
        self.answers.append(got)
        for number, id_ in enumerate(self.ids):
            got.append(await ctx.interrupt({"what": id_ or number}, id=id_))
        doc.trail += [str(one) for one in got]

    @property
    def runs(self) -> int:
        """How often it started."""
        return len(self.contexts)


def asking(world: World, asker: Asker) -> Graph[Doc]:
    """`before`, the asking node, `after`."""
    graph = world.graph("before")
    asker.add_to(graph)
    world.trailing(graph, "after")
    graph.edge("before", asker.name)
    graph.edge(asker.name, "after")
    return graph


def open_questions(result: RunResult[Doc]) -> list[Question]:
    """What the thread waits to be told."""
    return list(waiting(result).questions)
