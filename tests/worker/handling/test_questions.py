"""What nodes ask goes out in outcomes; the answers come in with a resume."""

from __future__ import annotations

import pytest

from outcrop.topics.codec import encode_outcome
from outcrop.topics.messages import OutcomeStatus, QuestionBody
from support.handling import DyingStore, World, told


async def test_a_question_is_told_and_its_answer_taken() -> None:
    world = World()
    process = world.process()
    asked = await process.outcome(world.send(world.run("questions")))
    assert (asked.status, asked.node) == (OutcomeStatus.INTERRUPTED, "ask")
    assert asked.questions == [QuestionBody(id="colour", path="ask", payload={"of": 5})]
    asked = await process.outcome(world.send(world.resume(decision=None, answers={"colour": None})))
    assert asked.questions == [QuestionBody(id="price", path="ask", payload="price?")]
    done = await process.outcome(world.send(world.resume(decision=None, value=[12, "EUR"])))
    assert (done.status, done.questions) == (OutcomeStatus.COMPLETED, None)
    assert done.state == {"amount": 5, "done": ["a", "b"], "colour": None, "price": [12, "EUR"]}
    assert [node for _, node in world.ran] == ["a", "ask", "ask", "ask", "b"]


async def test_a_redelivery_tells_the_questions_of_its_own_row() -> None:
    world = World()
    process = world.process()
    messages = [world.send(world.run("questions"))]
    first = [await process.outcome(messages[0])]
    for resume in (world.resume(answers={"colour": "red"}), world.resume(answers={"price": 1})):
        messages.append(world.send(resume))
        first.append(await process.outcome(messages[-1]))
    again = [await world.process("w1").outcome(message) for message in messages]
    assert [told(outcome) for outcome in again] == [told(outcome) for outcome in first]
    assert [len(outcome.questions or ()) for outcome in again] == [1, 1, 0]


@pytest.mark.parametrize(
    ("answers", "why"),
    [({"size": 3}, "size"), ({"colour": "red", "price": 1}, "price"), ({}, "colour")],
)
async def test_replies_that_answer_nothing_or_too_little_are_refused(
    answers: dict[str, object], why: str
) -> None:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("questions")))
    before = await world.rows()
    refused = await process.outcome(world.send(world.resume(answers=answers)))
    assert refused.status is OutcomeStatus.REFUSED
    assert refused.error is not None
    assert f"'{why}'" in refused.error.message
    assert await world.rows() == before


async def test_an_answer_comes_once() -> None:
    """The second of two answers to one question is refused, and never given to the next one."""
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("questions")))
    await process.outcome(world.send(world.resume(answers={"colour": "red"})))
    late = await process.outcome(world.send(world.resume(answers={"colour": "blue"})))
    assert late.status is OutcomeStatus.REFUSED
    done = await process.outcome(world.send(world.resume(value=1)))
    assert isinstance(done.state, dict)
    assert (done.state["colour"], done.state["price"]) == ("red", 1)


@pytest.mark.parametrize("save", range(1, 4))
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_crash_at_any_save_loses_no_answer(side: str, save: int) -> None:
    """The redelivery goes on with the answers that the first delivery took."""
    world = World()
    await world.process().outcome(world.send(world.run("questions")))
    message = world.send(world.resume(answers={"colour": "red"}))
    dying = DyingStore(world.store, **{side: save})
    process = world.process("w0", store=dying)
    if save == 3:
        asked = await process.outcome(message)
    else:
        await process.crash(message)
        asked = await world.process("w1").outcome(message)
    assert asked.questions == [QuestionBody(id="price", path="ask", payload="price?")]
    done = await world.process("w1").outcome(world.send(world.resume(value=1)))
    assert isinstance(done.state, dict)
    assert (done.status, done.state["colour"]) == (OutcomeStatus.COMPLETED, "red")


@pytest.mark.parametrize(
    ("cap", "ids", "is_told"), [(5_000, ["colour"], True), (1_000, ["colour"], False), (10, [], False)]
)
async def test_questions_over_the_cap_are_left_out_of_the_outcome(
    cap: int, ids: list[str], *, is_told: bool
) -> None:
    """An outcome fits its topic, whatever its nodes ask; all of it is in the store."""
    world = World()
    process = world.process(state_cap=cap)
    asked = await process.outcome(world.send(world.run("questions", state={"amount": "x" * 2_000})))
    questions = asked.questions or []
    assert (asked.status, asked.state_omitted) == (OutcomeStatus.INTERRUPTED, not is_told)
    assert [question.id for question in questions] == ids
    assert all((question.payload is not None) is is_told for question in questions)
    assert len(encode_outcome(asked)) < cap + 1_000
