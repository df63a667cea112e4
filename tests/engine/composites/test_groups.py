"""Groups: starts, joins, failures, timeouts, cancellation and questions of branches."""

from __future__ import annotations

import asyncio
import threading

import pytest

from outcrop.engine import (
    Answer,
    Backoff,
    Cancelled,
    CancelToken,
    Completed,
    Failed,
    Fatal,
    Graph,
    Interrupted,
    NodeContext,
    Retry,
    RunOptions,
    Transient,
)
from outcrop.engine.chunks import ChunkStream
from outcrop.engine.composites import OutcomeStatus, Partial, first_matching, first_success, quorum
from outcrop.engine.events import ErrorType
from outcrop.engine.metadata import ERROR_KIND, RETRY_AFTER_MS
from support.engine import BOUNDARIES, Doc
from support.fan_outs import Stage, settle

KEEP = Partial.KEEP_SUCCEEDED


def trail(result: object) -> list[str]:
    assert isinstance(result, Completed), result
    assert isinstance(result.state, Doc)
    return result.state.trail


def failed(result: object) -> Failed:
    assert isinstance(result, Failed), result
    return result


async def test_branches_run_beside_each_other_and_are_reduced_as_declared() -> None:
    """N001, N003 (the merged state flows on)."""
    stage = Stage()
    stage.branches("a", "b", "c")
    assert trail(await stage.run("c", "a", "b")) == ["in", "a", "b", "c", "out"]
    assert stage.started == ["a", "b", "c"]
    assert await stage.world.log() == ["running:->in", "running:in>g", "running:g>out", "completed:out>-"]


async def test_each_branch_starts_from_the_entry_state_which_the_reducer_gets() -> None:
    """N002."""
    seen = list[list[str]]()

    def reduce(entry: Doc, _states: object) -> Doc:
        seen.append(list(entry.trail))
        return Doc(trail=["new"])

    stage = Stage(reduce=reduce)
    for name in ("a", "b"):

        @stage.group.branch(name=name)
        async def look(doc: Doc) -> None:
            seen.append(list(doc.trail))
            doc.trail.append("edited")

    assert trail(await stage.run()) == ["new", "out"]
    assert seen == [["in"]] * 3


async def test_sync_and_async_branches_mix() -> None:
    """B011."""
    stage = Stage()
    on = list[bool]()

    @stage.group.branch
    def slow(doc: Doc) -> Doc:
        on.append(threading.current_thread() is threading.main_thread())
        return doc.model_copy(update={"trail": ["sync"]})

    @stage.group.branch
    async def fast(doc: Doc) -> None:
        doc.trail.append("async")

    assert trail(await stage.run()) == ["in", "sync", "async", "out"]
    assert on == [False]


async def test_a_thousand_branches_wait_at_once_without_a_thread_each() -> None:
    """B010."""
    stage = Stage()
    stage.branches(*(f"b{number}" for number in range(1000)))
    task = asyncio.create_task(stage.threads().run("t", Doc()))
    await settle()
    assert len(stage.contexts) == 1000
    assert threading.active_count() < 100
    for gate in stage.gates.values():
        gate.set()
    assert len(trail(await task)) == 1002


async def test_a_failing_branch_stops_its_siblings_and_fails_the_group_alone() -> None:
    """N003, N011, D012: the siblings' tokens fire."""
    stage = Stage()
    stage.branch("a")
    stage.branch("b", Fatal("no stock"))
    stage.branch("c")
    result = failed(await stage.run("b"))
    assert result.message == "branch 'b': no stock"
    assert (result.node, result.attempts) == ("g", 1)
    assert stage.stopped == ["a", "c"]
    assert [ctx.cancellation.fired for ctx in stage.contexts] == [True, False, True]
    assert stage.watch.told()[-5:] == [
        "start g/c",
        "end g/b Failed",
        "end g/a Cancelled SiblingFailed",
        "end g/c Cancelled SiblingFailed",
        "done g Failed",
    ]
    row = await stage.world.last()
    assert (row.status, row.suspended_node, row.nested) == ("failed", "g", None)


async def test_siblings_finish_first_when_they_are_not_to_be_stopped() -> None:
    """N011: no more are started, and the rest keep their ends."""
    stage = Stage(cancel_siblings=False, max_concurrency=2)
    stage.branch("a")
    stage.branch("b", Fatal("no"))
    stage.branch("c")
    assert failed(await stage.run("b", "a")).message == "branch 'b': no"
    assert stage.started == ["a", "b"]
    assert stage.watch.ends()["g/a"].result == "Succeeded"


