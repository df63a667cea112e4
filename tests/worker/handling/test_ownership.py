"""Whose work rows are: own, second send, passed, and how far back that is looked for."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from outcrop.topics.ids import uuid7
from outcrop.topics.messages import CommandType
from outcrop.worker.marks import Coordinates, coordinates_of
from outcrop.worker.ownership import (
    Claimant,
    Fresh,
    InProgress,
    Passed,
    SecondSend,
    Stamped,
    Told,
    horizon,
    judge,
    settled_by_latest,
)
from support.rows import NOW, checkpoint, row

C1, C2, C3, D1 = (UUID(int=number) for number in range(1, 5))
LATER = uuid7(datetime(2026, 1, 2, 3, 4, 8, tzinfo=UTC), bytes(10))  # made after the rows of these tests


def at(offset: int, partition: int = 0, topic: str = "T") -> Coordinates:
    return Coordinates(topic, partition, offset)


def by(command: UUID, offset: int, **more: str) -> dict[str, str]:
    marks = {"outcrop.command_id": str(command), "outcrop.message": str(at(offset))}
    return marks | {f"outcrop.{key}": text for key, text in more.items()}


def claimant(command: UUID = C1, offset: int = 5, kind: CommandType = CommandType.RUN) -> Claimant:
    return Claimant(kind, command, at(offset))


def test_a_thread_without_rows_is_fresh() -> None:
    assert settled_by_latest(claimant(), None)
    assert judge(claimant(), []) == Fresh()


def test_the_first_own_row_that_stopped_tells_not_the_last() -> None:
    """F5: a peer that carries metadata on marks its own later work as this command's."""
    rows = [
        row(0, marks=by(C1, 5)),
        row(1, "interrupted", by(C1, 5)),
        row(2, marks=by(C1, 5)),
        row(3, "completed", by(C1, 5)),
    ]
    assert judge(claimant(), rows) == Told(rows[1])


def test_a_stamp_tells_nothing() -> None:
    stamp = row(1, "interrupted", by(C1, 5, resume_id=str(C2)), resumed_at=NOW)
    failed = row(2, "failed", by(C2, 6))
    assert judge(claimant(), [row(0, "interrupted", by(C1, 5)), stamp]) == Told(
        row(0, "interrupted", by(C1, 5))
    )
    second = claimant(C2, 6, CommandType.RESUME)
    assert judge(second, [row(0, "interrupted", by(C1, 5)), stamp, failed]) == Told(failed)
    assert judge(second, [row(0, "interrupted", by(C1, 5)), stamp]) == Stamped(stamp)


@pytest.mark.parametrize("status", ["running", "interrupted", "completed"])
def test_what_another_command_made_of_the_thread_after_a_stamp_tells_nothing_of_it(status: str) -> None:
    stamp = row(1, "interrupted", by(C1, 5, resume_id=str(C2)), resumed_at=NOW)
    rows = [row(0, "interrupted", by(C1, 5)), stamp, row(2, status, by(C3, 7))]
    assert judge(claimant(C2, 6, CommandType.RESUME), rows) == Stamped(stamp, is_over=True)


@pytest.mark.parametrize("kind", [CommandType.RESUME, CommandType.SIGNAL, CommandType.WAKE])
def test_every_command_that_stamps_knows_its_stamp(kind: CommandType) -> None:
    """F15."""
    stamp = row(1, "interrupted", by(C1, 5, resume_id=str(C2)), resumed_at=NOW)
    assert judge(claimant(C2, 6, kind), [stamp]) == Stamped(stamp)


def test_without_an_own_row_that_stopped_the_first_after_the_last_own_one_tells() -> None:
    rows = [row(0, marks=by(C1, 5)), row(1, "ended", by(C2, 6)), row(2, "ended", by(C3, 7))]
    assert judge(claimant(), rows) == Told(rows[1])


def test_own_rows_that_only_run_are_work_in_progress() -> None:
    rows = [row(0, marks=by(C1, 5)), row(1, marks=by(C1, 5, recovery_id=str(D1)))]
    assert judge(claimant(), rows) == InProgress(rows[1])


