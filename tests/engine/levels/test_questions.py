"""Questions that a node asks: when it waits, what it is told, and which replies are refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    Answer,
    CheckpointPolicy,
    Fatal,
    Graph,
    NodeContext,
    Question,
    RefusalCode,
    Retry,
    RunOptions,
    Transient,
)
from outcrop.engine.events import InterruptedAt, NodeCompleted, NodeResult
from outcrop.engine.failpoints import armed
from outcrop.engine.questions import answers_in, questions_in
from outcrop.stores.record import NoteKind
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, Crash, Doc, World, crashing, told
from support.fan_outs import Watch, gather
from support.levels import Nested, done, failed, refused, sub, three_deep, versions, waiting
from support.questions import THREE, Asker, asking, open_questions

if TYPE_CHECKING:
    from outcrop.engine import Threads
    from outcrop.stores.record import Json

POLICIES = list(CheckpointPolicy)


def threads_of(
    world: World, asker: Asker, policy: CheckpointPolicy = EVERY_NODE, **options: Any
) -> Threads[Doc]:
    return world.threads(asking(world, asker).compile(checkpoints=policy), **options)


def reply(**replies: Json) -> Answer:
    """Replies by ID."""
    return Answer(replies=dict(replies.items()))


def at(*replies: Json) -> Answer:
    """Replies by position."""
    return Answer(replies=dict(enumerate(replies)))


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_question_freezes_the_thread_at_its_node(policy: CheckpointPolicy) -> None:
    """What it has done is thrown away, and the row is one that any engine could resume."""
    world, asker, watch = World(), Asker("colour"), Watch()
    result = waiting(await threads_of(world, asker, policy, telemetry=watch).run("t", Doc(n=3)))
    assert (result.suspended_node, result.next_node) == ("ask", "ask")
    assert result.waiting_at == ("ask",)
    assert result.wait is None
    assert result.state == Doc(trail=["before"], n=3)
    assert result.questions == (Question(path="ask", id="colour", position=0, payload={"what": "colour"}),)
    row = await world.last()
    assert told(row) == "interrupted:ask>ask"
    assert versions(row) == ["1.0.0"]
    assert row.metadata == ({"strata.hops": "1"} if policy is EVERY_NODE else None)
    ended = [event.kind.result for event in watch.events if isinstance(event.kind, NodeCompleted)]
    assert ended == [NodeResult.COMMITTED, NodeResult.INTERRUPTED]
    assert [event.kind for event in watch.events if isinstance(event.kind, InterruptedAt)] == [
        InterruptedAt(("ask",), "ask", None)
    ]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("answer", [reply(colour="red"), at("red")], ids=["by ID", "by position"])
async def test_its_answer_lets_the_node_go_on_from_its_first_line(
    answer: Answer, policy: CheckpointPolicy
) -> None:
    world, asker = World(), Asker("colour")
    threads = threads_of(world, asker, policy)
    waiting(await threads.run("t", Doc()))
    assert done(await threads.resume("t", answer)).trail == ["before", "red", "after"]
    assert asker.runs == 2
    if policy is EVERY_NODE:
        assert [ctx.idempotency_key for ctx in asker.contexts] == ["t/ask#2"] * 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("by_position", [False, True])
async def test_three_questions_are_answered_one_by_one(by_position: bool, policy: CheckpointPolicy) -> None:
    world, asker = World(), Asker(*THREE)
    threads = threads_of(world, asker, policy)
    result = await threads.run("t", Doc())
    for position, (id_, value) in enumerate(zip(THREE, ("red", 42, None), strict=True)):
        assert [(one.id, one.position) for one in open_questions(result)] == [(id_, position)]
        to: str | int = position if by_position else id_
        result = await threads.resume("t", Answer(replies={to: value}))
    assert done(result).trail == ["before", "red", "42", "None", "after"]
    assert asker.answers == [[], ["red"], ["red", 42], ["red", 42, None]]


@pytest.mark.parametrize(
    "value", [None, False, 0, "", [1, {"a": None}], {"deep": [True]}, "\u00e9\U0001f600"]
)
async def test_an_answer_may_be_any_json(value: Json) -> None:
    world, asker = World(), Asker("any")
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    done(await threads.resume("t", reply(any=value)))
    assert asker.answers[-1] == [value]


async def test_questions_without_ids_go_by_position_and_have_ids_of_their_visit() -> None:
    world, asker = World(), Asker(None, None)
    threads = threads_of(world, asker)
    (first,) = open_questions(await threads.run("t", Doc()))
    assert first.id == "t/ask#2?0"
    (second,) = open_questions(await threads.resume("t", Answer(replies={first.id: 1})))
    assert second.id == "t/ask#2?1"
    assert done(await threads.resume("t", Answer(replies={1: 2}))).trail == ["before", "1", "2", "after"]


async def test_answering_with_overrides_changes_the_state_that_the_node_starts_from() -> None:
    world, asker = World(), Asker("colour")
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    result = done(await threads.resume("t", Answer(replies={"colour": "red"}, overrides={"n": 5}, by="eve")))
    assert (result.n, result.trail) == (5, ["before", "red", "after"])


REFUSALS: list[tuple[dict[str | int, Json], str]] = [
    ({}, "thread 't' waits for an answer to 'size': only a reply answers it"),
    ({"nope": 1}, "thread 't' asks no question 'nope'; open: 'size'"),
    ({"price": 1}, "thread 't' asks no question 'price'; open: 'size'"),
    ({"colour": "blue"}, "thread 't' has its answer to question 'colour' already; open: 'size'"),
    ({0: "blue"}, "thread 't' has its answer to the question at position 0 already; open: 'size'"),
    ({2: 1}, "thread 't' asks no question at position 2; open: 'size'"),
    ({-1: 1}, "thread 't' asks no question at position -1; open: 'size'"),
    ({"size": 1, 1: 2}, "thread 't' is given two answers to question 'size'"),
    ({"size": 1, "price": 2}, "thread 't' asks no question 'price'; open: 'size'"),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("replies", "why"), REFUSALS)
async def test_a_reply_that_fits_no_open_question_is_refused_and_nothing_written(
    replies: dict[str | int, Json], why: str, policy: CheckpointPolicy
) -> None:
    world, asker = World(), Asker(*THREE)
    threads = threads_of(world, asker, policy)
    waiting(await threads.run("t", Doc()))
    waiting(await threads.resume("t", reply(colour="red")))
    rows = await world.entries()
    notes = await world.memory.get_notes(rows)
    assert refused(await threads.resume("t", Answer(replies=replies)), RefusalCode.REPLY) == why
    assert await world.entries() == rows
    assert await world.memory.get_notes(rows) == notes
    assert asker.runs == 2
    waiting(await threads.resume("t", reply(size="L")))
    assert done(await threads.resume("t", reply(price=1))).trail == ["before", "red", "L", "1", "after"]


async def test_a_reply_to_a_thread_that_asks_nothing_is_refused() -> None:
    """At a boundary, a failed node and an event wait alike."""
    world = World()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile())
    waiting(await threads.run("t", Doc()))
    before = await world.entries()
    message = refused(await threads.resume("t", reply(colour="red")), RefusalCode.REPLY)
    assert message == "thread 't' asks no question: there is nothing to reply to"
    assert await world.entries() == before


async def test_what_is_no_reply_answers_no_question() -> None:
    """A signal, a wake, an approval and a rejection are refused; the question stays open."""
    world, asker = World(), Asker("colour")
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    before = await world.entries()
    refused(await threads.signal("t", "paid"), RefusalCode.REPLY)
    refused(await threads.wake("t"), RefusalCode.NOT_DUE)
    refused(await threads.resume("t"), RefusalCode.REPLY)
    refused(await threads.resume("t", Answer(approved=False)), RefusalCode.REPLY)
    assert await world.entries() == before
    done(await threads.resume("t", reply(colour="red")))


async def test_a_second_answer_is_refused() -> None:
    """Of two who answer at once, one wins; later, the question isn't open any more."""
    world, asker = World(), Asker("colour")
    threads = threads_of(world, asker, BOUNDARIES)
    waiting(await threads.run("t", Doc()))
    done(await threads.resume("t", reply(colour="red")))
    refused(await threads.resume("t", reply(colour="blue")), RefusalCode.ALREADY_RESUMED)
    assert asker.answers[-1] == ["red"]