@pytest.mark.parametrize(("error", "runs"), [(Fatal("x"), 1), (Transient("x"), 2), (ValueError("x"), 2)])
async def test_a_fatal_branch_makes_the_group_fatal_and_another_is_tried_again(
    error: Exception, runs: int
) -> None:
    """N004: the policy reruns every branch."""
    stage = Stage(retry=Retry(max_retries=1))
    stage.branch("a")
    stage.branch("b", error)
    result = await stage.run("a", "b")
    assert stage.started == ["a", "b"] * runs
    assert isinstance(result, Completed) == (runs == 2)
    assert {ctx.attempt for ctx in stage.contexts} == set(range(1, runs + 1))


async def test_what_the_groups_policy_gives_up_on_is_fatal_in_a_branch() -> None:
    """N004."""
    stage = Stage(retry=Retry(max_retries=3, give_up_on=(KeyError,)))
    stage.branch("a", KeyError("k"))
    assert failed(await stage.run("a")).message == "branch 'a': KeyError: 'k'"
    assert stage.started == ["a"]


async def test_a_fallback_runs_on_the_state_before_the_group() -> None:
    """N005."""
    stage = Stage(fallback="plan-b")
    stage.world.trailing(stage.graph, "plan-b")
    stage.branch("a")
    stage.branch("b", Fatal("no"))
    assert trail(await stage.run("a", "b")) == ["in", "plan-b"]


async def test_a_group_can_be_a_boundary_with_the_merged_state() -> None:
    """N005."""
    stage = Stage()
    stage.branches("a", "b")
    stage.graph.interrupt("g")
    result = await stage.run("a", "b")
    assert isinstance(result, Interrupted)
    assert result.state.trail == ["in", "a", "b"]
    assert (await stage.world.log())[-1] == "interrupted:g>out"


async def test_a_group_as_fallback_hands_the_failure_to_its_branches() -> None:
    """C021."""
    stage = Stage()
    stage.branches("a", "b")
    stage.world.failing(stage.graph, "shaky", Fatal("broken"), fallback="g")
    stage.graph.entry("shaky")
    stage.graph.edge("shaky", "in")
    await stage.run("a", "b")
    told = [ctx.last_failure for ctx in stage.contexts]
    assert [failure and (failure.node, failure.error) for failure in told] == [("shaky", "broken")] * 2


async def test_a_panic_in_a_branch_ends_the_run_unretried_once_the_siblings_stopped() -> None:
    """N006."""

    class Panic(BaseException):
        pass

    stage = Stage(retry=Retry(max_retries=5), fallback="out")
    stage.branches("a")

    @stage.group.branch
    async def b(_doc: Doc) -> None:
        raise Panic("bug")

    with pytest.raises(Panic, match="bug"):
        await stage.run()
    assert stage.stopped == ["a"]
    assert stage.started == ["a"]
    ends = stage.watch.ends()
    assert ends["g/b"].error_type is ErrorType.PANIC
    assert ends["g/a"].reason == "SiblingFailed"
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_the_limit_holds_and_branches_start_as_declared() -> None:
    """N007."""
    stage = Stage(max_concurrency=2)
    stage.branches("a", "b", "c", "d")
    task = asyncio.create_task(stage.run("b", "a", "c", "d"))
    await settle()
    assert await task
    assert stage.watch.told()[2:-3] == [
        "node g",
        "start g/a",
        "start g/b",
        "end g/b Succeeded",
        "start g/c",
        "end g/a Succeeded",
        "start g/d",
        "end g/c Succeeded",
        "end g/d Succeeded",
    ]


async def test_a_queued_branch_is_not_charged_for_waiting() -> None:
    """N007, N008: b starts 4 s late and has its 5 s from then."""
    stage = Stage(max_concurrency=1, branch_timeout=5)
    stage.branches("a", "b")
    task = asyncio.create_task(stage.run())
    for name in ("a", "b"):
        await settle()
        stage.world.clock.advance(4)
        stage.gates[name].set()
    assert trail(await task) == ["in", "a", "b", "out"]


