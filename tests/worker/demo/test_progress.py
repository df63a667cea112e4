"""What the shop knows from outcomes. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.topics import Outcome, OutcomeStatus
from outcrop.topics.ids import new_command_id
from outcrop.worker.demo.progress import Progress, Stage

if TYPE_CHECKING:
    from uuid import UUID

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _outcome(command_id: UUID, status: OutcomeStatus = OutcomeStatus.COMPLETED, **fields: Any) -> Outcome:
    return Outcome.model_validate(
        {
            "command_id": command_id,
            "command_type": "run",
            "thread_id": "order-1",
            "status": status,
            "worker": "worker-1",
            "started_at": WHEN,
            "finished_at": WHEN,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({}, Stage.COMPLETED),
        ({"status": OutcomeStatus.ENDED}, Stage.ENDED),
        ({"status": OutcomeStatus.FAILED}, Stage.FAILED),
        ({"status": OutcomeStatus.CANCELLED}, Stage.FAILED),
        ({"status": OutcomeStatus.INTERRUPTED}, Stage.PERSON),
        ({"status": OutcomeStatus.INTERRUPTED, "wait": {"kind": "human"}}, Stage.PERSON),
        ({"status": OutcomeStatus.INTERRUPTED, "wait": {"kind": "event"}}, Stage.EVENT),
        ({"status": OutcomeStatus.INTERRUPTED, "wait": {"kind": "timer"}}, Stage.TIMER),
    ],
)
def test_stages(fields: dict[str, Any], stage: Stage) -> None:
    progress = Progress(1)
    command_id = new_command_id()
    progress.sent("order-1", command_id, 1.0)
    assert progress.stages == {"order-1": Stage.MOVING}
    assert progress.came(_outcome(command_id, **fields), 1.5) is stage
    assert progress.count(stage) == 1
    assert progress.is_over == (stage in {Stage.COMPLETED, Stage.ENDED, Stage.FAILED})
    assert progress.latencies == [0.5]


def test_a_repeated_outcome_changes_nothing_but_the_count_of_repeats() -> None:
    progress = Progress(2)
    command_id = new_command_id()
    progress.sent("order-1", command_id, 1.0)
    progress.came(_outcome(command_id), 1.5)
    assert progress.came(_outcome(command_id), 9.0) is None
    assert (progress.outcomes, progress.repeats, progress.latencies) == (1, 1, [0.5])


def test_a_refusal_is_kept_and_moves_nothing() -> None:
    progress = Progress(1)
    command_id = new_command_id()
    progress.sent("order-1", command_id, 1.0)
    refused = _outcome(command_id, OutcomeStatus.REFUSED, reason="stale")
    assert progress.came(refused, 2.0) is None
    assert progress.refusals == ["order-1: run stale"]
    assert progress.stages == {"order-1": Stage.MOVING}


def test_the_rate_forgets() -> None:
    progress = Progress(9)
    for at in (0.0, 1.0, 2.0):
        progress.came(_outcome(new_command_id()), at)
    assert progress.rate(2.0) == 1.0
    assert progress.rate(10.0) == 0.0