def test_a_cancel_is_told_by_the_row_it_caused() -> None:
    """F2."""
    rows = [row(0, marks=by(C1, 5)), row(1, "cancelled", by(C1, 5, cancel_id=str(C2)))]
    assert judge(claimant(C2, 6, CommandType.CANCEL), rows) == Told(rows[1])
    assert judge(claimant(C2, 6, CommandType.END), rows) == Fresh(), "an end only stopped that run"


def test_a_recover_is_told_by_the_rows_of_its_recovery_and_a_resume_is_not() -> None:
    """F4: rows of a recovery are the work of the command that it continues."""
    rows = [row(0, marks=by(C1, 5)), row(1, "interrupted", by(C1, 5, recovery_id=str(D1)))]
    assert judge(claimant(D1, 6, CommandType.RECOVER), rows) == Told(rows[1])
    assert judge(claimant(D1, 6, CommandType.RESUME), rows) == Fresh()
    assert judge(claimant(C1, 5), rows) == Told(rows[1])


def test_the_same_command_in_another_message_is_a_second_send() -> None:
    """F12."""
    rows = [row(0, marks=by(C1, 5)), row(1, "completed", by(C1, 5))]
    assert judge(claimant(offset=9), rows) == SecondSend()
    assert judge(Claimant(CommandType.RUN, C1, at(5, topic="made anew")), rows) == SecondSend()


def test_a_later_message_of_the_partition_that_acted_passes_a_command() -> None:
    """F3."""
    acted = row(4, "interrupted", by(C3, 9))
    assert judge(claimant(C2, 8, CommandType.SIGNAL), [acted, row(5, "failed", {})]) == Passed(acted)
    for kind in (CommandType.WAKE, CommandType.RECOVER):
        assert judge(claimant(D1, 8, kind), [acted]) == Fresh(), "these name their sequence"


@pytest.mark.parametrize("message", ["T/1/9", "U/0/9", "T/0/7", "", "T/0", "T/0/x", "T/0/-1", "T/0/\u0669"])
def test_only_later_messages_of_one_partition_pass(message: str) -> None:
    acted = row(4, "interrupted", {"outcrop.command_id": str(C3), "outcrop.message": message})
    assert judge(claimant(C2, 8, CommandType.SIGNAL), [acted]) == Fresh()


def test_the_latest_row_settles_it_only_when_it_is_before_and_not_own() -> None:
    command = claimant(LATER, 8, CommandType.SIGNAL)
    assert settled_by_latest(command, row(4, "interrupted", by(C1, 5)))
    assert not settled_by_latest(command, row(4, "interrupted", by(C3, 9)))
    assert not settled_by_latest(command, row(4, marks=by(LATER, 8)))
    assert not settled_by_latest(command, row(4, "interrupted", {})), "a peer wrote it"
    assert not settled_by_latest(command, row(4, "interrupted", {"outcrop.message": "T/1/3"}))


@pytest.mark.parametrize("command", [uuid7(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), bytes(10)), C2])
def test_a_second_send_behind_another_command_is_looked_for(command: UUID) -> None:
    """F12: the row between is of an earlier message, but was written after the command was made."""
    between = row(4, "interrupted", by(C3, 7))
    assert not settled_by_latest(claimant(command, 9, CommandType.SIGNAL), between)
    assert settled_by_latest(claimant(command, 9, CommandType.WAKE), between), "it names its sequence"
    assert settled_by_latest(claimant(LATER, 9, CommandType.SIGNAL), between)
    rows = [row(3, "interrupted", by(command, 6)), between]
    assert judge(claimant(command, 9, CommandType.SIGNAL), rows) == SecondSend()


def test_the_horizon_is_a_day_before_the_commands_own_time() -> None:
    made = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert horizon(uuid7(made, bytes(10))) == "2026-01-01T03:04:05Z"
    assert horizon(UUID(int=C1.int, version=4)) is None
    assert horizon(UUID(int=(2**48 - 1) << 80 | 0x7 << 76 | 0x2 << 62)) is None


def test_coordinates_survive_their_text() -> None:
    told = at(3, 2, "Zx-_/odd")
    assert coordinates_of(checkpoint(marks={"outcrop.message": str(told)})) == told
    assert coordinates_of(checkpoint()) is None
