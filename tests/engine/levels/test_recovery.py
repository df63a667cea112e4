"""Rows and recoveries of threads that are inside subgraphs when their process dies."""

from __future__ import annotations

import pytest

from outcrop.engine import Answer, CancelToken, Completed, Failed, Graph, RunOptions, Stopped, Threads
from outcrop.engine.failpoints import armed
from outcrop.stores.record import ThreadState
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, Crash, Doc, World, crashing, told
from support.levels import Nested, done, keys, sub, three_deep, versions, waiting

POINTS = (
    "save.before",
    "save.after",
    "node.before",
    "node.after",
    "lease.acquired",
    "lease.releasing",
)


async def test_progress_below_is_nested_in_the_parents_running_row() -> None:
    """I004: root hops before it, the child's thread ID, 1.7.0."""
    world = World()
    case = Nested(world.graph("one", "two", "three"), world=world)
    done(await case.threads().run("t", Doc()))
    assert await world.log() == [
        "running:->before",
        "running:before>Work",
        "running:Work>Work / running:one>two",
        "running:Work>Work / running:two>three",
        "running:Work>after",
        "completed:after>-",
    ]
    row = (await world.rows())[3]
    assert versions(row) == ["1.7.0", "1.7.0"]
    assert [level.thread_id for level in row.levels()] == ["t", "Work"]
    assert [level.metadata for level in row.levels()] == [{"strata.hops": "1"}, {"strata.hops": "2"}]
    assert row.frozen_state == '{"trail":["before"],"n":0,"note":null}'
    assert row.nested is not None
    assert row.nested.frozen_state == '{"trail":["one","two"],"n":0,"note":null}'


async def test_progress_two_levels_down_is_nested_at_every_level() -> None:
    """I005: an inner subgraph's last node leaves no row of its own."""
    world = World()
    inner, middle, outer = world.graph("p", "q"), world.graph("first"), world.graph("begin")
    sub(middle, "Inner", inner.compile())
    world.trailing(middle, "last")
    middle.edge("first", "Inner")
    middle.edge("Inner", "last")
    sub(outer, "Work", middle.compile())
    outer.edge("begin", "Work")
    done(await world.threads(outer.compile(checkpoints=EVERY_NODE)).run("t", Doc()))
    assert await world.log() == [
        "running:->begin",
        "running:begin>Work",
        "running:Work>Work / running:first>Inner",
        "running:Work>Work / running:Inner>Inner / running:p>q",
        "running:Work>Work / running:Inner>last",
        "completed:Work>-",
    ]
    row = (await world.rows())[3]
    assert [(level.metadata or {})["strata.hops"] for level in row.levels()] == ["1", "1", "1"]


async def test_a_childs_own_policy_does_not_count() -> None:
    """Engine.md 1.2: the outermost graph's holds for the whole run."""
    world = World()
    graph = world.graph("before")
    sub(graph, "Work", world.graph("one", "two").compile(checkpoints=EVERY_NODE))
    graph.edge("before", "Work")
    done(await world.threads(graph.compile(checkpoints=BOUNDARIES)).run("t", Doc()))
    assert await world.rows() == []


async def test_a_crash_below_goes_on_at_the_childs_node_in_flight() -> None:
    """I015: the child's earlier nodes don't run again, the keys are the same."""
    world = World()
    case = Nested(world.graph("one", "two", "three"), world=world)
    threads = case.threads()
    with armed(crashing("node.after", 3)), pytest.raises(Crash):  # before, one, two
        await threads.run("t", Doc())
    assert told(await world.last()) == "running:Work>Work / running:one>two"
    first = list(world.contexts)
    assert done(await threads.recover("t")).trail[-1] == "after"
    again = world.contexts[len(first) :]
    assert [ctx.node for ctx in again] == ["two", "three", "after"]
    assert [ctx.is_recovery for ctx in again] == [True, False, False]
    assert keys(again)[0] == keys(first)[-1] == "t/Work/two#2.2"
    assert len(case.entered) == 1
    claim = (await world.rows())[3]
    assert told(claim) == "running:Work>Work / running:one>two"
    assert [(level.metadata or {}).get("strata.recoveries") for level in claim.levels()] == ["1", None]


async def test_a_crash_in_a_childs_first_node_begins_the_child_anew() -> None:
    """I016: with the flag on that node, and not on the next."""
    world = World()
    case = Nested(world.graph("one", "two"), world=world)
    threads = case.threads()
    with armed(crashing("node.after", 2)), pytest.raises(Crash):
        await threads.run("t", Doc())
    assert told(await world.last()) == "running:before>Work"
    world.contexts.clear()
    done(await threads.recover("t"))
    assert [(ctx.node, ctx.is_recovery) for ctx in world.contexts] == [
        ("one", True),
        ("two", False),
        ("after", False),
    ]
    assert len(case.entered) == 2