async def test_a_branch_timeout_hits_only_that_branch() -> None:
    """N008."""
    stage = Stage.told_outcomes(branch_timeout=5, partial=KEEP)
    stage.branches("a", "b")
    stage.gates["a"].set()
    task = asyncio.create_task(stage.run())
    await settle()
    stage.world.clock.advance(5)
    assert trail(await task) == ["in", "a", "out"]
    outcomes = [(one.name, one.status, one.error) for one in stage.joined[0].outcomes]
    assert outcomes == [
        ("a", OutcomeStatus.SUCCEEDED, None),
        ("b", OutcomeStatus.TIMED_OUT, "branch 'b' timed out after 5000 ms"),
    ]
    end = stage.watch.ends()["g/b"]
    assert (end.result, end.reason, end.error_type) == ("Failed", "TimedOut", ErrorType.TIMEOUT)


async def test_a_timed_out_branch_is_worth_another_attempt() -> None:
    """N008: transient."""
    stage = Stage(branch_timeout=5, retry=Retry(max_retries=1))
    stage.branches("a")
    task = asyncio.create_task(stage.run())
    await settle()
    stage.world.clock.advance(5)
    await settle()
    stage.gates["a"].set()
    assert trail(await task) == ["in", "a", "out"]


async def test_keep_succeeded_runs_everything_and_tells_all_outcomes() -> None:
    """N009."""
    stage = Stage.told_outcomes(partial=KEEP)
    stage.branch("a")
    stage.branch("b", Transient("busy"))
    stage.branch("c")
    assert trail(await stage.run("b", "c", "a")) == ["in", "a", "c", "out"]
    joined = stage.joined[0]
    assert (joined.join_met, joined.deciding) == (False, ())
    assert [(one.name, one.status, one.error) for one in joined.outcomes] == [
        ("a", OutcomeStatus.SUCCEEDED, None),
        ("b", OutcomeStatus.FAILED, "busy"),
        ("c", OutcomeStatus.SUCCEEDED, None),
    ]
    assert stage.stopped == []


async def test_keep_succeeded_gives_a_plain_reducer_what_succeeded() -> None:
    """N009."""
    stage = Stage(partial=KEEP)
    stage.branches("a")
    stage.branch("b", Fatal("no"))
    assert trail(await stage.run("b", "a")) == ["in", "a", "out"]


async def test_when_all_fail_all_are_named_and_the_longest_hint_is_recorded() -> None:
    """N010, C022."""
    stage = Stage(partial=KEEP)
    stage.branch("a", Transient("one", retry_after=2))
    stage.branch("b", Transient("two", retry_after=7))
    stage.branch("c", Transient("three"))
    assert (
        failed(await stage.run("c", "b", "a")).message
        == "branch 'a': one; branch 'b': two; branch 'c': three"
    )
    metadata = (await stage.world.last()).metadata or {}
    assert metadata[RETRY_AFTER_MS] == "7000"
    assert metadata[ERROR_KIND] == "transient"


async def test_a_group_backs_off_by_its_longest_hint() -> None:
    """C022."""
    stage = Stage(partial=KEEP, retry=Retry(max_retries=1, backoff=Backoff(1, 60)))
    stage.branch("a", Transient("one", retry_after=2))
    stage.branch("b", Transient("two", retry_after=7))
    stage.gates["a"].set()
    stage.gates["b"].set()
    task = asyncio.create_task(stage.run())
    await settle()
    assert stage.world.clock.next_due == 7
    stage.world.clock.advance(7)
    assert trail(await task) == ["in", "a", "b", "out"]


async def test_a_fatal_among_all_makes_the_group_fatal() -> None:
    """N010."""
    stage = Stage(partial=KEEP)
    stage.branch("a", Transient("one"))
    stage.branch("b", Fatal("two"))
    await stage.run("a", "b")
    assert ((await stage.world.last()).metadata or {})[ERROR_KIND] == "fatal"


async def test_the_first_success_wins_the_race() -> None:
    """N012."""
    stage = Stage(join=first_success())
    stage.branches("a", "b", "c")
    assert trail(await stage.run("b")) == ["in", "b", "out"]
    assert stage.watch.told()[6:11] == [
        "end g/b Succeeded",
        "join g first_success met ['b']",
        "end g/a Cancelled LostRace",
        "end g/c Cancelled LostRace",
        "done g Committed",
    ]
    assert stage.stopped == ["a", "c"]


