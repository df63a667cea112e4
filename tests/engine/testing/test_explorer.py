"""The crash-point explorer: it finds a planted double charge, and passes a correct graph (issue 5, 4)."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import pytest

from examples.orders import Charging, Order, orders
from outcrop.engine import Answer, Backoff, CheckpointPolicy, Graph, NodeContext, Retry, Transient
from outcrop.engine.testing import (
    TIMES_OUT,
    BrokenByCrashes,
    Effects,
    InTurn,
    Report,
    Script,
    ScriptFailed,
    Unexplorable,
    explore,
)
from outcrop.stores.memory import MemoryStore
from outcrop.stores.sqlite import SqliteStore
from outcrop.stores.testing import FailingStore, Faults
from support.engine import EVERY_NODE, Doc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from outcrop.engine.handler import NodeFunction
    from outcrop.engine.testing import SkippingClock
    from outcrop.stores.port import Store

T = TypeVar("T")

SCRIPT = Script(decisions={"approve": Answer()}, replies={"ask": "Berlin"})


def explored(charging: Charging, *, keep_finished: bool = True) -> Report:
    effects = Effects()
    graph = orders(effects, charging, keep_finished=keep_finished)
    return explore(graph, Order(), script=SCRIPT, effects=effects)


def one_node(work: NodeFunction[Doc], effects: Effects, script: Script | None = None) -> Report:
    """Explore a graph whose first node is this one."""
    graph = Graph(Doc)
    graph.node(retry=Retry(max_retries=2))(work)

    @graph.node
    async def after(doc: Doc) -> None:
        doc.n += 1

    graph.edge(work, after)
    return explore(graph.compile(checkpoints=EVERY_NODE), Doc(), script=script, effects=effects)


@pytest.mark.parametrize("charging", [Charging.BY_KEY, Charging.IN_PARTS])
@pytest.mark.parametrize("keep_finished", [True, False])
def test_a_correct_graph_passes(charging: Charging, keep_finished: bool) -> None:
    report = explored(charging, keep_finished=keep_finished)
    report.assert_ok()
    assert report.trials
    assert all(trial.crashed and trial.end == "completed" for trial in report.trials)


@pytest.mark.parametrize("charging", [Charging.BY_UUID, Charging.WITHOUT_KEY])
def test_a_planted_double_charge_is_found(charging: Charging) -> None:
    report = explored(charging)
    assert [(trial.point.name, trial.point.place) for trial in report.broken] == [
        ("effect.after", "charge"),
        ("node.after", "charge"),
        ("save.before", "after charge"),
    ]
    for trial in report.broken:
        (doubled,) = trial.doubled
        assert (doubled.name, doubled.visit, doubled.expected) == ("charge", "thread-1/charge#4", 1)
        assert len(doubled.keys) == 2
    with pytest.raises(
        BrokenByCrashes, match="effect 'charge' happened twice, not once, at thread-1/charge#4"
    ):
        report.assert_ok()


def test_every_kind_of_point_is_crashed_at() -> None:
    report = explored(Charging.BY_KEY)
    points = {(trial.point.name, trial.point.place) for trial in report.trials}
    assert {
        ("lease.acquired", "run at ask"),
        ("save.before", "run at ask"),
        ("save.after", "run at ask"),
        ("node.before", "ask"),
        ("node.after", "ask"),
        ("lease.releasing", "after ask"),
        ("save.before", "resume at ask"),
        ("branch.before", "checks"),
        ("effect.before", "checks/score"),
        ("effect.after", "checks/stock"),
        ("notes.before", "checks/score"),
        ("branch.kept", "checks/score"),
        ("branch.after", "checks/stock"),
        ("node.before", "lines/apple/pack"),
        ("node.after", "lines/pear/pack"),
        ("save.after", "after ship"),
    } <= points
    assert [trial.point.number for trial in report.trials] == list(range(1, len(report.trials) + 1))


def test_a_kept_branch_does_not_run_again() -> None:
    def again(report: Report) -> set[str]:
        after = [trial for trial in report.trials if trial.point.name in {"branch.after", "branch.kept"}]
        return {path for trial in after for path in trial.ran_again if trial.point.place == path}

    assert again(explored(Charging.BY_KEY, keep_finished=True)) == set()
    assert {"checks/score", "checks/stock"} <= again(explored(Charging.BY_KEY, keep_finished=False))


def test_repeats_under_the_same_key_are_told_and_fine() -> None:
    report = explored(Charging.BY_KEY)
    (trial,) = [t for t in report.trials if (t.point.name, t.point.place) == ("node.after", "charge")]
    assert trial.is_ok
    assert [(one.name, one.key, one.times) for one in trial.repeated] == [("charge", "thread-1/charge#4", 2)]
    assert trial.ran_again == ("charge",)


def test_a_double_effect_without_any_crash_is_found() -> None:
    """A retry is enough for a node that makes up its keys."""
    effects = Effects()

    def pay(_doc: Doc, ctx: NodeContext) -> None:
        effects.record(str(uuid4()), "pay")
        if ctx.attempt == 1:
            raise Transient("the answer was lost")

    report = one_node(pay, effects)
    assert [(one.name, one.expected, len(one.keys)) for one in report.faultless] == [("pay", 1, 2)]
    assert not report.is_ok
    assert "without any crash, effect 'pay' happened twice, not once, at thread-1/pay#1" in str(report)


def test_an_effect_that_a_crash_loses_is_found() -> None:
    """Marked as done in a place that outlives the process, before it is done."""
    effects = Effects()

    async def send(_doc: Doc, ctx: NodeContext) -> None:
        if not effects.count("mark"):
            effects.record(ctx.idempotency_key, "mark")
            effects.record(ctx.idempotency_key, "send")

    report = one_node(send, effects)
    assert {(one.name, one.times, one.expected) for trial in report.broken for one in trial.lost} == {
        ("send", 0, 1)
    }
    assert {trial.point.name for trial in report.broken} == {"effect.after", "effect.before"}
    assert "effect 'send' happened never, not once" in str(report)


def test_another_final_state_is_found() -> None:
    effects = Effects()

    async def count(doc: Doc) -> None:
        effects.record(None, "look")
        doc.note = f"looked {effects.count('look')} times"

    report = one_node(count, effects)
    assert {path for trial in report.broken for path in trial.differences} == {"note"}
    assert "the final state differs at 'note'" in str(report)


def test_another_end_is_found() -> None:
    async def fussy(_doc: Doc, ctx: NodeContext) -> None:
        if ctx.is_recovery:
            raise ValueError("not again")

    report = one_node(fussy, Effects())
    assert {(trial.end, trial.expected_end) for trial in report.broken} == {("failed", "completed")}
    assert "the thread ended failed, not completed" in str(report)


def test_what_varies_anyway_is_not_compared() -> None:
    """A node may be random and honest: a token in the state, one message or the other."""
    effects, tokens = Effects(), (f"token {number}" for number in range(10**6))
    ways = iter(["mail", "text"] * 10**4)

    async def greet(doc: Doc, ctx: NodeContext) -> None:
        doc.note = next(tokens)
        effects.record(ctx.idempotency_key, next(ways))

    report = one_node(greet, effects)
    report.assert_ok()
    assert report.varying == (
        "note",
        "effect 'mail' at thread-1/greet#1",
        "effect 'text' at thread-1/greet#1",
    )
    assert "not compared, as two runs without a crash differ there: note" in str(report)


def test_randomness_does_not_hide_a_double_effect() -> None:
    effects = Effects()

    async def greet(doc: Doc) -> None:
        doc.n = random.randrange(10**9)
        for _ in range(2):
            effects.record(str(uuid4()), "greet")

    report = one_node(greet, effects)
    assert report.varying == ("n",)
    assert {(one.times, one.expected) for trial in report.broken for one in trial.doubled} == {(3, 2), (4, 2)}


def test_a_crash_inside_a_task_group_of_a_node_is_one() -> None:
    effects = Effects()

    async def both(_doc: Doc, ctx: NodeContext) -> None:
        async def one(name: str) -> None:
            await asyncio.sleep(1)
            effects.record(ctx.idempotency_key, name)

        async with asyncio.TaskGroup() as group:
            group.create_task(one("a"))
            group.create_task(one("b"))

    report = one_node(both, effects)
    report.assert_ok()
    assert [t.point.name for t in report.trials].count("effect.after") == 2


def test_a_node_that_survives_its_own_crash_does_nothing_more() -> None:
    """Whatever of a dead process still runs is never heard of."""
    effects = Effects()

    async def stubborn(doc: Doc, ctx: NodeContext) -> None:
        try:
            effects.record(ctx.idempotency_key, "work")
        except BaseException:  # noqa: BLE001 - that is what is stubborn
            with pytest.raises(GeneratorExit):
                effects.record(None, "compensate")
        doc.note = "done"

    report = one_node(stubborn, effects)
    report.assert_ok()
    assert all(trial.crashed for trial in report.trials)


def test_boundaries_cannot_be_explored() -> None:
    effects = Effects()
    graph = orders(effects, policy=CheckpointPolicy.BOUNDARIES)
    with pytest.raises(Unexplorable, match="can't be recovered, so there is nothing to explore"):
        explore(graph, Order(), script=SCRIPT, effects=effects)


def test_the_run_without_a_crash_must_fit_its_script() -> None:
    effects = Effects()
    with pytest.raises(ScriptFailed, match="the script has no answer for a person"):
        explore(orders(effects), Order(), script=Script(replies={"ask": "Berlin"}), effects=effects)


def test_a_run_that_does_not_come_to_its_end_is_told() -> None:
    """After a crash, the thread may wait where it never waited before."""

    async def unsure(_doc: Doc, ctx: NodeContext) -> None:
        if ctx.is_recovery:
            await ctx.interrupt("really?")

    report = one_node(unsure, Effects())
    assert not report.is_ok
    assert "the run didn't come to its end: node 'unsure' asks" in str(report)


def test_other_stores_can_be_explored(tmp_path: Path) -> None:
    numbers = iter(range(1000))

    @asynccontextmanager
    async def sqlite(clock: SkippingClock) -> AsyncGenerator[Store]:
        store = await SqliteStore.open(tmp_path / f"{next(numbers)}.db", clock=clock.now)
        try:
            yield store
        finally:
            await store.close()

    effects = Effects()
    report = explore(orders(effects), Order(), script=SCRIPT, effects=effects, store=sqlite)
    report.assert_ok()


def test_services_are_made_anew_for_each_process() -> None:
    class Cache:
        """What a process remembers."""

        def __init__(self) -> None:
            self.has_sent = False

    effects, graph = Effects(), Graph(Doc)

    @graph.node
    async def send(_doc: Doc, ctx: NodeContext) -> None:
        cache = ctx.service(Cache)
        if not cache.has_sent:
            cache.has_sent = True
            ctx.service(Effects).record(ctx.idempotency_key, "send")

    explore(
        graph.compile(checkpoints=EVERY_NODE),
        Doc(),
        effects=effects,
        services=lambda effects: {Cache: Cache(), Effects: effects},
    ).assert_ok()


@pytest.mark.parametrize("place", ["Work/plain", "both/inner", "both/sync", "items/a/plain"])
def test_a_double_effect_is_found_at_any_level(place: str) -> None:
    effects = Effects()

    def pay(path: str, ctx: NodeContext) -> None:
        effects.record(str(uuid4()) if path == place else ctx.idempotency_key, "pay")

    inner: Graph[Doc] = Graph(Doc)

    @inner.node
    async def plain(_doc: Doc, ctx: NodeContext) -> None:
        pay(ctx.node_path, ctx)

    child, graph = inner.compile(checkpoints=EVERY_NODE), Graph(Doc)
    graph.subgraph("Work", child, input=lambda doc: doc, output=lambda _doc, _inner: None)
    graph.map(
        "items",
        child,
        items=lambda _doc: ["a", "b"],
        key=str,
        input=lambda doc, _item: doc,
        reduce=lambda _doc, _items: None,
    )
    both = graph.group("both", reduce=lambda _doc, _branches: None)

    @both.branch(name="inner")
    async def _inner(_doc: Doc, ctx: NodeContext) -> None:
        pay(ctx.node_path, ctx)

    @both.branch(name="sync")
    def _sync(_doc: Doc, ctx: NodeContext) -> None:
        pay(ctx.node_path, ctx)

    graph.edge("Work", "items")
    graph.edge("items", "both")
    report = explore(graph.compile(checkpoints=EVERY_NODE), Doc(), effects=effects)
    found = {one.visit.partition("#")[0] for trial in report.broken for one in trial.doubled}
    assert found == {f"thread-1/{place}"}
    assert not any(trial.lost or trial.differences or trial.problem for trial in report.trials)


def test_effects_of_no_node_are_compared_with_the_run_without_a_crash() -> None:
    def explored_with(key: Callable[[], str]) -> Report:
        effects, graph = Effects(), Graph(Doc)

        def merge(_doc: Doc, _branches: object) -> None:
            effects.record(key(), "merge")

        both = graph.group("both", reduce=merge)

        @both.branch
        async def _only(_doc: Doc) -> None:
            pass

        return explore(graph.compile(checkpoints=EVERY_NODE), Doc(), effects=effects)

    explored_with(lambda: "the key").assert_ok()
    report = explored_with(lambda: str(uuid4()))
    assert "effect 'merge' happened twice, not once, outside any node" in str(report)


def test_static_interrupts_are_crashed_at_too() -> None:
    effects, graph = Effects(), Graph(Doc)

    @graph.node
    async def act(_doc: Doc, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "act")

    compiled = graph.compile(checkpoints=EVERY_NODE, interrupt_before=["act"])
    report = explore(compiled, Doc(), script=Script(decisions={"act": Answer()}), effects=effects)
    report.assert_ok()
    assert ("save.after", "resume at act") in {(t.point.name, t.point.place) for t in report.trials}


def test_signals_retries_and_timeouts_over_crashes() -> None:
    effects, graph = Effects(), Graph(Doc)

    @graph.node(retry=Retry(max_retries=3, backoff=Backoff(10, 100)), timeout=5)
    async def act(doc: Doc, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "act")
        doc.n += 1

    graph.wait_for_event("paid", event="payment")
    graph.edge("paid", act)
    graph.entry("paid")
    script = Script(
        signals={"payment": InTurn({"note": "5"})}, failures={"act": [Transient("busy"), TIMES_OUT]}
    )
    report = explore(graph.compile(checkpoints=EVERY_NODE), Doc(), script=script, effects=effects)
    report.assert_ok()
    assert all(trial.crashed for trial in report.trials)


def test_answers_in_turn_over_crashes() -> None:
    """A stop that comes again after a crash gets the same answer again: nothing is skipped."""
    effects, graph = Effects(), Graph(Doc)

    @graph.node
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        doc.trail.append(f"{await ctx.interrupt('first')} {await ctx.interrupt('second')}")
        effects.record(ctx.idempotency_key, "asked")

    @graph.node
    async def publish(doc: Doc) -> None:
        doc.trail.append("published")

    graph.interrupt("ask", on_reject="ask")
    graph.edge(ask, publish)
    script = Script(
        replies={"ask": InTurn("a", "b", "c", "d")},
        decisions={"ask": InTurn(Answer(approved=False), Answer())},
    )
    report = explore(graph.compile(checkpoints=EVERY_NODE), Doc(), script=script, effects=effects)
    report.assert_ok()
    assert all(trial.crashed for trial in report.trials)


def test_a_wait_inside_a_subgraph_over_crashes() -> None:
    effects, inner, graph = Effects(), Graph(Doc), Graph(Doc)

    @inner.node
    async def draft(doc: Doc, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "draft")
        doc.trail.append("draft")

    @inner.node
    async def publish(doc: Doc, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "publish")
        doc.trail.append("publish")

    inner.interrupt("draft")
    inner.edge(draft, publish)
    graph.subgraph(
        "Work",
        inner.compile(checkpoints=EVERY_NODE),
        input=lambda doc: doc,
        output=lambda doc, done: doc.trail.extend(done.trail),
    )
    script = Script(decisions={"Work/draft": Answer()})
    report = explore(graph.compile(checkpoints=EVERY_NODE), Doc(), script=script, effects=effects)
    report.assert_ok()
    assert {"Work/draft", "Work/publish"} <= {path for trial in report.trials for path in trial.ran_again}


class SlowStore(FailingStore):
    """A store with a task of its own, which outlives every process, and with waits of its own."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.faults = Hops()


