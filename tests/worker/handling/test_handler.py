"""The handler over a real store, real graphs and real threads: what each command comes to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from outcrop.engine.cancellation import CancelReason
from outcrop.stores.record import GraphIdentity
from outcrop.topics.messages import OutcomeStatus
from outcrop.worker.control import Control, Handled, Unfinished
from support.handling import TTL, World, letters, outcomes, told
from support.telescope import Telescope


async def test_a_run_completes_and_a_redelivery_tells_the_same() -> None:
    world = World()
    message = world.send(world.run(metadata={"tenant": "acme"}))
    first = await world.process().outcome(message)
    assert first.status is OutcomeStatus.COMPLETED
    assert first.state == {"amount": 5, "done": ["a", "b", "c"]}
    assert (first.sequence, first.node, first.metadata) == (3, "c", {"tenant": "acme"})
    again = await world.process("w1").outcome(message)
    assert told(again) == told(first)
    assert [node for _, node in world.ran] == ["a", "b", "c"]


async def test_rows_carry_the_command_its_message_and_the_token() -> None:
    world = World()
    command = world.run()
    message = world.send(command)
    await world.process().outcome(message)
    for row in await world.rows():
        assert row.checkpoint.metadata is not None
        marks = {key: text for key, text in row.checkpoint.metadata.items() if key.startswith("outcrop.")}
        assert marks == {
            "outcrop.command_id": str(command.command_id),
            "outcrop.message": f"id-of-threads.commands/0/{message.offset}",
            "outcrop.token": "1",
        }


async def test_an_approval_is_asked_for_and_answered() -> None:
    world = World()
    process = world.process()
    asked = await process.outcome(world.send(world.run("approval")))
    assert (asked.status, asked.node) == (OutcomeStatus.INTERRUPTED, "gate")
    assert asked.wait is not None
    assert asked.wait.kind == "human"
    done = await process.outcome(world.send(world.resume(expected_sequence=asked.sequence, boundary="gate")))
    assert done.status is OutcomeStatus.COMPLETED
    assert (await world.rows())[3].checkpoint.decision is not None


async def test_a_stale_resume_is_refused_and_leaves_the_thread_waiting() -> None:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("approval")))
    for more in ({"expected_sequence": 0}, {"boundary": "other"}):
        refused = await process.outcome(world.send(world.resume(**more)))
        assert (refused.status, refused.reason) == (OutcomeStatus.REFUSED, "stale")
    assert await world.statuses() == ["running:->a", "running:a>gate", "interrupted:gate>b"]


async def test_a_signal_lays_its_payload_over_the_state() -> None:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("events")))
    refused = await process.outcome(world.send(world.signal("second.came")))
    assert refused.reason == "not_waiting"
    moved = await process.outcome(world.send(world.signal("first.came", payload={"paid": True})))
    assert (moved.status, moved.node) == (OutcomeStatus.INTERRUPTED, "second")
    assert moved.state == {"amount": 5, "done": ["a", "b"], "paid": True}


async def test_a_timer_fires_by_a_wake_when_it_is_due() -> None:
    world = World()
    process = world.process()
    waits = await process.outcome(world.send(world.run("timer")))
    assert waits.sequence is not None
    assert [row.sequence for row in process.waiting] == [waits.sequence]
    early = await process.handle(world.send(world.wake(waits.sequence)))
    assert early == Handled([])
    world.clock.advance(301)
    fired = await process.outcome(world.send(world.wake(waits.sequence)))
    assert (fired.command_type.value, fired.status) == ("wake", OutcomeStatus.COMPLETED)


async def test_a_timeout_without_a_route_ends_the_thread() -> None:
    world = World()
    process = world.process()
    waits = await process.outcome(world.send(world.run("timeout")))
    assert waits.sequence is not None
    world.clock.advance(601)
    ended = await process.outcome(world.send(world.wake(waits.sequence)))
    assert (ended.status, ended.reason) == (OutcomeStatus.ENDED, "timed_out")


async def test_ending_twice_tells_the_same_row_twice() -> None:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("approval")))
    first = await process.outcome(world.send(world.end(by="ann")))
    second = await process.outcome(world.send(world.end()))
    assert (first.status, second.status) == (OutcomeStatus.ENDED, OutcomeStatus.ENDED)
    assert first.sequence == second.sequence == 3
    assert len(await world.rows()) == 4


async def test_a_crash_in_a_node_is_continued_by_the_redelivery() -> None:
    world = World()
    message = world.send(world.run())
    world.hooks.crashes["b"] = 1
    await world.process().crash(message)
    outcome = await world.process("w1").outcome(message)
    assert outcome.status is OutcomeStatus.COMPLETED
    assert [node for _, node in world.ran] == ["a", "b", "b", "c"]


async def test_a_failing_node_fails_the_thread_and_a_resume_retries_it() -> None:
    world = World()
    process = world.process()
    world.hooks.failures["b"] = 1
    message = world.send(world.run())
    failed = await process.outcome(message)
    assert failed.error is not None
    assert (failed.status, failed.node, failed.error.kind) == (OutcomeStatus.FAILED, "b", "transient")
    assert "broken on purpose" in failed.error.message
    assert told(await process.outcome(message)) == told(failed)
    assert (await process.outcome(world.send(world.resume()))).status is OutcomeStatus.COMPLETED


async def test_a_cancel_behind_a_run_stops_it_and_is_answered_by_its_row() -> None:
    world = World()
    process = world.process()
    cancel, run = world.cancel(), world.send(world.run())
    entered, _ = world.hooks.gate("b")
    control = Control()
    running = asyncio.ensure_future(process.handler.handle(run, control))
    await entered.wait()
    control.cancel.fire(CancelReason.REQUESTED, str(cancel.command_id))
    (stopped,) = outcomes(await running)
    assert (stopped.status, stopped.reason, stopped.node) == (OutcomeStatus.CANCELLED, "requested", "b")
    row = await world.latest()
    assert row.metadata is not None
    assert row.metadata["outcrop.cancel_id"] == str(cancel.command_id)
    answer = await process.outcome(world.send(cancel))
    assert (answer.status, answer.sequence) == (OutcomeStatus.CANCELLED, stopped.sequence)


async def test_a_run_that_was_cancelled_while_queued_stops_before_its_first_node() -> None:
    world = World()
    control = Control()
    control.cancel.fire(CancelReason.REQUESTED, "some command")
    stopped = await world.process().outcome(world.send(world.run()), control)
    assert stopped.status is OutcomeStatus.CANCELLED
    assert world.ran == []


async def test_a_stop_leaves_the_thread_running_and_free_for_the_new_owner() -> None:
    world = World()
    message = world.send(world.run())
    entered, gate = world.hooks.gate("b")
    control = Control()
    running = asyncio.ensure_future(world.process().handler.handle(message, control))
    await entered.wait()
    control.stop.fire()
    gate.set()
    assert await running == Unfinished()
    assert await world.store.get_lease("t") is None
    assert (await world.process("w1").outcome(message)).status is OutcomeStatus.COMPLETED
    assert [node for _, node in world.ran] == ["a", "b", "c"]


async def test_an_abandoned_run_writes_nothing_more() -> None:
    world = World()
    message = world.send(world.run())
    entered, _ = world.hooks.gate("b")
    control = Control()
    running = asyncio.ensure_future(world.process().handler.handle(message, control))
    await entered.wait()
    control.abandon.fire()
    assert await running == Unfinished()
    assert await world.statuses() == ["running:->a", "running:a>b"]


async def test_a_held_thread_is_waited_for_and_never_an_answer() -> None:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("approval")))
    await world.store.acquire_lease("t", "somebody", TTL)
    done = await process.outcome(world.send(world.resume()))
    assert done.status is OutcomeStatus.COMPLETED
    assert world.clock.monotonic() >= 30


async def test_a_wait_for_a_lease_ends_when_the_partition_goes() -> None:
    world = World()
    await world.store.acquire_lease("t", "somebody", TTL)
    control = Control()
    waiting = asyncio.ensure_future(world.process().handler.handle(world.send(world.run()), control))
    await world.settle()
    control.stop.fire()
    assert await waiting == Unfinished()


async def test_a_run_of_an_existing_thread_is_refused_even_while_it_is_held() -> None:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("approval")))
    await world.store.acquire_lease("t", "somebody", TTL)
    refused = await process.outcome(world.send(world.run("approval")))
    assert refused.reason == "thread_exists"
    assert world.clock.monotonic() == 0


async def test_an_unknown_graph_goes_to_the_dead_letters_and_is_refused() -> None:
    world = World()
    handled = await world.process().handle(world.send(world.run("nobody's")))
    (refused,) = outcomes(handled)
    (letter,) = letters(handled)
    assert (refused.reason, letter["outcrop-error-kind"]) == ("unknown_graph", "unknown_graph")
    assert letter["outcrop-source-topic"] == "threads.commands"
    assert await world.rows() == []


async def test_a_thread_of_a_graph_that_is_not_served_here_is_left_alone() -> None:
    world = World()
    await world.process().outcome(world.send(world.run("approval")))
    other = world.process("w1", world.graph("line"))
    handled = await other.handle(world.send(world.resume()))
    assert [outcome.reason for outcome in outcomes(handled)] == ["unknown_graph"]
    assert len(letters(handled)) == 1
    assert await other.handle(world.send(world.wake(2))) == Handled([])


async def test_a_state_over_the_limit_is_refused_with_the_limit() -> None:
    world = World()
    refused = await world.process(state_limit=10).outcome(world.send(world.run()))
    assert refused.error is not None
    assert refused.reason == "state_too_large"
    assert "10 bytes" in refused.error.message


async def test_a_state_over_the_cap_is_left_out_of_the_outcome() -> None:
    world = World()
    outcome = await world.process(state_cap=10).outcome(world.send(world.run()))
    assert outcome.status is OutcomeStatus.COMPLETED
    assert (outcome.state, outcome.state_omitted) == (None, True)


async def test_an_answer_fits_its_topic_whatever_the_command_holds() -> None:
    """An answer that no broker takes would reach nobody."""
    world, huge = World(), "x" * 900_000
    process = world.process()
    await process.outcome(world.send(world.run("approval")))
    commands = (
        world.run(thread="u", graph=huge),
        world.run(thread="m", metadata={"tenant": huge}),
        world.resume(boundary=huge),
        world.signal(huge),
        world.end(by=huge),
    )
    for command in commands:
        message = replace(world.send(command), headers=(("traceparent", huge.encode()),))
        handled = await process.handle(message)
        assert isinstance(handled, Handled)
        (record,) = (record for record in handled.records if record.topic == "threads.outcomes")
        assert len(record.value or b"") + sum(len(value) for _, value in record.headers) < 600_000


async def test_a_copy_goes_to_reply_to_but_never_to_the_workers_own_topics() -> None:
    world = World()
    process = world.process()
    copied = await process.handle(world.send(world.run(reply_to="answers")))
    assert isinstance(copied, Handled)
    assert [record.topic for record in copied.records] == ["threads.outcomes", "answers"]
    looped = await process.handle(world.send(world.run(thread="u", reply_to="threads.commands")))
    assert isinstance(looped, Handled)
    assert [record.topic for record in looped.records] == ["threads.outcomes"]


async def test_the_trace_of_the_command_goes_on_in_the_outcome() -> None:
    world = World()
    message = world.send(world.run())
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    handled = await world.process().handle(replace(message, headers=(("traceparent", trace),)))
    assert isinstance(handled, Handled)
    assert ("traceparent", trace) in handled.records[0].headers


async def test_a_run_is_a_span_in_the_trace_of_its_command() -> None:
    world, telescope = World(), Telescope()
    message = world.send(world.run())
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    process = world.process(telemetry=telescope.telemetry)
    await process.handle(replace(message, headers=(("traceparent", trace),)))
    (run,) = [span for span in telescope.spans if span.parent is not None and span.parent.is_remote]
    assert run.parent is not None
    assert f"{run.parent.trace_id:032x}-{run.parent.span_id:016x}" == trace.decode()[3:52]
    assert len({span.context.trace_id for span in telescope.spans}) == 1
    assert len(telescope.spans) == 7  # the run, three nodes and their attempts


async def test_a_state_that_does_not_fit_its_graph_is_refused_and_dead() -> None:
    world = World()
    handled = await world.process().handle(world.send(world.run(state="no object")))
    (refused,), (letter,) = outcomes(handled), letters(handled)
    assert (refused.reason, letter["outcrop-error-kind"]) == ("state", "state")
    assert await world.rows() == []


async def test_a_message_that_is_no_command_is_answered_where_its_ids_can_be_read() -> None:
    world = World()
    message = world.send(world.end())
    value = (message.value or b"").replace(b'"version":1', b'"version":9')
    for headers in (message.headers, ()):
        handled = await world.process().handle(replace(message, value=value, headers=headers))
        (refused,) = outcomes(handled)
        assert (refused.reason, refused.command_type.value) == ("unsupported_version", "end")
        assert len(letters(handled)) == 1


async def test_own_rows_are_found_behind_a_long_history() -> None:
    """The log is read back page by page, and no further than the command's own time asks for."""
    world = World()
    process = world.process()
    message = world.send(world.run("approval"))
    first = await process.outcome(message)
    for _ in range(450):
        latest = await world.store.load("t")
        assert latest is not None
        await world.store.save(replace(latest.checkpoint, metadata={}), expected=latest.sequence)
    assert told(await process.outcome(message)) == told(first)


async def test_threads_of_an_older_version_are_taken_on_by_a_graph_that_migrates_them() -> None:
    """By a resume, and by the recovery driver's command; without a migration they are left alone."""
    world = World()
    await world.process().outcome(world.send(world.run("approval")))
    world.hooks.crashes["a"] = 1
    await world.process().crash(world.send(world.run("approval", "dead")))
    newer = replace(world.graph("approval"), identity=GraphIdentity("approval", "2"))
    left = await world.process("w1", newer).outcome(world.send(world.resume()))
    assert left.reason == "unknown_graph"
    migrating = replace(newer, migration=lambda row: replace(row, frozen_state='{"done":["migrated"]}'))
    process = world.process("w2", migrating)
    done = await process.outcome(world.send(world.resume()))
    assert (done.status, done.state) == (OutcomeStatus.COMPLETED, {"done": ["migrated", "b"]})
    assert (await world.latest()).graph == GraphIdentity("approval", "2")
    await process.handle(world.send(world.recover(0, "dead")))
    assert (await world.latest("dead")).innermost.suspended_node == "gate"
