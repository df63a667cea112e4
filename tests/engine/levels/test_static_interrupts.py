"""Static interrupts: before and after named nodes, set when compiling or for one run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outcrop.engine import (
    Answer,
    CheckpointPolicy,
    CompilationFailed,
    CompiledGraph,
    Fatal,
    Graph,
    RefusalCode,
    Retry,
    RunOptions,
    Transient,
)
from outcrop.engine.failpoints import armed
from support.engine import BOUNDARIES, EVERY_NODE, Crash, Doc, World, crashing, told
from support.fan_outs import gather
from support.levels import Nested, approving, done, failed, refused, sub, three_deep, waiting

POLICIES = list(CheckpointPolicy)
WAYS = ["compiled", "for one run"]


def stopping(way: str, **interrupts: list[str]) -> tuple[dict[str, Any], RunOptions]:
    """The interrupts as options of compiling, or of a run."""
    if way == "compiled":
        return interrupts, RunOptions()
    frozen = {name: frozenset(paths) for name, paths in interrupts.items()}
    return {}, RunOptions(**frozen)  # type: ignore[arg-type]  # both fields are of that type


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
async def test_before_a_node_the_thread_waits_as_it_was(way: str, policy: CheckpointPolicy) -> None:
    """Session 03: nothing of the node has run, its hop isn't made, and a resume runs it."""
    world = World()
    compiling, options = stopping(way, interrupt_before=["b"])
    threads = world.threads(world.graph("a", "b", "c").compile(checkpoints=policy, **compiling))
    result = waiting(await threads.run("t", Doc(), options))
    assert (result.suspended_node, result.next_node) == ("b", "b")
    assert result.state == Doc(trail=["a"])
    row = await world.last()
    assert told(row) == "interrupted:b>b"
    assert row.metadata == ({"strata.hops": "1"} if policy is EVERY_NODE else None)
    assert done(await threads.resume("t", options=options)).trail == ["a", "b", "c"]
    assert world.ran == ["a", "b", "c"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
async def test_after_a_node_the_thread_waits_as_at_a_boundary(way: str, policy: CheckpointPolicy) -> None:
    world = World()
    compiling, options = stopping(way, interrupt_after=["b"])
    threads = world.threads(world.graph("a", "b", "c").compile(checkpoints=policy, **compiling))
    result = waiting(await threads.run("t", Doc(), options))
    assert (result.suspended_node, result.next_node) == ("b", "c")
    assert result.state == Doc(trail=["a", "b"])
    assert told(await world.last()) == "interrupted:b>c"
    assert done(await threads.resume("t", options=options)).trail == ["a", "b", "c"]


@pytest.mark.parametrize("way", WAYS)
async def test_the_entry_may_be_waited_before(way: str) -> None:
    world = World()
    compiling, options = stopping(way, interrupt_before=["a"])
    threads = world.threads(world.graph("a", "b").compile(checkpoints=EVERY_NODE, **compiling))
    waiting(await threads.run("t", Doc(), options))
    assert await world.log() == ["running:->a", "interrupted:a>a"]
    assert world.ran == []
    assert done(await threads.resume("t", options=options)).trail == ["a", "b"]
    assert [ctx.idempotency_key for ctx in world.contexts] == ["t/a#1", "t/b#2"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
async def test_after_the_last_node_there_is_nothing_to_wait_for(way: str, policy: CheckpointPolicy) -> None:
    """And before it there is."""
    world = World()
    compiling, options = stopping(way, interrupt_after=["b"], interrupt_before=["b"])
    threads = world.threads(world.graph("a", "b").compile(checkpoints=policy, **compiling))
    waiting(await threads.run("t", Doc(), options))
    assert done(await threads.resume("t", options=options)).trail == ["a", "b"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_loop_stops_at_every_visit_and_a_resume_never_twice(way: str) -> None:
    world = World()
    graph = world.graph("a", "b")
    graph.edge("b", "a", when=lambda doc: len(doc.trail) < 6)
    world.trailing(graph, "end")
    graph.edge("b", "end")
    compiling, options = stopping(way, interrupt_before=["a"], interrupt_after=["a"])
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE, **compiling))
    result, stops = await threads.run("t", Doc(), options), list[str]()
    while told(await world.last()).startswith("interrupted"):
        stops.append(told(await world.last()))
        result = await threads.resume("t", options=options)
    assert done(result).trail == ["a", "b"] * 3 + ["end"]
    assert stops == ["interrupted:a>a", "interrupted:a>b"] * 3


async def test_between_two_nodes_a_person_is_asked_once() -> None:
    """After the one and before the other is the same place, as a boundary and before the next is."""
    world = World()
    graph = world.graph("a", "b", "c")
    graph.interrupt("b")
    threads = world.threads(graph.compile(interrupt_after=["a"], interrupt_before=["b", "c"]))
    assert waiting(await threads.run("t", Doc())).suspended_node == "a"
    assert waiting(await threads.resume("t")).suspended_node == "b"
    assert done(await threads.resume("t")).trail == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["timer", "event", "timeout"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_what_is_no_person_lets_nobody_past(kind: str, policy: CheckpointPolicy) -> None:
    """A timer, an event or a timeout that leads to the node: a person is asked before it all the same."""
    world, minute = World(), timedelta(minutes=1)
    graph = world.graph("a")
    if kind == "timer":
        graph.timer("wait", delay=minute)
    else:
        graph.wait_for_event("wait", event="go", timeout=minute, on_timeout="b")
    world.trailing(graph, "b")
    graph.edge("a", "wait")
    graph.edge("wait", "b")
    threads = world.threads(graph.compile(checkpoints=policy, interrupt_before=["b"]))
    waiting(await threads.run("t", Doc()))
    if kind == "event":
        result = await threads.signal("t", "go", {"n": 2})
    else:
        world.clock.advance(60)
        result = await threads.wake("t")
    assert waiting(result).suspended_node == "b"
    assert world.ran == ["a"]
    assert done(await threads.resume("t")).trail == ["a", "b"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("Work", "interrupted:Work>Work"),
        ("Work/first", "interrupted:Work>Work / interrupted:first>first"),
        ("Work/Inner", "interrupted:Work>Work / interrupted:Inner>Inner"),
        ("Work/Inner/q", "interrupted:Work>Work / interrupted:Inner>Inner / interrupted:q>q"),
    ],
)
async def test_paths_lead_into_subgraphs(path: str, row: str, way: str, policy: CheckpointPolicy) -> None:
    world = World()
    _, outer = three_deep(world, world.graph("p", "q"))
    world.trailing(outer, "first")  # of another level than `Work/first`
    outer.edge("Work", "first")
    compiling, options = stopping(way, interrupt_before=[path])
    threads = world.threads(outer.compile(checkpoints=policy, **compiling))
    waiting(await threads.run("t", Doc(), options))
    assert told(await world.last()) == row
    result = done(await threads.resume("t", options=options))
    assert result.trail == ["begin", "Work/first", "Work/Inner/p", "Work/Inner/q", "first"]
    assert world.ran == ["begin", "first", "p", "q", "first"]


@pytest.mark.parametrize("way", WAYS)
async def test_after_a_node_below(way: str) -> None:
    """After a subgraph node too: its child is through."""
    world = World()
    compiling, options = stopping(way, interrupt_after=["Work/draft", "Work"])
    case = Nested(world.graph("draft", "send"), world=world, compiling=compiling)
    threads = case.threads()
    waiting(await threads.run("t", Doc(), options))
    assert told(await world.last()) == "interrupted:Work>Work / interrupted:draft>send"
    waiting(await threads.resume("t", options=options))
    assert told(await world.last()) == "interrupted:Work>after"
    done(await threads.resume("t", options=options))
    assert world.ran == ["before", "draft", "send", "after"]


async def test_a_childs_own_interrupts_hold_wherever_it_is_put() -> None:
    """Compiled into the child, by its own names; and those of a middle level by paths from there."""
    world = World()
    inner, middle, outer = world.graph("p", "q"), world.graph("first"), world.graph("begin")
    sub(middle, "Inner", inner.compile(interrupt_before=["p"]))
    middle.edge("first", "Inner")
    sub(outer, "Work", middle.compile(interrupt_after=["Inner/p"]))
    outer.edge("begin", "Work")
    threads = world.threads(outer.compile(checkpoints=EVERY_NODE))
    assert waiting(await threads.run("t", Doc())).waiting_at == ("Work", "Inner", "p")
    assert told(await world.last()).endswith("interrupted:p>p")
    waiting(await threads.resume("t"))
    assert told(await world.last()).endswith("interrupted:p>q")
    assert done(await threads.resume("t")).trail[-1] == "Work/Inner/q"


NOWHERE = [
    "x",
    "Work/x",
    "Work/",
    "/",
    "",
    "draft",
    "Work/draft/x",
    "Checks/one",
    "Lines/p",
    "Lines/a/p",
    "pause",
]


def mixed(world: World) -> Graph[Doc]:
    """A subgraph, a group, a map and a timer."""
    graph = Graph(Doc)
    sub(graph, "Work", world.graph("draft").compile())
    graph.group("Checks", reduce=gather).branch(name="one")(_nothing)
    graph.map(
        "Lines",
        world.graph("p").compile(),
        items=lambda _doc: ["a"],
        key=str,
        input=lambda _doc, _item: Doc(),
        reduce=gather,
    )
    graph.timer("pause", delay=1)
    world.trailing(graph, "end")
    for start, end in (("Work", "Checks"), ("Checks", "Lines"), ("Lines", "pause"), ("pause", "end")):
        graph.edge(start, end)
    return graph


async def _nothing(doc: Doc) -> None:
    doc.trail.append("one")


@pytest.mark.parametrize("path", NOWHERE)
@pytest.mark.parametrize("side", ["interrupt_before", "interrupt_after"])
async def test_where_no_thread_can_be_stopped_is_refused(path: str, side: str) -> None:
    """Names that are none, waits, branches and items: compiling, and for a run before any write."""
    world = World()
    graph = mixed(world)
    compiling, options = stopping("compiled", **{side: [path]})[0], stopping("run", **{side: [path]})[1]
    with pytest.raises(CompilationFailed) as caught:
        graph.compile(**compiling)
    assert str(caught.value) == f"the graph is to be interrupted at '{path}', and has no such node"
    threads = world.threads(graph.compile())
    for result in (await threads.run("t", Doc(), options), await threads.resume("t", options=options)):
        message = refused(result, RefusalCode.INVALID)
        assert message == f"a run can't be interrupted at '{path}': the graph has no such node"
    assert await world.rows() == []


@pytest.mark.parametrize("name", ["Checks", "Lines"])
async def test_a_group_or_a_map_is_stopped_at_as_one_node(name: str) -> None:
    world = World()
    threads = world.threads(mixed(world).compile(interrupt_before=[name], interrupt_after=[name]))
    waiting(await threads.run("t", Doc()))
    assert told(await world.last()) == f"interrupted:{name}>{name}"
    waiting(await threads.resume("t"))
    assert told(await world.last()).startswith(f"interrupted:{name}>")


def _child(world: World, where: str) -> CompiledGraph[Doc]:
    if where == "p":
        return world.graph("p", "q").compile(interrupt_before=["p"])
    if where == "q":
        return world.graph("p", "q").compile(interrupt_after=["q"])
    child, inner = world.graph("p"), world.graph("deep")
    own = {"interrupt_before": ["deep"]} if where == "own" else {}
    sub(child, "Inner", inner.compile(**own))  # type: ignore[arg-type]  # names of nodes
    child.edge("p", "Inner")
    return child.compile(interrupt_before=[] if where == "own" else ["Inner/deep"])


@pytest.mark.parametrize(
    ("where", "path"), [("p", "p"), ("q", "q"), ("own", "Inner/deep"), ("path", "Inner/deep")]
)
def test_a_child_that_would_stop_goes_into_no_map(where: str, path: str) -> None:
    """Its own interrupts, and those it has below by either way."""
    world, graph = World(), Graph(Doc)
    graph.map(
        "Lines",
        _child(world, where),
        items=lambda _doc: ["a"],
        key=str,
        input=lambda _doc, _item: Doc(),
        reduce=gather,
    )
    with pytest.raises(CompilationFailed) as caught:
        graph.compile()
    assert str(caught.value) == (
        f"map 'Lines' runs a graph with a static interrupt at '{path}'; a map item can't freeze"
    )


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_person_may_change_the_state_before_the_node(policy: CheckpointPolicy) -> None:
    """Session 03: by an override, or as another node; the resume goes past the interrupt either way."""
    world = World()
    threads = world.threads(
        world.graph("planner", "execute").compile(checkpoints=policy, interrupt_before=["execute"])
    )
    waiting(await threads.run("t", Doc()))
    assert done(await threads.resume("t", Answer(overrides={"n": 1}))).n == 1
    waiting(await threads.run("u", Doc()))
    waiting(await threads.update_state("u", {"n": 2}, as_node="planner"))
    result = done(await threads.resume("u"))
    assert (result.n, result.trail) == (2, ["planner", "execute"])


async def test_a_retry_a_fallback_and_a_failed_thread_stop_only_where_they_come_anew() -> None:
    """A retry is the same visit, a fallback another; the resume of a failed thread goes on."""
    world, graph = World(), Graph(Doc)
    attempts = world.failing(
        graph, "a", Transient("x"), Fatal("y"), retry=Retry(max_retries=1), fallback="plan b"
    )
    world.failing(graph, "plan b", Fatal("z"))
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE, interrupt_before=["a", "plan b"]))
    assert waiting(await threads.run("t", Doc())).suspended_node == "a"
    result = await threads.resume("t")
    assert attempts == [1, 2]
    assert waiting(result).suspended_node == "plan b"
    failed(await threads.resume("t"))
    assert done(await threads.resume("t")).trail == ["plan b"]