async def test_a_stale_answer_is_refused() -> None:
    """Whoever read an earlier row is told so."""
    world, asker = World(), Asker(*THREE)
    threads = threads_of(world, asker)
    result = waiting(await threads.run("t", Doc()))
    stale = RunOptions(expected_sequence=result.sequence)
    waiting(await threads.resume("t", reply(colour="red"), stale))
    refused(await threads.resume("t", reply(size="L"), stale), RefusalCode.STALE)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_loop_that_asks_again_is_never_given_the_earlier_answer(policy: CheckpointPolicy) -> None:
    """Nor can the earlier question be answered any more."""
    world, asker = World(), Asker(None)
    graph = asking(world, asker)
    graph.edge("after", "ask", when=lambda doc: doc.trail.count("after") < 3)
    world.trailing(graph, "end")
    graph.edge("after", "end")
    threads = world.threads(graph.compile(checkpoints=policy))
    result, asked = await threads.run("t", Doc()), list[str]()
    for value in ("one", "two", "three"):
        (question,) = open_questions(result)
        for old in asked:
            message = refused(await threads.resume("t", Answer(replies={old: "?"})), RefusalCode.REPLY)
            assert "asks no question" in message
        asked.append(question.id)
        result = await threads.resume("t", Answer(replies={question.id: value}))
    assert done(result).trail == ["before", "one", "after", "two", "after", "three", "after", "end"]
    assert len(set(asked)) == 3


