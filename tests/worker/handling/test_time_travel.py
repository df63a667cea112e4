"""Threads that go back: the commands `update` and `rerun`, redelivered, out of date and over crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine.history import history
from outcrop.engine.options import CheckpointPolicy
from outcrop.topics.messages import OutcomeStatus
from support.handling import DyingStore, World, outcomes, told

if TYPE_CHECKING:
    from outcrop.topics.messages import AnyCommand


async def finished(world: World) -> None:
    """A thread of a, b, c: its rows are `-`>a, a>b, b>c and the completed one."""
    await world.process().outcome(world.send(world.run()))
    world.ran.clear()


async def test_an_update_changes_the_state_and_runs_nothing() -> None:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("approval")))
    world.ran.clear()
    command = world.update({"amount": 9, "by": "ann"}, expected_sequence=2, metadata={"why": "typo"})
    message = world.send(command)
    first = await process.outcome(message)
    assert (first.status, first.node, first.sequence) == (OutcomeStatus.INTERRUPTED, "gate", 3)
    assert first.state == {"amount": 9, "by": "ann", "done": ["a"]}
    assert first.metadata == {"why": "typo"}
    assert world.ran == []
    assert told(await world.process("w1").outcome(message)) == told(first)
    done = await process.outcome(world.send(world.resume()))
    assert done.state == {"amount": 9, "by": "ann", "done": ["a", "b"]}


async def test_an_update_as_a_node_goes_on_behind_it() -> None:
    world = World()
    await finished(world)
    process = world.process()
    await process.outcome(world.send(world.update({"done": ["by hand"]}, as_node="b", at_sequence=1)))
    assert world.ran == []
    done = await process.outcome(world.send(world.resume(decision=None)))
    assert done.state == {"amount": 5, "done": ["by hand", "c"]}
    assert [entry.parent for entry in await history(world.store, "t")][3:5] == [2, 1]


async def test_a_rerun_goes_again_from_an_earlier_row() -> None:
    world = World()
    await finished(world)
    message = world.send(world.rerun(2, expected_sequence=3))
    first = await world.process().outcome(message)
    assert (first.status, first.state) == (OutcomeStatus.COMPLETED, {"amount": 5, "done": ["a", "b", "c"]})
    assert [node for _, node in world.ran] == ["c"]
    assert told(await world.process("w1").outcome(message)) == told(first)
    assert [node for _, node in world.ran] == ["c"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"expected_sequence": 2}, "stale"), ({"at_sequence": 99}, None), ({"as_node": "z"}, None)],
)
async def test_going_back_to_what_is_not_there_is_refused(more: dict[str, Any], reason: str | None) -> None:
    world = World()
    await finished(world)
    before = await world.rows()
    commands: list[AnyCommand] = [world.update({}, **more)]
    if "as_node" not in more:
        commands.append(world.rerun(**({"at_sequence": 1} | more)))
    for command in commands:
        refused = await world.process().outcome(world.send(command))
        assert refused.status is OutcomeStatus.REFUSED
        assert reason in (None, refused.reason)
        assert refused.error is not None
        assert "'t'" in refused.error.message
    assert (await world.rows(), world.ran) == (before, [])


async def test_an_update_of_a_dead_thread_waits_for_its_recovery() -> None:
    world = World()
    world.hooks.crashes["a"] = 1
    await world.process().crash(world.send(world.run("approval")))
    world.ran.clear()
    told_ = await world.process("w1").outcome(world.send(world.update({"amount": 7})))
    assert (told_.status, told_.node) == (OutcomeStatus.INTERRUPTED, "gate")
    assert isinstance(told_.state, dict)
    assert told_.state["amount"] == 7


@pytest.mark.parametrize("save", range(1, 6))
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", ["update", "rerun"])
async def test_a_crash_at_any_save_is_made_good_by_the_redelivery(name: str, side: str, save: int) -> None:
    """One branch comes of a command, however often it is delivered; its nodes commit once."""
    world = World()
    await finished(world)
    message = world.send(world.update({"amount": 6}, at_sequence=1) if name == "update" else world.rerun(1))
    saves, committed = (1, []) if name == "update" else (3, ["running:b>c", "completed:c>-"])
    process = world.process("w0", store=DyingStore(world.store, **{side: save}))
    if save > saves:
        await process.outcome(message)
    else:
        await process.crash(message)
    outcome = await world.process("w1").outcome(message)
    first, *rest = (await world.statuses())[4:]
    assert first == ("running:a>b" if name == "rerun" else "interrupted:a>b")
    assert [row for row in dict.fromkeys(rest) if row != first] == committed
    assert outcome.sequence == 4 + len(rest)
    assert [entry.parent for entry in await history(world.store, "t")].count(1) == 2
    assert told(await world.process("w2").outcome(message)) == told(outcome)


async def test_what_went_back_behind_a_resume_without_rows_is_never_told_as_its_outcome() -> None:
    """Under Boundaries a resume may leave its stamp alone; the update behind it has a row of its own."""
    world = World()
    graph = world.graph("approval", CheckpointPolicy.BOUNDARIES)
    await world.process("w0", graph).outcome(world.send(world.run("approval")))
    resume = world.send(world.resume())
    done = await world.process("w0", graph).outcome(resume)
    assert (done.status, done.sequence) == (OutcomeStatus.COMPLETED, None)
    update = world.send(world.update({"amount": 9}, at_sequence=0))
    updated = await world.process("w0", graph).outcome(update)
    world.ran.clear()
    again = await world.process("w1", graph).outcome(resume)
    assert (again.status, again.sequence) == (OutcomeStatus.FAILED, 1)
    assert again.error is not None
    assert again.error.kind == "lost_run"
    assert told(await world.process("w1", graph).outcome(update)) == told(updated)
    assert world.ran == []


async def test_a_rerun_that_was_refused_does_not_act_behind_a_resume_that_left_only_a_stamp() -> None:
    """F3, under Boundaries."""
    world = World()
    graph = world.graph("approval", CheckpointPolicy.BOUNDARIES)
    process = world.process("w0", graph)
    await process.outcome(world.send(world.run("approval")))
    rerun = world.send(world.rerun(0))
    refused = await process.outcome(rerun)
    assert (refused.status, refused.reason) == (OutcomeStatus.REFUSED, "unanswered")
    await process.outcome(world.send(world.resume()))
    world.ran.clear()
    again = await world.process("w1", graph).outcome(rerun)
    assert (again.status, world.ran) == (OutcomeStatus.REFUSED, [])


@pytest.mark.parametrize("name", ["resume", "rerun"])
async def test_a_second_send_of_what_left_only_a_stamp_is_dropped(name: str) -> None:
    """F12, under Boundaries: the first message was answered, and nobody waits for another answer."""
    world = World()
    process = world.process("w0", world.graph("approval", CheckpointPolicy.BOUNDARIES))
    await process.outcome(world.send(world.run("approval")))
    await process.outcome(world.send(world.resume()))
    command: AnyCommand = world.rerun(0)
    if name == "resume":
        await process.outcome(world.send(world.update({}, at_sequence=0)))
        command = world.resume()
    done = await process.outcome(world.send(command))
    assert (done.status, done.sequence) == (OutcomeStatus.COMPLETED, None)
    world.ran.clear()
    before = await world.rows()
    assert outcomes(await process.handle(world.send(command))) == []
    assert (await world.rows(), world.ran) == (before, [])
