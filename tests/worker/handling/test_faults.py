"""Faults around the handler: stores that fail, leases that go, our own bugs, threads past help."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from outcrop.engine import Graph
from outcrop.engine.options import CheckpointPolicy
from outcrop.stores.errors import CorruptRow, Unavailable
from outcrop.topics.messages import OutcomeStatus
from outcrop.worker.control import Control, Handled, Unfinished
from outcrop.worker.slots import Slot, Slots
from support.handling import TTL, DyingStore, World, letters, outcomes, told


class FailingStore:
    """A store whose named methods raise so many times."""

    def __init__(self, inner: Any, failures: dict[str, int], error: Exception) -> None:
        self._inner = inner
        self._failures = failures
        self._error = error

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in self._failures:
            return method

        async def call(*args: Any, **options: Any) -> Any:
            if self._failures[name] > 0:
                self._failures[name] -= 1
                raise self._error
            return await method(*args, **options)

        return call


@pytest.mark.parametrize("method", ["load", "get_log", "get_lease", "acquire_lease", "save"])
async def test_a_store_that_is_down_for_a_while_is_waited_for(method: str) -> None:
    world = World()
    store: Any = FailingStore(world.store, {method: 8}, Unavailable("down"))
    outcome = await world.process(store=store).outcome(world.send(world.run()))
    assert outcome.status is OutcomeStatus.COMPLETED


async def test_a_store_that_stays_down_holds_the_message_until_the_partition_goes() -> None:
    world = World()
    store: Any = FailingStore(world.store, {"load": 10**9}, Unavailable("down"))
    control = Control()
    world.clock.call_later(600, control.stop.fire)
    assert await world.process(store=store).handle(world.send(world.resume()), control) == Unfinished()


async def test_a_bug_is_tried_again_and_then_the_message_is_dead() -> None:
    world = World()
    store: Any = FailingStore(world.store, {"load": 10**9}, CorruptRow("the secret state"))
    handled = await world.process(store=store, attempts=3).handle(world.send(world.resume()))
    (letter,), (refused,) = letters(handled), outcomes(handled)
    assert (letter["outcrop-error-kind"], letter["outcrop-attempts"]) == ("handler_error", "3")
    assert refused.reason == "handler_error"
    assert "secret" not in str(handled)


class Changed(BaseModel):
    """A state type that a later deploy brought."""

    needed: int


async def test_a_redelivered_run_is_told_from_the_log_though_its_state_fits_no_more() -> None:
    world = World()
    message = world.send(world.run())
    first = await world.process().outcome(message)
    graph = Graph(Changed, id="line", version="1")

    @graph.node
    async def a(_: Changed) -> None: ...

    deployed: Any = graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)
    assert told(await world.process("w1", deployed).outcome(message)) == told(first)


async def test_a_bug_that_passes_is_not_an_answer() -> None:
    world = World()
    message = world.send(world.run())
    first = await world.process().outcome(message)
    store: Any = FailingStore(world.store, {"load": 2}, ValueError("once in a while"))
    again = await world.process(store=store).outcome(message)
    assert told(again) == told(first)


async def test_a_topic_id_that_is_not_known_yet_is_waited_for() -> None:
    world = World()
    process = world.process()
    tries = iter([OSError("no broker"), OSError("no broker")])

    async def topic_id(topic: str) -> str:
        for error in tries:
            raise error
        return topic

    process.handler._topic_id = topic_id
    assert (await process.outcome(world.send(world.run()))).status is OutcomeStatus.COMPLETED


async def test_a_run_that_loses_its_lease_answers_nothing_and_looks_again() -> None:
    """The other worker's rows are this command's own: they tell its outcome."""
    world = World()
    message = world.send(world.run())
    entered, gate = world.hooks.gate("b")
    first = asyncio.ensure_future(world.process("w0").handler.handle(message, Control()))
    await entered.wait()
    lease = await world.store.get_lease("t")
    assert lease is not None
    await world.store.release_lease(lease)  # as if it had expired under a stalled process
    del world.hooks.gates["b"]
    second = await world.process("w1").outcome(message)
    gate.set()
    (late,) = outcomes(await world.passing(_result(first)))
    assert told(late) == told(second)
    assert [row.sequence for row in await world.rows()] == [0, 1, 2, 3, 4]


async def _result(task: asyncio.Future[Handled | Unfinished]) -> Handled | Unfinished:
    return await task


async def test_at_max_recoveries_a_redelivery_fails_and_end_still_works() -> None:
    """F13: a poison node doesn't kill workers for ever, and nobody waits for ever."""
    world = World()
    message = world.send(world.run())
    world.hooks.crashes["b"] = 100
    for name in ("w0", "w1", "w2", "w3"):
        await world.process(name).crash(message)
    process = world.process("w4")
    failed = await process.outcome(message)
    assert failed.error is not None
    assert (failed.status, failed.error.kind, failed.sequence) == (OutcomeStatus.FAILED, "max_recoveries", 4)
    refused = await process.outcome(world.send(world.resume()))
    assert refused.reason == "max_recoveries"
    assert await process.handle(world.send(world.recover(4))) == Handled([])
    assert (await process.outcome(world.send(world.end()))).status is OutcomeStatus.ENDED


