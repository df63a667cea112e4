"""A child that begins again keeps what its branches leave for that attempt, and for no other visit."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from outcrop.engine import Fatal, Graph, NodeContext, Retry, Transient
from outcrop.engine.failpoints import armed
from support.engine import EVERY_NODE, Crash, Doc, World, crashing
from support.fan_outs import gather
from support.levels import done, sub

if TYPE_CHECKING:
    from outcrop.engine import Threads


def checking_twice(world: World, ran: list[str]) -> Threads[Doc]:
    """`Work`, tried twice: the group `check` with a kept branch, and `again`, which fails first."""
    child: Graph[Doc] = Graph(Doc)
    group = child.group("check", reduce=gather, keep_finished=True)

    @group.branch(name="a")
    async def branch(doc: Doc, ctx: NodeContext) -> None:
        ran.append(ctx.idempotency_key)
        doc.trail.append(f"a{doc.n}")

    failing = [Transient("busy")]

    @child.node(name="again")
    async def again(doc: Doc) -> None:
        if failing:
            raise failing.pop()
        doc.n += 1

    world.trailing(child, "end")
    child.edge("check", "again")
    child.edge("again", "check", when=lambda doc: doc.n < 2)
    child.edge("again", "end")
    outer: Graph[Doc] = Graph(Doc)
    sub(outer, "Work", child.compile(), retry=Retry(max_retries=1))
    return world.threads(outer.compile(checkpoints=EVERY_NODE))


async def test_a_crash_in_a_childs_second_attempt_leaves_nothing_to_a_later_visit() -> None:
    """The row last written is of the first attempt, which was past the group already."""
    world, ran = World(), list[str]()
    threads = checking_twice(world, ran)
    with armed(crashing("branch.after", 2)), suppress(Crash):
        await threads.run("t", Doc())
    doc = done(await threads.recover("t"))
    assert doc.trail == ["Work/a0", "Work/a1", "Work/end"]
    assert ran == ["t/Work/check/a#1.1", "t/Work/check/a#1.1", "t/Work/check/a#1.3"]


async def test_what_a_dead_runs_fallback_kept_is_over_once_the_node_works_after_all() -> None:
    """A fallback has no row of its own: its results stand beside its node's."""
    world, fails, ran = World(), [True, False, True], list[str]()
    graph: Graph[Doc] = Graph(Doc)

    @graph.node(name="try", fallback="instead")
    async def work(doc: Doc) -> None:
        doc.n += 1
        if fails.pop(0):
            raise Fatal("no")

    group = graph.group("instead", reduce=gather, keep_finished=True)

    @group.branch(name="a")
    async def branch(doc: Doc, ctx: NodeContext) -> None:
        ran.append(ctx.idempotency_key)
        doc.trail.append(f"a{doc.n}")

    world.trailing(graph, "end")
    graph.edge("try", "try", when=lambda doc: doc.n < 2)
    graph.edge("try", "end")
    graph.edge("instead", "end")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    with armed(crashing("branch.after", 1)), suppress(Crash):
        await threads.run("t", Doc())
    assert done(await threads.recover("t")).trail == ["a1", "end"]
    assert ran == ["t/instead/a#2", "t/instead/a#3"]
