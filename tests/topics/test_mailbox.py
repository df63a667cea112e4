from __future__ import annotations

import gc
from uuid import UUID

import pytest

from outcrop.topics import BadOutcome, ClientClosed, encode_outcome
from outcrop.topics.mailbox import Mailbox
from support.embedded import outcome_of

ID = UUID(int=1)


async def test_outcome_finds_its_slot_and_stays_there() -> None:
    mailbox = Mailbox()
    slot, other = mailbox.slot(ID), mailbox.slot(UUID(int=2))
    mailbox.deliver(encode_outcome(outcome_of(ID, thread_id="a")))
    mailbox.deliver(encode_outcome(outcome_of(UUID(int=2), thread_id="b")))
    assert (await slot.outcome()).thread_id == "a"
    assert (await slot.outcome()).thread_id == "a"
    assert (await other.outcome()).thread_id == "b"


async def test_first_outcome_stands() -> None:
    mailbox = Mailbox()
    slot = mailbox.slot(ID)
    mailbox.deliver(encode_outcome(outcome_of(ID, sequence=1)))
    mailbox.deliver(encode_outcome(outcome_of(ID, sequence=2)))
    assert (await slot.outcome()).sequence == 1


async def test_one_command_has_one_slot_while_somebody_holds_it() -> None:
    mailbox = Mailbox()
    first = mailbox.slot(ID)
    assert mailbox.slot(ID) is first


async def test_outcome_that_came_before_anybody_asked_is_kept() -> None:
    mailbox = Mailbox()
    mailbox.deliver(encode_outcome(outcome_of(ID, sequence=7)))
    mailbox.deliver(encode_outcome(outcome_of(ID, sequence=8)))
    assert (await mailbox.slot(ID).outcome()).sequence == 7


async def test_unclaimed_outcomes_take_bounded_memory_oldest_first_out() -> None:
    size = len(encode_outcome(outcome_of(UUID(int=10))))
    mailbox = Mailbox(unclaimed_bytes=3 * size)
    for number in range(10, 20):
        mailbox.deliver(encode_outcome(outcome_of(UUID(int=number))))
    mailbox.close(ClientClosed("closed"))
    kept = []
    for number in range(10, 20):
        try:
            kept.append((await mailbox.slot(UUID(int=number)).outcome()).command_id.int)
        except ClientClosed:
            continue
    assert kept == [17, 18, 19]


async def test_outcome_over_the_whole_bound_is_not_kept() -> None:
    mailbox = Mailbox(unclaimed_bytes=10)
    mailbox.deliver(encode_outcome(outcome_of(ID)))
    mailbox.close(ClientClosed("closed"))
    with pytest.raises(ClientClosed):
        await mailbox.slot(ID).outcome()


async def test_claimed_room_is_free_again() -> None:
    size = len(encode_outcome(outcome_of(ID)))
    mailbox = Mailbox(unclaimed_bytes=size)
    for number in range(1, 5):
        mailbox.deliver(encode_outcome(outcome_of(UUID(int=number))))
        assert (await mailbox.slot(UUID(int=number)).outcome()).command_id.int == number


async def test_dropped_slots_are_forgotten() -> None:
    mailbox = Mailbox(unclaimed_bytes=0)
    for number in range(100):
        mailbox.slot(UUID(int=number))
    gc.collect()
    assert len(mailbox._slots) == 0


async def test_unreadable_outcome_is_told_to_its_slot_and_bothers_nobody_else() -> None:
    mailbox = Mailbox()
    slot, other = mailbox.slot(ID), mailbox.slot(UUID(int=2))
    for value in (b"\xff", None, b"[]", encode_outcome(outcome_of(ID)).replace(b'"completed"', b'"later"')):
        mailbox.deliver(value)
    mailbox.deliver(encode_outcome(outcome_of(UUID(int=2))))
    with pytest.raises(BadOutcome, match="status"):
        await slot.outcome()
    assert await other.outcome()


async def test_closing_answers_open_and_later_slots_and_keeps_given_answers() -> None:
    mailbox = Mailbox()
    answered, open_slot = mailbox.slot(ID), mailbox.slot(UUID(int=2))
    mailbox.deliver(encode_outcome(outcome_of(ID)))
    mailbox.close(ClientClosed("closed"))
    assert await answered.outcome()
    for slot in (open_slot, mailbox.slot(UUID(int=3))):
        with pytest.raises(ClientClosed):
            await slot.outcome()
