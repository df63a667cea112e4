"""Section C: failures, retries, backoff and fallbacks."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from outcrop.engine import (
    Answer,
    Backoff,
    Cancelled,
    CancelReason,
    CancelToken,
    CheckpointPolicy,
    Completed,
    Failed,
    FailureKind,
    Fatal,
    Graph,
    Interrupted,
    Jitter,
    RefusalCode,
    Refused,
    Retry,
    RunOptions,
    Transient,
)
from outcrop.engine.failures import error_text
from support.engine import BOUNDARIES, EVERY_NODE, Doc, World

FIVE = Backoff(initial=1.0, max=5.0, jitter=Jitter.NONE)


def failing_world(*errors: Exception, **options: object) -> tuple[World, Graph[Doc], list[int]]:
    """A graph of `before`, then `work` that raises the errors, then `after`."""
    world = World()
    graph = world.graph("before")
    attempts = world.failing(graph, "work", *errors, **options)
    world.trailing(graph, "after")
    graph.edge("before", "work")
    graph.edge("work", "after")
    return world, graph, attempts


async def test_transient_failures_are_retried_and_only_the_success_is_kept() -> None:
    """C001, C010: no backoff retries at once."""
    world, graph, attempts = failing_world(Transient("1"), Transient("2"), retry=Retry(max_retries=2))
    result = await world.threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert result.state.trail == ["before", "work", "after"]
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("error", [Transient("no"), ValueError("no")])
async def test_exhausted_retries_go_to_the_fallback_with_the_state_before(error: Exception) -> None:
    """C002, C016."""
    world, graph, attempts = failing_world(error, error, error, retry=Retry(max_retries=2), fallback="rescue")
    world.trailing(graph, "rescue")
    graph.edge("rescue", "after")
    result = await world.threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert result.state.trail == ["before", "rescue", "after"]
    assert attempts == [1, 2, 3]
    told = {ctx.node: ctx.last_failure for ctx in world.contexts}
    rescued = told["rescue"]
    assert rescued is not None
    assert (rescued.node, rescued.node_path, rescued.error) == ("work", "work", error_text(error))
    assert (rescued.attempts, rescued.timed_out, rescued.retry_after) == (3, False, None)
    assert told["work"] is None
    assert told["after"] is None


@pytest.mark.parametrize(
    ("error", "retry"),
    [
        (Fatal("broken"), Retry(max_retries=5)),
        (KeyError("broken"), Retry(max_retries=5, give_up_on=(LookupError,))),
    ],
)
async def test_fatal_errors_skip_retries(error: Exception, retry: Retry) -> None:
    """C003, C017."""
    world, graph, attempts = failing_world(error, retry=retry, fallback="rescue")
    world.trailing(graph, "rescue")
    result = await world.threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Completed)
    assert attempts == [1]
    failure = world.contexts[-1].last_failure
    assert failure is not None
    assert (failure.attempts, failure.retry_after) == (1, None)


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_failed_row_has_the_committed_state_and_says_why(policy: CheckpointPolicy) -> None:
    """C004, C005, C024, B005, I007."""
    world, graph, attempts = failing_world(Transient("later", retry_after=90.5))
    result = await world.threads(graph.compile(checkpoints=policy)).run("t", Doc())
    rows = await world.rows()
    assert result == Failed(
        thread_id="t", kind=FailureKind.NODE_FAILED, message="later", node="work", attempts=1,
        sequence=len(rows) - 1,
    )  # fmt: skip
    row = rows[-1]
    assert (await world.log())[-1] == "failed:work>work"
    assert row.frozen_state == '{"trail":["before"],"n":0,"note":null}'
    assert (row.resumed_at, row.schema_version) == (None, "1.0.0")
    hops = {"strata.hops": "1"} if policy is EVERY_NODE else {}
    assert row.metadata == {
        **hops,
        "error": "later",
        "error_kind": "transient",
        "attempts": "1",
        "strata.retry_after_ms": "90500",
    }
    assert attempts == [1]


async def test_a_fatal_row_says_so_and_has_no_hint() -> None:
    """C004, C024."""
    world, graph, _ = failing_world(Fatal("broken"), retry=Retry(max_retries=2))
    await world.threads(graph.compile()).run("t", Doc())
    assert (await world.last()).metadata == {"error": "broken", "error_kind": "fatal", "attempts": "1"}


async def test_a_failed_thread_resumes_at_the_failed_node() -> None:
    """C006, C007, C008."""
    world, graph, _ = failing_world(Fatal("1"), Fatal("2"))
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    misfit = await threads.resume("t", Answer(overrides={"n": "many"}))
    assert isinstance(misfit, Refused)
    assert misfit.code is RefusalCode.STATE
    assert misfit.message.startswith("failed to rehydrate state for thread 't': ")
    again = await threads.resume("t", Answer(overrides={"n": 7}))
    assert isinstance(again, Failed)
    assert await world.log() == ["failed:work>work", "failed:work>work", "failed:work>work"]
    assert [row.resumed_at is None for row in await world.rows()] == [True, False, True]
    result = await threads.resume("t")
    assert isinstance(result, Completed)
    assert (result.state.n, world.ran) == (7, ["before", "work", "work", "work", "after"])
    refused = await threads.resume("t")
    assert refused == Refused(
        thread_id="t",
        code=RefusalCode.ALREADY_RESUMED,
        message="checkpoint for thread 't' was already resumed",
    )


async def test_a_completed_thread_is_not_resumable() -> None:
    """C009."""
    world = World()
    _, threads = world.line("a")
    await threads.run("t", Doc())
    refused = await threads.resume("t")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.COMPLETED
    assert refused.message == (
        "checkpoint for thread 't' is not resumable (status: Completed): "
        "only an interrupted, failed or cancelled checkpoint can be"
    )


async def delays(world: World, run: asyncio.Task[object]) -> list[float]:
    """Let the run go on, noting how long each of its waits is."""
    waits = list[float]()
    while not run.done():
        await asyncio.sleep(0)
        if (due := world.clock.next_due) is not None:
            waits.append(due)
            world.clock.advance(due)
    return waits


async def test_backoff_doubles_up_to_its_max() -> None:
    """C011."""
    errors = [Transient("no")] * 5
    world, graph, attempts = failing_world(*errors, retry=Retry(max_retries=5, backoff=FIVE))
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc()))
    assert await delays(world, run) == [1, 2, 4, 5, 5]
    assert isinstance(run.result(), Completed)
    assert attempts == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("jitter", "lowest", "highest"), [(Jitter.FULL, 0, 4), (Jitter.EQUAL, 2, 4), (Jitter.NONE, 4, 4)]
)
def test_jitter_stays_within_its_bounds(jitter: Jitter, lowest: float, highest: float) -> None:
    """C012."""
    retry = Retry(max_retries=9, backoff=Backoff(initial=1, max=60, jitter=jitter))
    assert retry.delay(3, None, lambda: 0.0) == lowest
    assert retry.delay(3, None, lambda: 1.0) == highest


async def test_a_hint_replaces_one_delay_capped_and_unjittered() -> None:
    """C013."""
    errors = [Transient("1", retry_after=3), Transient("2", retry_after=60), Transient("3")]
    backoff = Backoff(initial=1.0, max=5.0, jitter=Jitter.FULL)
    world, graph, _ = failing_world(*errors, retry=Retry(max_retries=3, backoff=backoff))
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc()))
    assert await delays(world, run) == [3, 5, 4]


async def test_cancelling_ends_the_wait_between_attempts() -> None:
    """C014, D007."""
    token = CancelToken()
    world, graph, attempts = failing_world(Transient("no"), retry=Retry(max_retries=5, backoff=FIVE))
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc(), RunOptions(cancellation=token)))
    while world.clock.next_due is None:  # noqa: ASYNC110 - no event says that a run waits for time
        await asyncio.sleep(0)
    token.fire()
    result = await run
    assert isinstance(result, Cancelled)
    assert (result.node, result.state.trail, attempts) == ("work", ["before"], [1])
    assert await world.log() == ["cancelled:work>work"]
    assert world.clock.next_due is None


async def test_a_deadline_inside_the_wait_cancels_when_it_passes() -> None:
    """C015."""
    world, graph, attempts = failing_world(
        *[Transient("no")] * 9, retry=Retry(max_retries=9, backoff=Backoff(10, 10, Jitter.NONE))
    )
    options = RunOptions(deadline=world.clock.now() + timedelta(seconds=12))
    run = asyncio.create_task(world.threads(graph.compile()).run("t", Doc(), options))
    assert await delays(world, run) == [10, 2]
    result = run.result()
    assert isinstance(result, Cancelled)
    assert (result.reason, attempts) == (CancelReason.DEADLINE, [1, 2])


async def test_every_attempt_of_a_fallback_is_told_of_the_failure() -> None:
    """C019."""
    world, graph, _ = failing_world(Fatal("1"), fallback="rescue")
    world.failing(graph, "rescue", Transient("2"), retry=Retry(max_retries=1))
    await world.threads(graph.compile()).run("t", Doc())
    told = [ctx.last_failure is not None for ctx in world.contexts if ctx.node == "rescue"]
    assert told == [True, True]


async def test_a_resumed_fallback_is_told_nothing() -> None:
    """3.2: a fallback that failed and is resumed is a node like any other; fallbacks may chain."""
    world, graph, _ = failing_world(Fatal("1"), fallback="rescue")
    world.failing(graph, "rescue", Fatal("2"))
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    assert await world.log() == ["running:->before", "running:before>work", "failed:rescue>rescue"]
    assert (await world.last()).metadata is not None
    assert ((await world.last()).metadata or {})["strata.hops"] == "2"
    await threads.resume("t")
    assert world.contexts[-1].last_failure is None
    assert [ctx.idempotency_key for ctx in world.contexts] == [
        "t/before#1", "t/work#2", "t/rescue#3", "t/rescue#3",
    ]  # fmt: skip


async def test_a_failed_boundary_node_runs_no_boundary_and_fallback_skips_it() -> None:
    """3.2, F018: the fallback of a boundary node goes on without asking anybody."""
    world, graph, _ = failing_world(Fatal("1"), fallback="rescue")
    world.trailing(graph, "rescue")
    graph.interrupt("work")
    assert isinstance(await world.threads(graph.compile()).run("t", Doc()), Completed)


async def test_any_exception_of_a_node_writes_a_failed_row_under_both_policies() -> None:
    """The issue's rule."""
    for policy in (BOUNDARIES, EVERY_NODE):
        world, graph, _ = failing_world(KeyError("x"))
        result = await world.threads(graph.compile(checkpoints=policy)).run("t", Doc())
        assert isinstance(result, Failed)
        assert result.message == "KeyError: 'x'"
        assert ((await world.last()).metadata or {})["error_kind"] == "transient"


async def test_stop_iteration_on_a_thread_is_a_failure_like_any_other() -> None:
    """A future refuses StopIteration: the run must not hang on it."""
    graph = Graph(Doc)

    @graph.node
    def stop(_doc: Doc) -> None:
        raise StopIteration

    result = await World().threads(graph.compile()).run("t", Doc())
    assert isinstance(result, Failed)
    assert result.message == "StopIteration"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Fatal("as said"), "as said"),
        (Fatal(""), "Fatal"),
        (ValueError(), "ValueError"),
        (ValueError("x"), "ValueError: x"),
        (Unprintable(), "Unprintable"),
        (Fatal("\ud800"), "\\ud800"),
    ],
)
def test_every_error_has_a_text_that_json_can_hold(error: Exception, text: str) -> None:
    assert error_text(error) == text


async def test_a_failed_boundary_is_run_again_and_then_asks() -> None:
    """F018: approval is ignored when resuming a failed row, and no decision is recorded."""
    world, graph, _ = failing_world(Fatal("1"))
    world.trailing(graph, "rejected")
    graph.interrupt("work", on_reject="rejected")
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    result = await threads.resume("t", Answer(approved=False, by="alice"))
    assert isinstance(result, Interrupted)
    assert (await world.last()).decision is None
