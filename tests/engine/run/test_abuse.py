"""Values of wrong kinds, code that fails in odd places: a verb tells, and raises nothing but a panic."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from outcrop.engine import (
    Answer,
    CancelToken,
    Failed,
    Graph,
    Interrupted,
    NodeContext,
    RecoverOptions,
    Refused,
    RunOptions,
    Transient,
    WakeOptions,
)
from outcrop.engine.outcome import Cancelled, Completed, FailureKind, RefusalCode
from outcrop.stores.errors import Unavailable
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, Doc, World

if TYPE_CHECKING:
    from outcrop.engine import CheckpointPolicy

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - that it has no zone is the point


def refusal(result: object) -> str:
    assert isinstance(result, Refused)
    assert result.code is RefusalCode.INVALID
    return result.message


async def test_times_without_a_zone_are_refused() -> None:
    world = World()
    _, threads = world.line("a")
    assert refusal(await threads.wake("t", now=NAIVE)) == "a wake's time needs a time zone"
    told = "a driver's time needs a time zone"
    assert (await threads.wake_due(WakeOptions(now=NAIVE))).refusal == told
    recovered = await threads.recover_stale(RecoverOptions(now=NAIVE, stale_after=timedelta(1)))
    assert recovered.refusal == told
    assert not world.store.faults.calls


@pytest.mark.parametrize("age", [timedelta(-1), timedelta.max])
async def test_an_age_that_no_row_can_have_is_refused(age: timedelta) -> None:
    _, threads = World().line("a")
    report = await threads.recover_stale(RecoverOptions(stale_after=age))
    assert report.refusal == "stale_after must be between zero and 36500 days"


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({1: "x"}, "run metadata key 1 must be text"),
        ({1: "x", "a": "y"}, "run metadata key 1 must be text"),
        ({"\ud800": "x"}, "run metadata key '\\ud800' must be text"),
        ({"a": "\ud800"}, "run metadata value of 'a' must be text"),
        ({"a": 1}, "run metadata value of 'a' must be text"),
    ],
)
async def test_metadata_that_no_row_can_hold_is_refused(metadata: Any, told: str) -> None:
    world = World()
    _, threads = world.line("a", policy=BOUNDARIES)
    assert refusal(await threads.run("t", Doc(), RunOptions(metadata=metadata))) == told
    assert world.ran == []


async def test_a_thread_id_that_no_store_can_hold_is_refused() -> None:
    world = World()
    _, threads = world.line("a")
    assert refusal(await threads.run("t\ud800", Doc())) == "thread ID 't\\ud800' must be text"
    assert not world.store.faults.calls


async def test_override_keys_of_mixed_types_are_refused() -> None:
    world = World()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc())
    result = await threads.resume("t", Answer(overrides=cast("Any", {1: 2, "n": 3})))
    assert isinstance(result, Refused)
    assert result.code is RefusalCode.STATE
    assert await world.log() == ["running:->a", "interrupted:a>b"]


@pytest.mark.parametrize("hint", [1e306, 10**400, "3", timedelta(seconds=3), -1.0])
async def test_an_odd_retry_hint_fails_the_node_and_nothing_else(hint: Any) -> None:
    world = World()
    graph = Graph(Doc)
    world.failing(graph, "a", Transient("no", retry_after=hint))
    result = await world.threads(graph.compile(checkpoints=EVERY_NODE)).run("t", Doc())
    assert isinstance(result, Failed)
    assert (result.kind, result.message) == (FailureKind.NODE_FAILED, "no")
    hints = (await world.last()).metadata or {}
    assert hints.get("strata.retry_after_ms") == ("0" if hint == -1.0 else None)


@pytest.mark.parametrize("policy", [BOUNDARIES, EVERY_NODE])
async def test_marks_that_fail_fail_the_run(policy: CheckpointPolicy) -> None:
    def fail(*_: object, **__: object) -> dict[str, str]:
        raise ValueError("no marks")

    world = World()
    graph = world.graph("a")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=policy))
    result = await threads.run("t", Doc(), RunOptions(marks=fail, lease=LEASED.lease))
    assert isinstance(result, Failed)
    assert result.message == "the marks of a row failed: ValueError: no marks"
    assert await world.log() == []
    assert await world.memory.get_lease("t") is None


@pytest.mark.parametrize("cut", ["token", "timeout"])
async def test_a_nodes_failing_callback_keeps_no_run_from_being_stopped(cut: str) -> None:
    world = World()
    graph = Graph(Doc)
    reached = asyncio.Event()
    heard = list[str]()

    @graph.node(timeout=5.0)
    async def work(_doc: Doc, ctx: NodeContext) -> None:
        def fail() -> None:
            raise RuntimeError("callback")

        ctx.cancellation.on_fire(fail)
        ctx.cancellation.on_fire(lambda: heard.append("told"))
        reached.set()
        await asyncio.Event().wait()

    token = CancelToken()
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    async with asyncio.timeout(5):
        run = asyncio.create_task(threads.run("t", Doc(), RunOptions(cancellation=token)))
        await reached.wait()
        if cut == "token":
            token.fire()
        else:
            world.clock.advance(5)
        result = await run
    assert isinstance(result, Cancelled if cut == "token" else Failed)
    assert heard == ["told"]


async def test_looking_for_a_doubtful_save_is_repeated_like_the_save() -> None:
    """The answer to a save is lost, and then the log can't be read for a while."""
    world = World()
    _, threads = world.line("a", "b")
    world.store.fail("save", Unavailable("away"), call=2, after=True)
    world.store.fail("get_log", Unavailable("away"))
    run = asyncio.create_task(threads.run("t", Doc(), LEASED))
    async with asyncio.timeout(5):
        while not run.done():
            await asyncio.sleep(0)
            if (world.clock.next_due or 9) < 1:
                world.clock.advance(world.clock.next_due or 0)
        result = await run
    assert isinstance(result, Completed)
    assert await world.log() == ["running:->a", "running:a>b", "completed:b>-"]
    assert world.ran == ["a", "b"]


async def test_a_run_leaves_no_callback_on_its_callers_tokens() -> None:
    world = World()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    token = CancelToken()
    later = datetime(2999, 1, 1, tzinfo=UTC)
    result = await threads.run("t", Doc(), RunOptions(cancellation=token, deadline=later, lease=LEASED.lease))
    assert isinstance(result, Interrupted)
    assert not token._callbacks
    assert world.clock.next_due is None