async def test_a_cancel_of_a_dead_run_says_so_in_the_log() -> None:
    world = World()
    run = world.send(world.run())
    world.hooks.crashes["b"] = 1
    await world.process().crash(run)
    cancel = world.send(world.cancel())
    process = world.process("w1")
    first = await process.outcome(cancel)
    assert (first.status, first.node) == (OutcomeStatus.CANCELLED, "b")
    assert told(await process.outcome(cancel)) == told(first)
    assert (await process.outcome(run)).status is OutcomeStatus.CANCELLED, "it was cut short"


async def test_a_resume_recovers_a_dead_run_first_and_then_answers_for_itself() -> None:
    """F4: the recovery is the run's work, not the resume's."""
    world = World()
    run = world.send(world.run("approval"))
    world.hooks.crashes["a"] = 1
    await world.process().crash(run)
    process = world.process("w1")
    resume = world.send(world.resume())
    answered = await process.outcome(resume)
    assert answered.status is OutcomeStatus.COMPLETED
    assert await world.statuses() == [
        "running:->a", "running:->a", "running:a>gate",
        "interrupted:gate>b", "running:gate>b", "completed:b>-",
    ]  # fmt: skip
    waited = await process.outcome(run)
    assert (waited.status, waited.sequence, waited.recovered) == (OutcomeStatus.INTERRUPTED, 3, True)


async def test_every_crash_around_a_save_is_continued_without_running_a_committed_node_again() -> None:
    for where in ("before", "after"):
        for save in range(1, 5):
            world = World()
            message = world.send(world.run())
            dying: Any = DyingStore(world.store, **{where: save})
            await world.process("w0", store=dying).crash(message)
            rows = await world.rows()
            outcome = await world.process("w1").outcome(message)
            assert outcome.status is OutcomeStatus.COMPLETED
            assert outcome.state == {"amount": 5, "done": ["a", "b", "c"]}
            committed = max(len(rows) - 1, 0)
            ran = [node for _, node in world.ran]
            assert len(ran) - 3 <= 1, "only the node in flight may run twice"
            assert ran[-(3 - committed) :] == ["a", "b", "c"][committed:] or committed == 3


async def test_boundaries_complete_without_a_row_and_fail_from_the_result() -> None:
    """L2: nothing in the log tells that run, so a redelivery runs the graph again."""
    world = World()
    process = world.process("w0", world.graph("line", CheckpointPolicy.BOUNDARIES))
    message = world.send(world.run(metadata={"tenant": "acme"}))
    outcome = await process.outcome(message)
    assert (outcome.status, outcome.sequence, outcome.metadata) == (
        OutcomeStatus.COMPLETED, None, {"tenant": "acme"},
    )  # fmt: skip
    assert await world.rows() == []
    again = await process.outcome(message)
    assert told(again) == told(outcome)