async def test_an_id_of_its_own_asks_anew_at_each_visit() -> None:
    world, asker = World(), Asker("colour")
    graph = asking(world, asker)
    graph.edge("after", "ask", when=lambda doc: doc.trail.count("after") < 2)
    world.trailing(graph, "end")
    graph.edge("after", "end")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    assert len(open_questions(await threads.resume("t", reply(colour="red")))) == 1
    assert done(await threads.resume("t", reply(colour="blue"))).trail == [
        "before", "red", "after", "blue", "after", "end"
    ]  # fmt: skip


@pytest.mark.parametrize("payload", [object(), {1, 2}, b"x", {"a": object()}, float])
async def test_a_payload_that_is_no_json_fails_the_node_for_good(payload: Any) -> None:
    world, graph, calls = World(), Graph(Doc), list[int]()

    @graph.node(name="ask", retry=Retry(max_retries=3))
    async def ask(_doc: Doc, ctx: NodeContext) -> None:
        calls.append(1)
        await ctx.interrupt(payload)

    result = failed(await world.threads(graph.compile()).run("t", Doc()))
    assert result.message.startswith("node 'ask' asks with a payload that isn't JSON: ")
    assert calls == [1]


async def test_the_same_id_twice_fails_the_node_for_good() -> None:
    world, asker = World(), Asker("colour", "colour")
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    result = failed(await threads.resume("t", reply(colour="red")))
    assert result.message == "node 'ask' asks question 'colour' twice: give each its own id"


async def test_no_question_inside_a_maps_item() -> None:
    world, graph, child = World(), Graph(Doc), Graph(Doc)
    Asker("colour").add_to(child)
    graph.map(
        "Lines",
        child.compile(),
        items=lambda _doc: ["a"],
        key=str,
        input=lambda _doc, _item: Doc(),
        reduce=gather,
        retry=Retry(max_retries=2),
    )
    result = failed(await world.threads(graph.compile()).run("t", Doc()))
    assert "node 'Lines/a/ask' of thread 't' can't ask here" in result.message
    assert result.attempts == 1


async def test_no_question_in_a_group_inside_a_maps_item() -> None:
    world, graph, child = World(), Graph(Doc), Graph(Doc)
    child.group("G", reduce=gather).branch(name="ask")(Asker("colour").work)
    graph.map(
        "Lines",
        child.compile(),
        items=lambda _doc: ["a"],
        key=str,
        input=lambda _doc, _item: Doc(),
        reduce=gather,
    )
    result = failed(await world.threads(graph.compile()).run("t", Doc()))
    assert "node 'Lines/a/G/ask' of thread 't' can't ask here" in result.message