@pytest.mark.parametrize("point", ["save.before", "save.after", "node.before", "node.after"])
async def test_a_crash_at_any_point_changes_nothing(point: str) -> None:
    """The thread stops where it would have, and each node ran under one key."""
    for count in range(1, 12):
        world = World()
        case = Nested(
            world.graph("one", "two"),
            world=world,
            compiling={"interrupt_before": ["Work/two"], "interrupt_after": ["before"]},
        )
        threads, hit, stops, struck = case.threads(), crashing(point, count), list[str](), False
        for _ in range(12):
            row = await world.memory.load("t")
            try:
                with armed(hit):
                    if row is None:
                        await threads.run("t", Doc())
                    elif row.checkpoint.status == "running":
                        await threads.recover("t")
                    elif row.checkpoint.status == "interrupted":
                        stops.append(told(row.checkpoint))
                        await threads.resume("t")
                    else:
                        break
            except Crash:
                struck = True
        assert told(await world.last()) == "completed:after>-"
        assert list(dict.fromkeys(stops)) == [
            "interrupted:before>Work",
            "interrupted:Work>Work / interrupted:two>two",
        ]
        assert list(dict.fromkeys(ctx.idempotency_key for ctx in world.contexts)) == [
            "t/before#1",
            "t/Work/one#2.1",
            "t/Work/two#2.2",
            "t/after#3",
        ]
        if not struck:
            return
    raise AssertionError("more hits than this test knows of")