async def test_a_boundaries_resume_whose_run_died_is_lost() -> None:
    """F15: it knows its stamp, so it isn't refused after it acted."""
    world = World()
    process = world.process("w0", world.graph("approval", CheckpointPolicy.BOUNDARIES))
    await process.outcome(world.send(world.run("approval")))
    resume = world.send(world.resume())
    world.hooks.crashes["b"] = 1
    await process.crash(resume)
    lost = await process.outcome(resume)
    assert lost.error is not None
    assert (lost.status, lost.error.kind, lost.sequence) == (OutcomeStatus.FAILED, "lost_run", 1)
    refused = await process.outcome(world.send(world.resume()))
    assert (refused.status, refused.reason) == (OutcomeStatus.REFUSED, "lost_run")


async def test_a_stamp_is_no_loss_while_its_run_may_live() -> None:
    world = World()
    process = world.process("w0", world.graph("approval", CheckpointPolicy.BOUNDARIES))
    await process.outcome(world.send(world.run("approval")))
    message = world.send(world.resume())
    entered, gate = world.hooks.gate("b")
    running = asyncio.ensure_future(process.handler.handle(message, Control()))
    await entered.wait()
    control = Control()
    other = asyncio.ensure_future(world.process("w1").handler.handle(message, control))
    await world.settle()
    world.clock.advance(1)
    await world.settle()
    assert not other.done()
    gate.set()
    assert outcomes(await running)[0].status is OutcomeStatus.COMPLETED
    control.stop.fire()
    await other


async def test_a_recovery_that_this_graph_can_not_do_is_told_as_what_it_is() -> None:
    """The thread's graph lost its EVERY_NODE: own work fails, another's command is refused."""
    world = World()
    run = world.send(world.run("approval"))
    world.hooks.crashes["a"] = 1
    await world.process().crash(run)
    process = world.process("w1", world.graph("approval", CheckpointPolicy.BOUNDARIES))
    failed = await process.outcome(run)
    assert failed.error is not None
    assert (failed.status, failed.error.kind) == (OutcomeStatus.FAILED, "not_durable")
    assert (await process.outcome(world.send(world.resume()))).reason == "not_durable"


async def test_a_deadline_cancels_the_run_and_names_no_cancel() -> None:
    world = World()
    entered, _ = world.hooks.gate("b")
    message = world.send(world.run(deadline=world.clock.now() + timedelta(seconds=5)))
    cancelled = await world.process().outcome(message)
    assert entered.is_set()
    assert (cancelled.status, cancelled.reason) == (OutcomeStatus.CANCELLED, "deadline")
    latest = await world.latest()
    assert "outcrop.cancel_id" not in (latest.metadata or {})


async def test_the_wait_for_a_lease_frees_the_slot_meanwhile() -> None:
    world, slots = World(), Slots(1)
    await world.store.acquire_lease("t", "somebody", TTL)
    slot = Slot(slots)
    await slot.take()
    control = Control(slot=slot)
    waiting = asyncio.ensure_future(world.process().handler.handle(world.send(world.run()), control))
    await world.settle()
    assert slots.taken == 0
    outcome = outcomes(await world.passing(_result(waiting)))[0]
    assert outcome.status is OutcomeStatus.COMPLETED


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_node_that_leaves_by_what_is_no_exception_does_not_take_the_worker_along(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], policy: CheckpointPolicy
) -> None:
    """`sys.exit` in a node, or a cancellation of something that it awaited: the thread fails, no more."""
    world = World()

    async def leave(node: str) -> None:
        if node == "b":
            raise kind

    monkeypatch.setattr(world.hooks, "visit", leave)
    process = world.process("w0", world.graph("line", policy), attempts=2)
    outcome = await process.outcome(world.send(world.run()))
    if policy is CheckpointPolicy.EVERY_NODE:
        assert (outcome.status, outcome.sequence) == (OutcomeStatus.FAILED, 2)
        assert [node for _, node in world.ran] == ["a", "b"]
    else:  # no row tells of it, so the message is tried as often as one that our own code fails on
        assert (outcome.status, outcome.reason) == (OutcomeStatus.REFUSED, "handler_error")