@pytest.mark.parametrize("inline", [False, True])
async def test_no_question_from_a_sync_node_or_a_context_made_by_hand(inline: bool) -> None:
    world, graph, seen = World(), Graph(Doc), list[str]()

    @graph.node(name="ask", inline=inline)
    def ask(_doc: Doc, ctx: NodeContext) -> None:
        try:
            ctx.interrupt("?").send(None)
        except Fatal as error:
            seen.append(str(error))

    done(await world.threads(graph.compile()).run("t", Doc()))
    assert "can't ask here" in seen[0]
    with pytest.raises(Fatal, match="can't ask here"):
        await NodeContext(thread_id="t", node="x", node_path="x").interrupt("?")


async def test_a_node_that_swallows_everything_waits_all_the_same() -> None:
    """Even with a result, and even if it asks on: all that it asked is open."""
    world, graph = World(), Graph(Doc)
    got: list[Json] = []

    @graph.node(name="ask")
    async def ask(doc: Doc, ctx: NodeContext) -> Doc:
        for id_ in ("one", "two"):
            try:
                got.append(await ctx.interrupt(id=id_))
            except BaseException:  # noqa: BLE001 - what the test is about
                doc.trail.append("swallowed")
        return doc

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    result = await threads.run("t", Doc())
    assert [one.id for one in open_questions(result)] == ["one", "two"]
    message = refused(await threads.resume("t", reply(two=2)), RefusalCode.REPLY)
    assert message == "thread 't' waits for an earlier answer than that to 'two': give both"
    assert [one.id for one in open_questions(await threads.resume("t", reply(one=1)))] == ["two"]
    assert done(await threads.resume("t", reply(two=2))).trail == []
    assert got == [1, 1, 2]


async def test_a_question_passes_through_a_nodes_own_handlers_of_errors() -> None:
    world, graph = World(), Graph(Doc)

    @graph.node(name="ask")
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        try:
            doc.note = str(await ctx.interrupt(id="q"))
        except Exception:  # noqa: BLE001 - what the test is about
            doc.note = "swallowed"

    threads = world.threads(graph.compile())
    waiting(await threads.run("t", Doc()))
    assert done(await threads.resume("t", reply(q="yes"))).note == "yes"


async def test_a_node_that_raises_after_its_question_waits_all_the_same() -> None:
    """`finally` may do what it likes."""
    world, graph = World(), Graph(Doc)

    @graph.node(name="ask", fallback="plan b")
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        try:
            doc.note = str(await ctx.interrupt(id="q"))
        finally:
            if doc.note is None:
                raise ValueError("in the way")

    world.trailing(graph, "plan b")
    threads = world.threads(graph.compile())
    waiting(await threads.run("t", Doc()))
    assert done(await threads.resume("t", reply(q="yes"))).note == "yes"
    assert world.ran == []


async def test_answers_outlive_retries_and_a_failure() -> None:
    """Nobody is asked twice: neither by a retry nor by the resume of the failed thread."""
    world, graph, errors = World(), Graph(Doc), [Transient("a"), Transient("b"), Fatal("c")]

    @graph.node(name="ask", retry=Retry(max_retries=1))
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        doc.note = str(await ctx.interrupt(id="q"))
        if errors:
            raise errors.pop(0)

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    failed(await threads.resume("t", reply(q="yes")))
    refused(await threads.resume("t", reply(q="no")), RefusalCode.REPLY)
    failed(await threads.resume("t"))
    assert done(await threads.resume("t")).note == "yes"
    assert errors == []