async def test_first_matching_waits_for_a_result_that_passes() -> None:
    """N013: asked once of each that succeeds."""
    asked = list[int]()

    def matches(doc: Doc) -> bool:
        asked.append(doc.n)
        return doc.n > 5

    stage = Stage.told_outcomes(join=first_matching(matches))
    stage.branch("a", n=1)
    stage.branch("b", n=9)
    stage.branch("c", n=8)
    assert trail(await stage.run("a", "b")) == ["in", "a", "b", "out"]
    assert asked == [1, 9]
    joined = stage.joined[0]
    assert joined.deciding == ("b",)
    assert [one.status for one in joined.outcomes] == ["Succeeded", "Succeeded", "Cancelled"]


async def test_a_predicate_that_raises_fails_its_branch() -> None:
    """N013: the event and the outcome say the same."""

    def matches(doc: Doc) -> bool:
        return 1 // doc.n > 0

    stage = Stage(join=first_matching(matches))
    stage.branch("a", n=0)
    stage.branch("b", n=1)
    assert trail(await stage.run("a", "b")) == ["in", "b", "out"]
    end = stage.watch.ends()["g/a"]
    assert (end.result, end.error) == ("Failed", "ZeroDivisionError: integer division or modulo by zero")


async def test_a_quorum_is_met_by_the_first_that_succeed() -> None:
    """N014."""
    stage = Stage.told_outcomes(join=quorum(2))
    stage.branches("a", "b", "c")
    assert trail(await stage.run("c", "a")) == ["in", "a", "c", "out"]
    assert stage.joined[0].deciding == ("c", "a")
    assert "join g quorum met ['c', 'a']" in stage.watch.told()


async def test_a_plain_reducer_gets_the_deciding_states_as_declared() -> None:
    """N014."""
    stage = Stage(join=quorum(2))
    stage.branches("a", "b", "c")
    assert trail(await stage.run("c", "b")) == ["in", "b", "c", "out"]


async def test_branches_held_by_the_limit_never_start_once_won() -> None:
    """N015."""
    stage = Stage.told_outcomes(join=first_success(), max_concurrency=1)
    stage.branches("a", "b", "c")
    assert trail(await stage.run("a")) == ["in", "a", "out"]
    assert stage.started == ["a"]
    assert not [told for told in stage.watch.told() if "g/b" in told or "g/c" in told]
    assert [one.status for one in stage.joined[0].outcomes] == ["Succeeded", "Cancelled", "Cancelled"]


async def test_a_race_goes_on_after_a_failure_while_it_can_be_won() -> None:
    """N016."""
    stage = Stage(join=first_success())
    stage.branch("a", Fatal("no"))
    stage.branch("b")
    assert trail(await stage.run("a", "b")) == ["in", "b", "out"]


async def test_a_race_that_nobody_wins_is_transient_if_one_failure_was() -> None:
    """N016."""
    stage = Stage(join=first_success())
    stage.branch("a", Fatal("no"))
    stage.branch("b", Transient("busy"))
    assert failed(await stage.run("a", "b")).message == "branch 'a': no; branch 'b': busy"
    assert ((await stage.world.last()).metadata or {})[ERROR_KIND] == "transient"
    assert "join g first_success lost []" in stage.watch.told()


async def test_a_quorum_that_cannot_be_reached_says_how_far_it_came() -> None:
    """N017."""
    stage = Stage(join=quorum(2))
    stage.branch("a")
    stage.branch("b", Fatal("x"))
    stage.branch("c", Fatal("y"))
    message = "quorum of 2 not reached: 1 of 3 branches succeeded; branch 'b': x; branch 'c': y"
    assert failed(await stage.run("a", "b", "c")).message == message
    assert ((await stage.world.last()).metadata or {})[ERROR_KIND] == "fatal"


@pytest.mark.parametrize("partial", list(Partial))
async def test_when_nothing_matches_partial_decides(partial: Partial) -> None:
    """N017."""
    stage = Stage(join=first_matching(lambda _: False), partial=partial)
    stage.branches("a", "b")
    result = await stage.run("b", "a")
    if partial is KEEP:
        assert trail(result) == ["in", "a", "b", "out"]
    else:
        assert failed(result).message == "no branch matched the join (2 succeeded)"
        assert ((await stage.world.last()).metadata or {})[ERROR_KIND] == "transient"