async def test_a_crash_after_an_approval_below_keeps_the_decision() -> None:
    """I014 below."""
    world = World()
    child = world.graph("approve", "send")
    child.interrupt("approve")
    threads = Nested(child, world=world).threads()
    waiting(await threads.run("t", Doc()))
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads.resume("t", Answer(by="alice", overrides={"n": 2}))
    world.contexts.clear()
    assert done(await threads.recover("t")).n == 2
    decision = world.contexts[0].decision
    assert decision is not None
    assert decision.reviewer == "alice"
    assert world.contexts[0].is_recovery


async def test_a_handover_below_leaves_the_thread_running_there() -> None:
    """`stop` between nodes of a child."""
    world, stop = World(), CancelToken()
    child = Graph(Doc)

    @child.node(name="one")
    async def one(doc: Doc) -> None:
        stop.fire()
        doc.trail.append("one")

    world.trailing(child, "two")
    child.edge("one", "two")
    threads = Nested(child, world=world).threads()
    stopped = await threads.run("t", Doc(), RunOptions(stop=stop))
    assert isinstance(stopped, Stopped)
    assert (stopped.next_node, stopped.state.trail) == ("Work", ["before"])
    assert told(await world.last()) == "running:Work>Work / running:one>two"
    assert done(await threads.recover("t")).trail == ["before", "Work/one", "Work/two", "after"]


async def test_a_save_that_fails_below_leaves_what_can_be_recovered() -> None:
    """Engine.md 6.3: the thread stays running."""
    world = World()
    threads = Nested(world.graph("one", "two"), world=world).threads()
    world.store.fail("save", RuntimeError("disk full"), call=3)
    world.store.fail("save", RuntimeError("disk full"), call=4)
    result = await threads.run("t", Doc())
    assert isinstance(result, Failed)
    assert told(await world.last()) == "running:before>Work"
    assert done(await threads.recover("t")).trail == ["before", "Work/one", "Work/two", "after"]


def nest(world: World) -> Threads[Doc]:
    """Three deep, with a boundary in the innermost and nodes around every level."""
    inner = world.graph("p", "q", "r")
    inner.interrupt("q")
    middle, outer = world.graph("first"), world.graph("begin")
    sub(middle, "Inner", inner.compile())
    world.trailing(middle, "last")
    middle.edge("first", "Inner")
    middle.edge("Inner", "last")
    sub(outer, "Work", middle.compile())
    world.trailing(outer, "end")
    outer.edge("begin", "Work")
    outer.edge("Work", "end")
    return world.threads(outer.compile(checkpoints=EVERY_NODE))


async def to_the_end(world: World, threads: Threads[Doc], point: str, count: int) -> tuple[Doc, bool]:
    """Run, resume and recover thread `t`, with one crash at the n-th hit of the point; whether it struck."""
    struck, hit = False, crashing(point, count)
    for _ in range(10):
        row = await world.memory.load("t")
        world.clock.advance(31)  # a dead run's lease is over
        try:
            with armed(hit):
                if row is None:
                    result = await threads.run("t", Doc(), LEASED)
                elif row.checkpoint.state is ThreadState.RUNNING:
                    result = await threads.recover("t", LEASED)
                elif row.checkpoint.state is ThreadState.COMPLETED:
                    return threads.graph.states.thaw(row.checkpoint.frozen_state), struck
                else:
                    result = await threads.resume("t", options=LEASED)
        except Crash:
            struck = True
            continue
        if isinstance(result, Completed):
            return result.state, struck
    raise AssertionError("the thread didn't complete")


@pytest.mark.parametrize("point", POINTS)
async def test_a_crash_at_any_hit_of_any_point_changes_nothing_but_the_attempts(point: str) -> None:
    """I013 to I016, three deep: the same state, keys and order, each run again in its place at most."""
    world = World()
    calm, _ = await to_the_end(world, nest(world), "never", 1)
    made = [(ctx.node, ctx.idempotency_key) for ctx in world.contexts]
    assert len(set(made)) == len(made) == 7
    for count in range(1, 40):
        world = World()
        state, struck = await to_the_end(world, nest(world), point, count)
        assert state == calm, count
        again = [(ctx.node, ctx.idempotency_key) for ctx in world.contexts]
        assert [one for at, one in enumerate(again) if at == 0 or again[at - 1] != one] == made, count
        if not struck:
            assert count > 1, "the point is never reached"
            return
    raise AssertionError("more hits than this test knows of")


async def test_recovering_three_deep_tells_where_each_level_is() -> None:
    world = World()
    threads, _ = three_deep(world, world.graph("p", "q"))
    with armed(crashing("node.before", 6)), pytest.raises(Crash):
        await threads.run("t", Doc())
    report = await threads.recover_stale()
    assert report.refusal is not None  # without a lease, only an age says that a run died
    assert isinstance(await threads.recover("t"), Completed)
    assert told((await world.rows())[-2]) == "running:Work>Work / running:Inner>Inner / running:p>q"
