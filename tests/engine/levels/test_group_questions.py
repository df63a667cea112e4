"""Questions of a group's branches: several open at once, some answered, and the others' results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    Answer,
    CheckpointPolicy,
    Fatal,
    Graph,
    NodeContext,
    Partial,
    RefusalCode,
    Retry,
    Transient,
    first_success,
)
from support.engine import EVERY_NODE, Doc, World, told
from support.fan_outs import Watch, gather
from support.levels import Nested, done, failed, refused, three_deep, waiting
from support.questions import Asker, open_questions

if TYPE_CHECKING:
    from outcrop.engine import Threads
    from outcrop.engine.group_builder import GroupBuilder

POLICIES = list(CheckpointPolicy)


class Panel:
    """A group `G` between `before` and `after`: `a` asks twice, `b` once, `c` asks nothing."""

    def __init__(self, **options: Any) -> None:
        self.world, self.watch = World(), Watch()
        self.graph: Graph[Doc] = self.world.graph("before")
        self.group: GroupBuilder[Doc] = self.graph.group("G", **{"reduce": gather, **options})
        self.a, self.b = Asker("a1", "a2", name="a"), Asker("b1", name="b")
        self.calls = list[str]()
        self.group.branch(name="a")(self.a.work)
        self.group.branch(name="b")(self.b.work)
        self.group.branch(name="c")(self._quiet)
        self.world.trailing(self.graph, "after")
        self.graph.edge("before", "G")
        self.graph.edge("G", "after")

    async def _quiet(self, doc: Doc) -> None:
        self.calls.append("c")
        doc.trail.append("c")

    def threads(self, policy: CheckpointPolicy = EVERY_NODE) -> Threads[Doc]:
        return self.world.threads(self.graph.compile(checkpoints=policy), telemetry=self.watch)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("keep", [False, True])
async def test_all_that_branches_ask_is_open_at_once(keep: bool, policy: CheckpointPolicy) -> None:
    """In declared order, once the others are done; answered together or one by one."""
    panel = Panel(keep_finished=keep)
    threads = panel.threads(policy)
    result = waiting(await threads.run("t", Doc()))
    assert [(one.path, one.id, one.position) for one in result.questions] == [
        ("G/a", "a1", 0),
        ("G/b", "b1", 0),
    ]
    assert (result.suspended_node, result.next_node, result.waiting_at) == ("G", "G", ("G",))
    assert result.state == Doc(trail=["before"])
    assert told(await panel.world.last()) == "interrupted:G>G"
    result = waiting(await threads.resume("t", Answer(replies={"a1": 1, "b1": 2})))
    assert [one.id for one in result.questions] == ["a2"]
    assert done(await threads.resume("t", Answer(replies={"a2": 3}))).trail == [
        "before", "3", "2", "c", "after"
    ]  # fmt: skip
    assert panel.calls == ["c"] * (1 if keep else 3)
    assert panel.a.answers == [[], [1], [1, 3]]
    assert panel.b.answers == ([[], [2]] if keep else [[], [2], [2]])


@pytest.mark.parametrize("policy", POLICIES)
async def test_what_is_not_answered_stays_open(policy: CheckpointPolicy) -> None:
    """And what was, is known from then on."""
    panel = Panel()
    threads = panel.threads(policy)
    waiting(await threads.run("t", Doc()))
    result = await threads.resume("t", Answer(replies={"b1": 2}))
    assert [(one.path, one.id) for one in open_questions(result)] == [("G/a", "a1")]
    message = refused(await threads.resume("t", Answer(replies={"b1": 9})), RefusalCode.REPLY)
    assert message == "thread 't' has its answer to question 'b1' already; open: 'a1'"
    waiting(await threads.resume("t", Answer(replies={0: 1})))  # only one is open at position 0 now
    assert done(await threads.resume("t", Answer(replies={1: 3}))).trail == [
        "before", "3", "2", "c", "after"
    ]  # fmt: skip


async def test_a_position_that_two_questions_have_is_refused() -> None:
    panel = Panel()
    threads = panel.threads()
    waiting(await threads.run("t", Doc()))
    before = await panel.world.entries()
    message = refused(await threads.resume("t", Answer(replies={0: 1})), RefusalCode.REPLY)
    assert message == (
        "thread 't' asks more than one question at position 0: answer by ID, one of 'a1', 'b1'"
    )
    assert await panel.world.entries() == before


async def test_two_branches_with_the_same_id_fail_the_group_for_good() -> None:
    """Whoever answers could not say which."""
    world, graph = World(), Graph(Doc)
    group = graph.group("G", reduce=gather, retry=Retry(max_retries=3))
    askers = [Asker("q", name=name) for name in ("a", "b")]
    for asker in askers:
        group.branch(name=asker.name)(asker.work)
    result = failed(await world.threads(graph.compile()).run("t", Doc()))
    assert result.message == "branches 'G/a' and 'G/b' both ask question 'q': give each its own id"
    assert [asker.runs for asker in askers] == [1, 1]


async def test_questions_without_ids_are_different_ones_in_each_branch() -> None:
    world, graph = World(), Graph(Doc)
    group = graph.group("G", reduce=gather)
    for name in ("a", "b"):
        group.branch(name=name)(Asker(name=name).work)
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    asked = open_questions(await threads.run("t", Doc()))
    assert [one.id for one in asked] == ["t/G/a#1?0", "t/G/b#1?0"]
    answer = Answer(replies={one.id: one.path for one in asked})
    assert done(await threads.resume("t", answer)).trail == ["G/a", "G/b"]


async def test_a_join_that_is_met_without_them_drops_the_questions() -> None:
    panel = Panel(join=first_success())
    assert done(await panel.threads().run("t", Doc())).trail == ["before", "c", "after"]


async def test_a_group_that_fails_drops_the_questions_and_asks_again_when_retried() -> None:
    """What was answered before stays answered."""
    panel = Panel(retry=Retry(max_retries=1), cancel_siblings=False)
    errors: list[Exception] = [Transient("no")]

    @panel.group.branch(name="d")
    async def shaky(doc: Doc) -> None:
        if errors:
            raise errors.pop()
        doc.trail.append("d")

    threads = panel.threads()
    assert [one.id for one in open_questions(await threads.run("t", Doc()))] == ["a1", "b1"]
    errors.append(Transient("no"))
    result = await threads.resume("t", Answer(replies={"a1": 1, "b1": 2}))
    assert [one.id for one in open_questions(result)] == ["a2"]
    assert done(await threads.resume("t", Answer(replies={"a2": 3}))).trail == [
        "before", "3", "2", "c", "d", "after"
    ]  # fmt: skip


async def test_a_failed_group_keeps_the_answers_for_its_resume() -> None:
    panel = Panel(cancel_siblings=False)
    errors: list[Exception] = []

    @panel.group.branch(name="d")
    async def broken(doc: Doc) -> None:
        if errors:
            raise errors.pop()
        doc.trail.append("d")

    threads = panel.threads()
    waiting(await threads.run("t", Doc()))
    errors.append(Fatal("no"))
    failed(await threads.resume("t", Answer(replies={"a1": 1, "b1": 2})))
    assert [one.id for one in open_questions(await threads.resume("t"))] == ["a2"]
    assert panel.a.answers[-1] == [1]


async def test_a_group_that_keeps_what_succeeded_waits_for_those_who_ask() -> None:
    panel = Panel(partial=Partial.KEEP_SUCCEEDED, reduce=None, reduce_outcomes=_tell)

    @panel.group.branch(name="d")
    async def broken(_doc: Doc) -> None:
        raise Fatal("no")

    threads = panel.threads()
    waiting(await threads.run("t", Doc()))
    waiting(await threads.resume("t", Answer(replies={"a1": 1, "b1": 2})))
    assert done(await threads.resume("t", Answer(replies={"a2": 3}))).trail == [
        "before", "a Succeeded", "b Succeeded", "c Succeeded", "d Failed", "after"
    ]  # fmt: skip


def _tell(entry: Doc, joined: Any) -> None:
    entry.trail += [f"{one.name} {one.status.value}" for one in joined.outcomes]


async def test_waiting_for_a_person_is_no_time_that_a_branch_takes() -> None:
    panel = Panel(branch_timeout=5, timeout=9)
    threads = panel.threads()
    waiting(await threads.run("t", Doc()))
    panel.world.clock.advance(1000)
    waiting(await threads.resume("t", Answer(replies={"a1": 1, "b1": 2})))
    panel.world.clock.advance(1000)
    done(await threads.resume("t", Answer(replies={"a2": 3})))


@pytest.mark.parametrize("policy", POLICIES)
async def test_branches_ask_from_two_levels_down(policy: CheckpointPolicy) -> None:
    panel = Panel(keep_finished=True)
    world = panel.world
    threads, _ = three_deep(world, panel.graph, policy)
    result = waiting(await threads.run("t", Doc()))
    assert result.waiting_at == ("Work", "Inner", "G")
    assert [one.path for one in result.questions] == ["Work/Inner/G/a", "Work/Inner/G/b"]
    waiting(await threads.resume("t", Answer(replies={"b1": 2})))
    waiting(await threads.resume("t", Answer(replies={"a1": 1})))
    assert done(await threads.resume("t", Answer(replies={"a2": 3}))).trail == [
        "begin", "Work/first",
        *[f"Work/Inner/{one}" for one in ("before", "3", "2", "c", "after")],
    ]  # fmt: skip
    assert panel.calls == ["c"]
    assert panel.b.runs == 2


async def test_a_sync_branch_cannot_ask() -> None:
    world, graph, seen = World(), Graph(Doc), list[str]()
    group = graph.group("G", reduce=gather)

    @group.branch(name="a")
    def ask(doc: Doc, ctx: NodeContext) -> None:
        try:
            ctx.interrupt("?").send(None)
        except Fatal as error:
            seen.append(str(error))
        doc.trail.append("a")

    done(await world.threads(graph.compile()).run("t", Doc()))
    assert "can't ask here" in seen[0]


async def test_a_retried_parent_asks_no_branch_again() -> None:
    """As for a node: the child goes on from its nested row, with the answers it had there."""
    world = World()
    child = world.graph("first")
    asker = Asker("q", name="a")
    child.group("G", reduce=gather, keep_finished=True).branch(name="a")(asker.work)
    world.failing(child, "shaky", Transient("busy"))
    child.edge("first", "G")
    child.edge("G", "shaky")
    case = Nested(child, world=world, retry=Retry(max_retries=1))
    waiting(await case.threads().run("t", Doc()))
    result = done(await case.threads().resume("t", Answer(replies={"q": "yes"})))
    assert result.trail == ["before", "Work/first", "Work/yes", "Work/shaky", "after"]


async def test_a_child_run_anew_by_its_parents_retry_keeps_nothing_of_the_attempt_before() -> None:
    """Its nodes may have left another state than the kept results were made from."""
    world, child, entries = World(), Graph(Doc), iter([1, 2])

    @child.node(name="draw")
    async def draw(doc: Doc) -> None:
        doc.n = next(entries)

    group = child.group("G", reduce=gather, keep_finished=True, cancel_siblings=False)
    errors = [Transient("busy")]

    @group.branch(name="a")
    async def tell(doc: Doc) -> None:
        doc.trail.append(f"drew {doc.n}")

    @group.branch(name="b")
    async def shaky(doc: Doc) -> None:
        if errors:
            raise errors.pop()
        doc.trail.append(f"drew {doc.n}")

    child.edge("draw", "G")
    case = Nested(child, world=world, retry=Retry(max_retries=1))
    result = done(await case.threads().run("t", Doc()))
    assert result.trail == ["before", "Work/drew 2", "Work/drew 2", "after"]
