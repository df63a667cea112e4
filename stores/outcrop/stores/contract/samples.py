"""Checkpoints of every shape, for the suite and for whoever tests a store.

`SHAPES` has one row of each kind that an engine writes; `sample` builds any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from outcrop.stores.record import (
    Checkpoint,
    Decision,
    GraphIdentity,
    Status,
    Wait,
    WaitKind,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

AT: Final = "2026-01-02T03:04:05Z"
RICH_STATE: Final = (
    '{"amount":4200.5,"big":9007199254740993,"largest":18446744073709551615,"nested":{"a":{"b":[]}},'
    '"nothing":null,"flags":[true,false,null],"quotes":"\\"\'","backslash":"\\\\","newline":"\\n\\t",'
    '"text":"é 日本語 🚀","empty":"","negative":-1,"zero":-0.0,"tiny":5e-324}'
)
_FAILED: Final = {"tenant": "acme", "error": "mailbox closed", "error_kind": "fatal", "attempts": "3"}
_DECISION: Final = Decision(
    boundary="Approve",
    is_approved=True,
    reviewer="alice é",
    overrides={"object": {"a": [1, 2.5]}, "int": 7, "bool": False, "none": None, "text": ""},
    decided_at="2026-01-02T03:04:04Z",
)


def sample(thread_id: str = "t", status: Status = Status.COMPLETED, **changes: Any) -> Checkpoint:  # noqa: ANN401 - any field of the record
    """A flat row; `changes` replace any of its fields."""
    row = Checkpoint(
        schema_version="1.0.0",
        thread_id=thread_id,
        status=status,
        suspended_node="Send",
        next_node=None,
        frozen_state='{"n":1}',
        metadata=None,
        created_at=AT,
    )
    return replace(row, **changes)


def _child(status: Status, **changes: Any) -> Checkpoint:  # noqa: ANN401 - any field of the record
    return sample("Work", status, suspended_node="Review", frozen_state='{"n":10}', **changes)


_GRANDCHILD = sample(
    "Inner",
    Status.INTERRUPTED,
    suspended_node="Ask",
    metadata={"level": "2"},
    schema_version="1.5.0",
    wait=Wait(WaitKind.TIMER, wake_at="2026-01-03T00:00:00Z"),
)
SHAPES: Final[Mapping[str, Checkpoint]] = {
    "completed": sample(),
    "bare": sample(suspended_node=None, next_node=None, frozen_state="5"),
    "rich": sample(frozen_state=RICH_STATE, metadata={"tenant": "acme", "é": '"quoted"\n', "": ""}),
    "interrupted": sample(status=Status.INTERRUPTED, next_node="Approve", metadata={}),
    "resumed": sample(status=Status.INTERRUPTED, next_node="Approve", resumed_at="2026-01-02T03:05:00Z"),
    "failed": sample(status=Status.FAILED, next_node="Send", metadata=_FAILED),
    "cancelled": sample(status=Status.CANCELLED, next_node="Send", schema_version="1.2.0"),
    "ended": sample(status=Status.ENDED, metadata={"strata.ended_by": "ops"}, schema_version="1.4.0"),
    "running": sample(
        status=Status.RUNNING,
        suspended_node=None,
        next_node="Draft",
        metadata={"strata.hops": "0"},
        schema_version="1.7.0",
    ),
    "decided": sample(decision=_DECISION, schema_version="1.3.0"),
    "human wait": sample(
        status=Status.INTERRUPTED,
        next_node="Next",
        schema_version="1.5.0",
        wait=Wait(WaitKind.HUMAN, wake_at="2026-01-02T04:00:00Z"),
    ),
    "event wait": sample(
        status=Status.INTERRUPTED,
        next_node="Next",
        schema_version="1.5.0",
        wait=Wait(WaitKind.EVENT, event_type="payment.settled"),
    ),
    "timer": sample(
        status=Status.INTERRUPTED,
        next_node="Next",
        schema_version="1.5.0",
        wait=Wait(WaitKind.TIMER, wake_at="2026-01-02T04:00:00Z"),
    ),
    "identified": sample(graph=GraphIdentity("orders", "2"), schema_version="1.6.0"),
    "unversioned": sample(graph=GraphIdentity("orders"), schema_version="1.6.0"),
    "nested wait": sample(
        status=Status.INTERRUPTED,
        metadata={"level": "0"},
        schema_version="1.5.0",
        nested=_child(
            Status.INTERRUPTED, metadata={"level": "1"}, schema_version="1.5.0", nested=_GRANDCHILD
        ),
    ),
    "nested failed": sample(
        status=Status.FAILED,
        metadata=_FAILED,
        schema_version="1.3.0",
        nested=_child(Status.FAILED, metadata=_FAILED, decision=_DECISION, schema_version="1.3.0"),
    ),
    "nested cancelled": sample(
        status=Status.CANCELLED,
        schema_version="1.2.0",
        nested=_child(Status.CANCELLED, schema_version="1.2.0"),
    ),
    "failed over cancelled": sample(
        status=Status.FAILED,
        metadata=_FAILED,
        schema_version="1.2.0",
        nested=_child(Status.CANCELLED, schema_version="1.2.0"),
    ),
    "newer": sample(schema_version="9.9.9"),
}
