"""A person's answer at a boundary: the decision it makes, and the overrides it lays on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.record import Decision

from .waits import EventWake, HumanWake

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import Json

    from .options import Answer
    from .waits import Wake


def decision_of(answer: Answer, boundary: str, decided_at: str) -> Decision:
    """What rows and nodes are told of the answer, until another boundary is answered."""
    return Decision(
        boundary=boundary,
        is_approved=answer.approved,
        reviewer=answer.by,
        overrides=dict(sorted(overrides_of(HumanWake(answer)).items(), key=lambda item: str(item[0]))),
        decided_at=decided_at,
    )


def overrides_of(wake: Wake) -> Mapping[str, Json]:
    """The top-level fields that this wake lays over the state."""
    match wake:
        case HumanWake(answer=answer):
            return {**answer.overrides, **answer.text_overrides}
        case EventWake(payload=payload):
            return payload
        case _:
            return {}


def answer_refusal(answer: Answer, thread_id: str) -> str | None:
    """Why the answer contradicts itself, or None when it doesn't."""
    for key in sorted(answer.overrides.keys() & answer.text_overrides.keys()):
        return (
            f"cannot resume thread '{thread_id}': override '{key}' is set as both a string and a typed value"
        )
    return None