async def test_a_race_in_a_subgraph_reports_under_its_path() -> None:
    """N018, and the branches' keys there (engine.md 7.5)."""
    stage = Stage(join=first_success())
    stage.branches("a", "b")
    stage.gates["b"].set()
    parent: Graph[Doc] = Graph(Doc)
    parent.subgraph("Work", stage.graph.compile(), input=lambda doc: doc, output=lambda _, child: child)
    threads = stage.world.threads(parent.compile(checkpoints=BOUNDARIES), telemetry=stage.watch)
    assert trail(await threads.run("t", Doc(), RunOptions(run_id="r1"))) == ["in", "b", "out"]
    assert "join Work/g first_success met ['b']" in stage.watch.told()
    assert "end Work/g/a Cancelled LostRace" in stage.watch.told()
    assert [ctx.idempotency_key for ctx in stage.contexts] == ["t/Work/g/a#1.2@r1", "t/Work/g/b#1.2@r1"]


async def test_a_group_is_one_hop_and_its_branches_have_its_key() -> None:
    """I003."""
    stage = Stage(retry=Retry(max_retries=1))
    stage.branch("a", Transient("again"))
    await stage.run("a")
    assert [ctx.idempotency_key for ctx in stage.contexts] == ["t/g/a#2"] * 2


async def test_cancelling_the_run_tells_every_branch() -> None:
    """D012."""
    stage, token = Stage(), CancelToken()
    stage.branches("a", "b")
    task = asyncio.create_task(stage.run(options=RunOptions(cancellation=token)))
    await settle()
    token.fire()
    result = await task
    assert isinstance(result, Cancelled)
    assert all(ctx.cancellation.fired for ctx in stage.contexts)
    assert (await stage.world.log())[-1] == "cancelled:g>g"
    assert stage.watch.told()[-3:] == ["end g/a Cancelled", "end g/b Cancelled", "done g Cancelled"]


async def test_a_groups_timeout_is_of_the_whole_group() -> None:
    """D013."""
    stage = Stage(timeout=3)
    stage.branches("a", "b")
    stage.gates["a"].set()
    task = asyncio.create_task(stage.run())
    await settle()
    stage.world.clock.advance(3)
    assert failed(await task).message == "node 'g' timed out after 3000 ms"
    assert stage.stopped == ["b"]


async def test_a_dropped_run_leaves_no_task_behind() -> None:
    """Its task is cancelled at an await, twice; branches that hold on are waited for."""
    stage = Stage()
    stage.branches("a")
    release = asyncio.Event()

    @stage.group.branch
    async def stubborn(_doc: Doc) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
            raise

    task = asyncio.create_task(stage.run())
    await settle()
    task.cancel()
    await settle()
    task.cancel()
    await settle()
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]


async def test_a_run_whose_coroutine_is_closed_cancels_its_branches() -> None:
    """Nothing can be awaited there: the branches end by themselves."""
    stage = Stage()
    stage.branches("a", "b")
    run = stage.threads(checkpoints=BOUNDARIES).run("t", Doc())
    run.send(None)
    await settle()
    assert stage.started == ["a", "b"]
    run.close()
    await settle()
    assert stage.stopped == ["a", "b"]
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]


async def test_a_branch_that_swallows_its_cancellation_is_late() -> None:
    """The race is decided without it."""
    stage = Stage.told_outcomes(join=first_success())

    @stage.group.branch
    async def deaf(doc: Doc) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            doc.trail.append("deaf")

    stage.branches("a")
    assert trail(await stage.run("a")) == ["in", "a", "out"]
    assert stage.joined[0].outcomes[0].status is OutcomeStatus.CANCELLED


async def test_a_state_that_cannot_be_stored_fails_its_branch_for_good() -> None:
    """Kept results and live ones can't be told apart."""
    graph: Graph[dict[str, object]] = Graph(dict)
    group = graph.group("g", reduce=lambda _entry, states: states[0], retry=Retry(max_retries=3))
    runs = list[int]()

    @group.branch
    async def a(state: dict[str, object]) -> None:
        runs.append(1)
        state["x"] = object()

    result = failed(await Stage().world.threads(graph.compile()).run("t", {}))
    assert "branch 'a': " in result.message
    assert "failed to persist its state" in result.message
    assert len(runs) == 1