async def test_a_question_is_no_failure_and_a_fallback_has_its_own() -> None:
    """A node that failed after its answer hands nothing of it on."""
    world, graph, other = World(), Graph(Doc), Asker("q", name="plan b")

    @graph.node(name="ask", fallback="plan b", retry=Retry(max_retries=5))
    async def ask(_doc: Doc, ctx: NodeContext) -> None:
        raise Fatal(str(await ctx.interrupt(id="q")))

    other.add_to(graph)
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    (question,) = open_questions(await threads.resume("t", reply(q="no")))
    assert question.path == "plan b"
    assert done(await threads.resume("t", reply(q="yes"))).trail == ["yes"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_question_two_levels_down(policy: CheckpointPolicy) -> None:
    """The row nests as a boundary's does; the answer reaches the node and no other."""
    world, asker = World(), Asker(*THREE)
    threads, _ = three_deep(world, asking(world, asker), policy)
    result = waiting(await threads.run("t", Doc()))
    assert result.waiting_at == ("Work", "Inner", "ask")
    assert [one.path for one in result.questions] == ["Work/Inner/ask"]
    assert told(await world.last()) == "interrupted:Work>Work / interrupted:Inner>Inner / interrupted:ask>ask"
    waiting(await threads.resume("t", reply(colour="red")))
    waiting(await threads.resume("t", at_position(1, "L")))
    assert done(await threads.resume("t", reply(price=3))).trail == [
        "begin", "Work/first", "Work/Inner/before", "Work/Inner/red", "Work/Inner/L", "Work/Inner/3",
        "Work/Inner/after",
    ]  # fmt: skip
    assert world.ran == ["begin", "first", "before", "after"]


def at_position(position: int, value: Json) -> Answer:
    return Answer(replies={position: value})


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_retry_of_a_resumed_child_asks_nobody_again(policy: CheckpointPolicy) -> None:
    """E014 for questions: the child goes on from the same nested row, with the answer."""
    world, asker = World(), Asker("colour")
    child = world.graph("before")
    asker.add_to(child)
    world.failing(child, "shaky", Transient("busy"), Transient("busy"))
    child.edge("before", "ask")
    child.edge("ask", "shaky")
    case = Nested(child, world=world, policy=policy, retry=Retry(max_retries=2))
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    assert done(await threads.resume("t", reply(colour="red"))).trail == [
        "before", "Work/before", "Work/red", "Work/shaky", "after"
    ]  # fmt: skip


async def test_a_child_that_begins_anew_asks_anew() -> None:
    """A later visit of the subgraph node is another execution of what is below."""
    world, asker = World(), Asker("colour")
    case = Nested(asking(world, asker), world=world)
    case.graph.edge("after", "Work", when=lambda doc: doc.trail.count("after") < 2)
    world.trailing(case.graph, "end")
    case.graph.edge("after", "end")
    threads = case.threads()
    waiting(await threads.run("t", Doc()))
    assert len(open_questions(await threads.resume("t", reply(colour="red")))) == 1
    result = done(await threads.resume("t", reply(colour="blue")))
    assert [one for one in result.trail if one in ("Work/red", "Work/blue")] == ["Work/red", "Work/blue"]


async def test_a_question_and_then_a_boundary_at_the_same_node() -> None:
    """The answers go with the node's commit; the boundary is answered as always, and rejected too."""
    world, asker = World(), Asker("colour")
    graph = asking(world, asker)
    world.trailing(graph, "rejected")
    graph.interrupt("ask", on_reject="rejected")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    frozen = waiting(await threads.resume("t", reply(colour="red")))
    assert (frozen.suspended_node, frozen.next_node, frozen.questions) == ("ask", "after", ())
    refused(await threads.resume("t", reply(colour="blue")), RefusalCode.REPLY)
    assert done(await threads.resume("t", Answer(approved=False))).trail == ["before", "red", "rejected"]


async def test_a_rejection_that_replies_is_a_reply() -> None:
    """The node's boundary isn't what is answered."""
    world, asker = World(), Asker("colour")
    graph = asking(world, asker)
    world.trailing(graph, "rejected")
    graph.interrupt("ask", on_reject="rejected")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    frozen = waiting(await threads.resume("t", Answer(approved=False, replies={"colour": "red"})))
    assert (frozen.suspended_node, frozen.next_node) == ("ask", "after")


async def test_questions_asked_in_another_order_get_no_answer_of_another() -> None:
    """A node whose questions depend on what may change is told, rather than given the wrong answer."""
    world, graph, order = World(), Graph(Doc), [["one", "two"], ["two", "one"]]

    @graph.node(name="ask")
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        for id_ in order.pop(0):
            doc.trail.append(f"{id_}={await ctx.interrupt(id=id_)}")

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    result = failed(await threads.resume("t", reply(one=1)))
    assert result.message == (
        "node 'ask' asks question 'two' where it had its answer to 'one': "
        "its questions must come in the same order every time"
    )
    order[:] = [["one", "two"]] * 2  # put right: the answer is still there
    (question,) = open_questions(await threads.resume("t"))
    assert question.id == "two"
    assert done(await threads.resume("t", reply(two=2))).trail == ["one=1", "two=2"]


async def test_notes_go_when_the_node_commits() -> None:
    """Rows after it carry nothing of it; those before keep theirs."""
    world, asker = World(), Asker(*THREE)
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    for position in range(3):
        await threads.resume("t", at_position(position, position))
    rows = await world.entries()
    notes = await world.memory.get_notes(rows)
    found = [
        (
            told(row.checkpoint),
            [one.id for one in questions_in(notes.get(row.sequence, ()))],
            [len(replies) for replies in answers_in(notes.get(row.sequence, ())).values()],
        )
        for row in rows
    ]
    assert found == [
        ("running:->before", [], []),
        ("running:before>ask", [], []),
        ("interrupted:ask>ask", ["colour"], []),
        ("running:ask>ask", [], [1]),
        ("interrupted:ask>ask", ["size"], [1]),
        ("running:ask>ask", [], [2]),
        ("interrupted:ask>ask", ["price"], [2]),
        ("running:ask>ask", [], [3]),
        ("running:ask>after", [], []),
        ("completed:after>-", [], []),
    ]
    assert {note.kind for at in notes.values() for note in at} == {NoteKind.QUESTION, NoteKind.ANSWER}


async def test_cancelling_a_dead_thread_loses_no_answer() -> None:
    """Threads.cancel: whoever answered isn't asked again when the thread is resumed."""
    world, asker = World(), Asker("colour")
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads.resume("t", reply(colour="red"))
    await threads.cancel("t")
    assert told(await world.last()) == "cancelled:ask>ask"
    assert done(await threads.resume("t")).trail == ["before", "red", "after"]


async def test_ending_a_thread_ends_its_questions() -> None:
    world, asker = World(), Asker("colour")
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    await threads.end("t")
    refused(await threads.resume("t", reply(colour="red")), RefusalCode.ENDED)


async def test_a_run_of_its_own_begins_without_the_answers_of_an_earlier_one() -> None:
    """The log goes on, the notes don't."""
    world, asker = World(), Asker(*THREE)
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    waiting(await threads.resume("t", reply(colour="red")))
    result = await threads.run("t", Doc())
    assert [one.id for one in open_questions(result)] == ["colour"]


async def test_a_question_in_a_node_with_a_sibling_subgraph() -> None:
    """Closing `Work` keeps what is called `Workshop`."""
    world, asker = World(), Asker("colour", name="Workshop")
    graph = Graph(Doc)
    sub(graph, "Work", world.graph("x").compile())
    asker.add_to(graph)
    graph.edge("Work", "Workshop")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    waiting(await threads.run("t", Doc()))
    assert done(await threads.resume("t", reply(colour="red"))).trail == ["Work/x", "red"]


class Opaque:
    """No JSON."""


@pytest.mark.parametrize(
    "value", [(1, 2), {1: 2}, float("nan"), Opaque(), [datetime(2026, 1, 2, tzinfo=UTC)]]
)
async def test_an_answer_that_is_no_json_is_refused(value: Any) -> None:
    """It would be another one after a crash; nothing is written, and the lease is free."""
    world, asker = World(), Asker("colour")
    threads = threads_of(world, asker)
    waiting(await threads.run("t", Doc()))
    before = await world.entries()
    message = refused(await threads.resume("t", Answer(replies={"colour": value}), LEASED), RefusalCode.REPLY)
    assert "'colour' that isn't JSON" in message
    assert await world.entries() == before
    assert await world.memory.get_lease("t") is None
    done(await threads.resume("t", reply(colour=[1, {"a": None}])))
    assert asker.answers[-1] == [[1, {"a": None}]]


async def test_a_dropped_run_is_dropped_after_its_node_asked_too() -> None:
    world, reached = World(), asyncio.Event()
    graph: Graph[Doc] = Graph(Doc)

    @graph.node(name="ask")
    async def ask(_doc: Doc, ctx: NodeContext) -> None:
        try:
            await ctx.interrupt("?")
        finally:
            reached.set()
            await asyncio.Event().wait()

    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    run = asyncio.create_task(threads.run("t", Doc()))
    await reached.wait()
    before = await world.entries()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await world.entries() == before