async def test_a_person_who_rejects_at_a_static_interrupt_goes_on() -> None:
    """There is no route for it; a boundary's own route is the boundary's."""
    world = World()
    threads = world.threads(world.graph("a", "b").compile(interrupt_before=["b"]))
    waiting(await threads.run("t", Doc()))
    assert done(await threads.resume("t", Answer(approved=False))).trail == ["a", "b"]


async def test_before_a_childs_boundary_both_stop() -> None:
    world = World()
    case = Nested(approving, world=world, policy=BOUNDARIES, compiling={"interrupt_before": ["Work/approve"]})
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    assert told(await world.last()) == "interrupted:Work>Work / interrupted:approve>approve"
    waiting(await threads.resume("t"))
    assert told(await world.last()) == "interrupted:Work>Work / interrupted:approve>send"
    done(await threads.resume("t"))


async def test_a_recovery_before_the_first_node_waits_as_the_run_would_have() -> None:
    """A crash, or a handover, between the run's first row and the stop lets no node slip past."""
    world = World()
    threads = world.threads(world.graph("a", "b").compile(checkpoints=EVERY_NODE, interrupt_before=["a"]))
    with armed(crashing("save.after", 1)), pytest.raises(Crash):
        await threads.run("t", Doc())
    assert waiting(await threads.recover("t")).suspended_node == "a"
    assert world.ran == []
    assert done(await threads.resume("t")).trail == ["a", "b"]


