"""Scripted runs: what happens to a thread from outside, and what of it is told."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from examples.orders import Order, orders
from outcrop.engine import Answer, CheckpointPolicy, Completed, Failed, Graph, NodeContext, Retry, Transient
from outcrop.engine.testing import TIMES_OUT, Effects, Harness, InTurn, Script, ScriptFailed, Stop, process
from outcrop.engine.testing.process import LONGEST_CALL
from support.engine import BOUNDARIES, EVERY_NODE, Doc, told

if TYPE_CHECKING:
    from outcrop.engine.questions import Question
    from outcrop.engine.testing import Played
    from outcrop.stores.record import Json


def trailing(*names: str) -> Graph[Doc]:
    """A line of nodes that leave a trail."""
    graph = Graph(Doc)
    for name in names:

        @graph.node(name=name, timeout=60, retry=Retry(max_retries=3))
        async def leave(doc: Doc, ctx: NodeContext) -> None:
            doc.trail.append(ctx.node)

    for before, after in pairwise(names):
        graph.edge(before, after)
    return graph


def play(graph: Graph[Doc], policy: CheckpointPolicy = EVERY_NODE, **script: object) -> Played[Doc]:
    return Harness(graph.compile(checkpoints=policy), Script(**script)).run(Doc())  # type: ignore[arg-type]  # as given


def test_a_graph_runs_to_its_end() -> None:
    effects = Effects()
    harness = Harness(
        orders(effects), Script(decisions={"approve": Answer()}, replies={"ask": "Berlin"}), effects=effects
    )
    played = harness.run(Order(amount=7))
    assert isinstance(played.outcome, Completed)
    assert played.end == "completed"
    assert played.state == Order(
        amount=7,
        address="Berlin",
        checks=["score", "stock"],
        paid=True,
        packed=["box of apple", "box of pear"],
        shipped=True,
    )
    assert sorted(played.nodes) == sorted(
        [
            "ask",
            "ask",
            "approve",
            "checks/score",
            "checks/stock",
            "charge",
            "lines/apple/pack",
            "lines/pear/pack",
            "ship",
        ]
    )
    assert [effect.detail for effect in played.effects if effect.name == "charge"] == [7]
    assert {e.path: e.visit for e in played.executions}["lines/pear/pack"] == "thread-1/lines/pear/pack#5.1"
    assert [row.sequence for row in played.rows] == list(range(len(played.rows)))


def test_each_run_starts_anew() -> None:
    effects = Effects()
    harness = Harness(
        orders(effects), Script(decisions={"approve": Answer()}, replies={"ask": "Berlin"}), effects=effects
    )
    assert harness.run(Order()).rows == harness.run(Order()).rows
    assert effects.count("charge") == 1


@pytest.mark.parametrize("policy", [EVERY_NODE, BOUNDARIES])
def test_decisions_in_turn(policy: CheckpointPolicy) -> None:
    graph = trailing("draft", "approve", "publish")
    graph.interrupt("approve", on_reject="draft")
    decisions = {"approve": InTurn(Answer(approved=False), Answer(approved=False), Answer())}
    played = play(graph, policy, decisions=decisions)
    assert played.state.trail == ["draft", "approve"] * 3 + ["publish"]
    assert played.end == "completed"


def test_a_decision_by_a_function_of_the_stop() -> None:
    graph = trailing("draft", "approve", "publish")
    graph.interrupt("approve", on_reject="draft")
    stops = list[Stop]()

    def decide(stop: Stop) -> Answer:
        stops.append(stop)
        return Answer(approved=len(stop.state.trail) > 3)

    assert play(graph, decisions={"approve": decide}).state.trail[-1] == "publish"
    assert [stop.at for stop in stops] == ["approve", "approve"]


def test_a_decision_in_a_subgraph_goes_by_path_or_by_name() -> None:
    child = trailing("write", "check")
    child.interrupt("write")
    for name in ("write", "Work/write"):
        graph = Graph(Doc)
        graph.subgraph(
            "Work",
            child.compile(checkpoints=EVERY_NODE),
            input=lambda _doc: Doc(),
            output=lambda doc, inner: doc.trail.extend(inner.trail),
        )
        played = play(graph, decisions={name: Answer()})
        assert played.state.trail == ["write", "check"]
        assert played.nodes == ["Work/write", "Work/check"]


def test_signals_and_timers_and_timeouts() -> None:
    graph = Graph(Doc)

    @graph.node
    async def start(doc: Doc) -> None:
        doc.trail.append("start")

    @graph.node
    async def paid(doc: Doc) -> None:
        doc.trail.append(f"paid {doc.note}")

    @graph.node
    async def late(doc: Doc) -> None:
        doc.trail.append("late")

    graph.timer("cool", delay=3600)
    graph.wait_for_event("wait", event="payment", timeout=60, on_timeout="late")
    graph.edge(start, "cool")
    graph.edge("cool", "wait")
    graph.edge("wait", paid)
    assert play(graph, signals={"payment": {"note": "5"}}).state.trail == ["start", "paid 5"]
    played = play(graph)
    assert played.state.trail == ["start", "late"]
    assert [row.checkpoint.created_at[11:] for row in played.rows][-1] == "04:05:05Z"


def test_a_boundary_times_out_without_a_decision() -> None:
    graph = trailing("draft", "publish")
    graph.interrupt("draft", timeout=60)
    played = play(graph)
    assert played.end == "ended"
    assert told(played.rows[-1].checkpoint).startswith("ended")


def test_replies_to_several_questions() -> None:
    graph = Graph(Doc)

    @graph.node
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        doc.trail = [str(await ctx.interrupt("first")), str(await ctx.interrupt("second", id="again"))]

    def echo(question: Question) -> Json:
        return f"to {question.payload}"

    assert play(graph, replies={"ask": InTurn("a", "b")}).state.trail == ["a", "b"]
    assert play(graph, replies={"ask": "a", "again": "c"}).state.trail == ["a", "c"]
    assert play(graph, replies={"ask": echo}).state.trail == ["to first", "to second"]


def test_failures_are_injected() -> None:
    played = play(
        trailing("first", "charge"), failures={"charge": [Transient("busy"), TIMES_OUT, ValueError()]}
    )
    assert played.state.trail == ["first", "charge"]
    assert [(e.path, e.attempt) for e in played.executions] == [
        ("first", 1),
        ("charge", 1),
        ("charge", 2),
        ("charge", 3),
        ("charge", 4),
    ]


def test_a_sync_node_can_be_made_to_fail_and_to_time_out() -> None:
    graph = Graph(Doc)

    @graph.node(timeout=30, retry=Retry(max_retries=1))
    def work(doc: Doc) -> None:
        doc.trail.append("work")

    assert play(graph, failures={"work": TIMES_OUT}).state.trail == ["work"]
    assert play(graph, failures={"work": ValueError("no")}).state.trail == ["work"]
    failed = play(graph, failures={"work": [TIMES_OUT, TIMES_OUT]})
    assert isinstance(failed.outcome, Failed)
    assert failed.outcome.message == "node 'work' timed out after 30000 ms"
    assert failed.end == "failed"


def test_a_branch_and_an_item_can_be_made_to_fail() -> None:
    effects = Effects()
    script = Script(replies={"ask": "Berlin"}, failures={"checks/stock": ValueError("none left")})
    played = Harness(orders(effects), script, effects=effects).run(Order())
    assert isinstance(played.outcome, Failed)
    assert "none left" in played.outcome.message
    script = Script(
        replies={"ask": "Berlin"},
        decisions={"approve": Answer()},
        failures={"lines/pear/pack": ValueError("no box")},
    )
    played = Harness(orders(effects), script, effects=effects).run(Order())
    assert isinstance(played.outcome, Failed)
    assert "no box" in played.outcome.message


def test_a_streaming_graph_streams_to_nobody() -> None:
    graph = Graph(Doc)

    @graph.node(streams=True)
    async def talk(doc: Doc, ctx: NodeContext) -> None:
        assert ctx.stream is not None
        doc.trail.append("talked")

    assert play(graph).state.trail == ["talked"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda graph: graph.interrupt("b"),
            r"waits at 'b', .* for a person: add decisions=\{'b': Answer\(\)\}",
        ),
        (
            lambda graph: (graph.wait_for_event("w", event="paid"), graph.edge("w", "a"), graph.entry("w")),
            r"waits at 'w', .* for event 'paid': add signals=\{'paid': \{…\}\}",
        ),
    ],
)
def test_a_stop_without_an_answer_says_what_to_add(build: object, message: str) -> None:
    graph = trailing("a", "b")
    build(graph)  # type: ignore[operator]  # one of the lambdas above
    with pytest.raises(ScriptFailed, match=message):
        play(graph)


def test_a_question_without_a_reply_says_what_to_add() -> None:
    graph = Graph(Doc)

    @graph.node
    async def ask(_doc: Doc, ctx: NodeContext) -> None:
        await ctx.interrupt({"text": "why?"}, id="why")

    with pytest.raises(ScriptFailed, match=r"node 'ask' asks 'why' .*: add replies=\{'ask': …\}"):
        play(graph)


def test_answers_in_turn_that_run_out_are_told() -> None:
    graph = trailing("draft", "approve")
    graph.interrupt("approve", on_reject="draft")
    with pytest.raises(
        ScriptFailed, match=r"decisions\['approve'\] has 1 value\(s\), and another is asked for"
    ):
        play(graph, decisions={"approve": InTurn(Answer(approved=False))})


def test_steps_that_never_come_are_told() -> None:
    with pytest.raises(ScriptFailed) as failed:
        play(
            trailing("a"),
            decisions={"b": Answer()},
            replies={"a": 1},
            signals={"paid": InTurn({})},
            failures={"a": [], "c": TIMES_OUT},
        )
    assert str(failed.value).splitlines() == [
        "the thread ended completed, and these of its script never came:",
        "  decisions['b']",
        "  replies['a']",
        "  signals['paid']: ({},)",
        "  failures['c']: [TIMES_OUT]",
    ]


def test_a_run_that_ended_before_its_script_says_why() -> None:
    graph = Graph(Doc)

    @graph.node
    async def bad(_doc: Doc) -> None:
        raise ValueError("bad luck")

    with pytest.raises(ScriptFailed, match=r"ended failed \(ValueError: bad luck\), and these"):
        play(graph, decisions={"b": Answer()})


def test_a_refused_answer_is_told() -> None:
    graph = trailing("a", "b")
    graph.interrupt("a")
    with pytest.raises(ScriptFailed, match="a call on thread 'thread-1' was refused"):
        play(graph, decisions={"a": Answer(overrides={"n": "no number"})})


def test_a_node_that_waits_for_ever_is_told() -> None:
    graph = Graph(Doc)

    @graph.node
    async def stuck(_doc: Doc) -> None:
        await asyncio.Event().wait()

    with pytest.raises(ScriptFailed, match=f"still going after {LONGEST_CALL.days} days of skipped time"):
        play(graph)


def test_a_thread_that_stops_without_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_CALLS", 5)
    graph = trailing("a", "b")
    graph.interrupt("b", on_reject="a")
    with pytest.raises(ScriptFailed, match="has stopped 5 times, and isn't over"):
        play(graph, decisions={"b": Answer(approved=False)})


async def test_inside_a_running_loop_it_goes_through_a_thread() -> None:
    harness = Harness(trailing("a").compile(checkpoints=EVERY_NODE))
    with pytest.raises(RuntimeError, match="running event loop"):
        harness.run(Doc())
    played = await asyncio.to_thread(harness.run, Doc())
    assert played.state.trail == ["a"]