async def test_a_reducer_that_raises_fails_the_group() -> None:
    def reduce(_entry: Doc, _states: object) -> None:
        raise Fatal("can't merge")

    stage = Stage(reduce=reduce)
    stage.branches("a")
    assert failed(await stage.run("a")).message == "can't merge"


def asking(stage: Stage, name: str) -> None:
    @stage.group.branch(name=name)
    async def ask(doc: Doc, ctx: NodeContext) -> None:
        doc.trail.append(f"{name}:{await ctx.interrupt(name, id=name)}")


async def test_a_group_waits_for_its_questions_once_the_others_are_done() -> None:
    """All questions in the order declared; answered, the group goes on."""
    stage = Stage()
    asking(stage, "x")
    stage.branches("a")
    asking(stage, "y")
    task = asyncio.create_task(stage.run("a"))
    result = await task
    assert isinstance(result, Interrupted)
    assert [question.id for question in result.questions] == ["x", "y"]
    assert (await stage.world.log())[-1] == "interrupted:g>g"
    assert stage.watch.ends()["g/x"].result == "Interrupted"
    result = await stage.threads().resume("t", Answer(replies={"x": 1, "y": 2}))
    assert trail(result) == ["in", "x:1", "a", "y:2", "out"]


async def test_a_question_is_dropped_when_the_join_is_met_without_it() -> None:
    stage = Stage(join=first_success())
    asking(stage, "x")
    stage.branches("a")
    assert trail(await stage.run("a")) == ["in", "a", "out"]


@pytest.mark.parametrize("cancel_siblings", [True, False])
async def test_a_question_is_dropped_when_the_join_is_lost_without_it(cancel_siblings: bool) -> None:
    stage = Stage(cancel_siblings=cancel_siblings)
    asking(stage, "x")
    stage.branch("a", Fatal("no"))
    assert failed(await stage.run("a")).message == "branch 'a': no"


async def test_branches_stream_under_their_own_path() -> None:
    """Q003, N006, Q011: between the group's own pair, no lifecycle chunks, plain branches silent."""
    stage = Stage()
    for name in ("s1", "s2"):

        @stage.group.branch(name=name, streams=True)
        async def say(_doc: Doc, ctx: NodeContext) -> None:
            assert ctx.stream is not None
            for number in range(2):
                await ctx.stream.emit(f"{ctx.node}.{number}")

    @stage.group.branch
    async def plain(_doc: Doc) -> None:
        pass

    stage.graph.interrupt("g")
    chunks = ChunkStream()
    await stage.threads().run("t", Doc(trail=["x"]), RunOptions(stream=chunks))
    told = [(chunk.type.value, chunk.node_name, chunk.content) async for chunk in chunks]
    inside = told[told.index(("NodeStart", "g", "g")) + 1 : told.index(("NodeEnd", "g", "g"))]
    for name in ("s1", "s2"):
        mine = [chunk for chunk in inside if chunk[1] == f"g/{name}"]
        assert mine == [("Token", f"g/{name}", f"{name}.0"), ("Token", f"g/{name}", f"{name}.1")]
    assert len(inside) == 4


async def test_a_decided_result_that_is_ready_beats_the_token() -> None:
    """The race is won; the run is cancelled while its loser winds down, and stops before `out`."""
    stage, token, release = Stage(join=first_success()), CancelToken(), asyncio.Event()

    @stage.group.branch
    async def stubborn(_doc: Doc) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
            raise

    stage.branches("a")
    stage.gates["a"].set()
    task = asyncio.create_task(stage.run(options=RunOptions(cancellation=token)))
    await settle()
    token.fire()
    await settle()
    release.set()
    result = await task
    assert isinstance(result, Cancelled)
    assert result.state.trail == ["in", "a"]
    assert (await stage.world.log())[-1] == "cancelled:out>out"


async def test_branches_after_a_boundary_see_its_decision() -> None:
    """F006."""
    stage = Stage()
    stage.branches("a", "b")
    stage.graph.interrupt("in")
    assert isinstance(await stage.run("a", "b"), Interrupted)
    assert isinstance(await stage.threads().resume("t", Answer(by="ann")), Completed)
    assert [ctx.decision.reviewer for ctx in stage.contexts if ctx.decision is not None] == ["ann", "ann"]