class Hops(Faults):
    """Each call hops to another thread and back, and waits a little."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    async def run(self, method: str, work: Callable[[], Awaitable[T]]) -> T:
        if self._worker is None:
            self._worker = asyncio.create_task(self._serve())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(done)
        await done
        answer = await super().run(method, work)
        await asyncio.sleep(0.0001)
        return answer

    async def _serve(self) -> None:
        while True:
            done = await self._jobs.get()
            await asyncio.to_thread(lambda: None)
            if not done.done():
                done.set_result(None)


@asynccontextmanager
async def slow_store(clock: SkippingClock) -> AsyncGenerator[Store]:
    yield SlowStore(MemoryStore(clock=clock.now))


def test_a_store_that_takes_its_time_can_be_crashed_too() -> None:
    """Renewals and other branches go on while a call is on its way."""

    def explored_with(key: Callable[[NodeContext], str]) -> Report:
        effects, graph = Effects(), Graph(Doc)
        both = graph.group("both", reduce=lambda _doc, _branches: None, keep_finished=True)

        @both.branch
        async def quick(_doc: Doc, ctx: NodeContext) -> None:
            effects.record(ctx.idempotency_key, "quick")

        @both.branch
        def threaded(_doc: Doc, ctx: NodeContext) -> None:
            effects.record(ctx.idempotency_key, "threaded")

        @graph.node
        async def pay(_doc: Doc, ctx: NodeContext) -> None:
            effects.record(key(ctx), "pay")

        graph.edge("both", pay)
        return explore(graph.compile(checkpoints=EVERY_NODE), Doc(), effects=effects, store=slow_store)

    explored_with(lambda ctx: ctx.idempotency_key).assert_ok()
    assert len(explored_with(lambda _ctx: str(uuid4())).broken) == 3


def test_a_stop_that_a_crash_makes_the_thread_skip_is_found() -> None:
    """The effects and the end are the same, and nobody was asked."""
    effects, graph = Effects(), Graph(Doc)

    @graph.node
    async def work(doc: Doc, ctx: NodeContext) -> None:
        doc.n = int(ctx.is_recovery)

    @graph.node
    async def after(doc: Doc) -> None:
        doc.n = 0

    graph.interrupt("approve")
    graph.edge("work", "after", when=lambda doc: doc.n > 0)
    graph.edge("work", "approve")
    graph.edge("approve", "after")
    script = Script(decisions={"approve": Answer()})
    report = explore(graph.compile(checkpoints=EVERY_NODE), Doc(), script=script, effects=effects)
    assert not report.is_ok
    assert "the thread went on at 'approve' without waiting there" in str(report)