@pytest.mark.parametrize("nested", [False, True])
async def test_a_recovery_behind_a_timer_waits_as_the_wake_would_have(nested: bool) -> None:
    world = World()

    def napping(of: World) -> Graph[Doc]:
        graph = of.graph("lie")
        graph.timer("nap", delay=timedelta(minutes=1))
        of.trailing(graph, "rise")
        graph.edge("lie", "nap")
        graph.edge("nap", "rise")
        return graph

    if nested:
        compiling = {"interrupt_before": ["Work/rise"]}
        path, threads = "Work/rise", Nested(napping, world=world, compiling=compiling).threads()
    else:
        graph = napping(world)
        path, threads = (
            "rise",
            world.threads(graph.compile(checkpoints=EVERY_NODE, interrupt_before=["rise"])),
        )
    waiting(await threads.run("t", Doc()))
    world.clock.advance(60)
    with armed(crashing("save.after", 1)), pytest.raises(Crash):
        await threads.wake("t")
    result = waiting(await threads.recover("t"))
    assert "/".join(result.waiting_at) == path
    assert "rise" not in world.ran


async def test_a_recovery_asks_nobody_again_who_let_the_thread_go_on() -> None:
    """Neither at the stop itself nor behind the boundary that was answered."""
    world = World()
    graph = world.graph("a", "b", "c")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE, interrupt_before=["b", "c"]))
    waiting(await threads.run("t", Doc()))
    for stop in ("c", None):
        with armed(crashing("node.before", 1)), pytest.raises(Crash):
            await threads.resume("t")
        result = await threads.recover("t")
        if stop is None:
            assert done(result).trail == ["a", "b", "c"]
        else:
            assert waiting(result).suspended_node == stop


