"""Outcomes as the command shows them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.topics.codec import encode_outcome
from outcrop.topics.messages import OutcomeStatus

from .difference import raw_json
from .exits import Exit
from .terminal import to_json
from .views import wait_phrase

if TYPE_CHECKING:
    from outcrop.topics.messages import Outcome


def outcome_document(outcome: Outcome) -> object:
    """The outcome as it is on the wire, and no shorter: its keys are those of its JSON Schema."""
    return raw_json(encode_outcome(outcome).decode())


def outcome_fields(outcome: Outcome) -> list[tuple[str, str]]:
    """The outcome as names and values; what it doesn't tell is left out."""
    wait = outcome.wait
    told = {
        "status": outcome.status.value,
        "thread": outcome.thread_id,
        "command": f"{outcome.command_type.value} {outcome.command_id}",
        "reason": outcome.reason,
        "error": None if outcome.error is None else f"{outcome.error.message} ({outcome.error.kind})",
        "node": outcome.node,
        "waits for": None if wait is None else wait_phrase(wait.kind, wait.event, wait.wake_at),
        **{f"asks {question.id}": to_json(question.payload) for question in outcome.questions or ()},
        "sequence": None if outcome.sequence is None else str(outcome.sequence),
        "worker": outcome.worker,
        "state": _state(outcome),
    }
    return [(name, value) for name, value in told.items() if value is not None]


def outcome_columns(outcome: Outcome) -> tuple[str, ...]:
    """The outcome as one line's cells."""
    why = outcome.reason or (None if outcome.error is None else outcome.error.message)
    return (
        f"{outcome.finished_at:%Y-%m-%dT%H:%M:%S}Z",
        outcome.status.value,
        outcome.thread_id,
        outcome.command_type.value,
        outcome.node or "-",
        "-" if outcome.sequence is None else str(outcome.sequence),
        why or "-",
    )


def exit_for(outcome: Outcome) -> Exit:
    """What `send --wait` ends with."""
    failed = outcome.status in {OutcomeStatus.FAILED, OutcomeStatus.REFUSED}
    return Exit.FAILED if failed else Exit.OK


def _state(outcome: Outcome) -> str | None:
    if outcome.state_omitted:
        return "(over the size cap: read it from the store)"
    document = outcome.model_dump_json(include={"state"})
    return None if outcome.state is None else document.removeprefix('{"state":').removesuffix("}")