def test_one_name_is_no_list_of_names() -> None:
    with pytest.raises(CompilationFailed, match=r"\['wait'\], not 'wait'"):
        World().graph("wait").compile(interrupt_before="wait")


async def test_a_rejection_before_a_boundary_is_none_of_the_boundary() -> None:
    """Its node runs, and asks; only that answer takes the reject route."""
    world = World()
    graph = world.graph("a", "b")
    world.trailing(graph, "sorry")
    graph.interrupt("a", on_reject="sorry")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE, interrupt_before=["a"]))
    waiting(await threads.run("t", Doc()))
    at = waiting(await threads.resume("t", Answer(approved=False)))
    assert (at.suspended_node, at.next_node, world.ran) == ("a", "b", ["a"])
    assert done(await threads.resume("t", Answer(approved=False))).trail == ["a", "sorry"]


async def test_a_rejection_at_a_boundary_that_leads_back_to_itself_takes_its_route() -> None:
    world = World()
    graph = world.graph("a")
    world.trailing(graph, "sorry")
    graph.edge("a", "a", when=lambda doc: len(doc.trail) < 3)
    graph.edge("a", "sorry")
    graph.interrupt("a", on_reject="sorry")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    assert told(await world.last()) == "interrupted:a>a"
    assert done(await threads.resume("t", Answer(approved=False))).trail == ["a", "sorry"]
