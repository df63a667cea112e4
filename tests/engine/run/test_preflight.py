"""Every kind of row against every verb: which refuses, and with what code."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from outcrop.engine import Answer, RefusalCode, Refused
from outcrop.engine.driven import skip_reason
from outcrop.engine.position import Position
from outcrop.engine.preflight import EndsHere, GoesOn, Preflight
from outcrop.engine.recovery import still_dead
from outcrop.engine.waits import EventWake, HumanWake, Wake
from outcrop.stores.record import Checkpoint, Status, Wait, WaitKind
from support.engine import EVERY_NODE, Doc, World

NOW, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
WAITS = {
    "none": None,
    "human": Wait(WaitKind.HUMAN, None, NOW),
    "event": Wait(WaitKind.EVENT, "paid", NOW),
    "timer": Wait(WaitKind.TIMER, None, NOW),
    "later": Wait(WaitKind.TIMER, None, LATER),
}
NODE = {"none": "plain", "human": "human", "event": "event", "timer": "timer", "later": "timer"}


def preflight() -> Preflight[Doc]:
    graph = World().graph("human", "plain")
    graph.interrupt("human", timeout=60)
    graph.interrupt("plain")
    graph.wait_for_event("event", event="paid", timeout=60, on_timeout="human")
    graph.timer("timer", delay=60)
    graph.edge("plain", "event")
    graph.edge("event", "timer")
    graph.edge("timer", "human", when=lambda doc: doc.n > 0)
    return Preflight(graph.compile(checkpoints=EVERY_NODE), "t")


def row(status: Status, wait: str = "none", **fields: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "schema_version": "1.0.0", "thread_id": "t", "status": status, "suspended_node": NODE[wait],
        "next_node": None if status in (Status.COMPLETED, Status.ENDED) else "plain",
        "frozen_state": "{}", "metadata": None, "created_at": NOW,
        "wait": WAITS[wait] if status is Status.INTERRUPTED else None,
    }  # fmt: skip
    return Checkpoint(**{**values, **fields})


REFUSED_BY_STATUS = {
    Status.RUNNING: RefusalCode.RUNNING,
    Status.ENDED: RefusalCode.ENDED,
    Status.COMPLETED: RefusalCode.COMPLETED,
}
VERBS: dict[str, Wake | None] = {"resume": HumanWake(Answer()), "signal": EventWake("paid", {}), "wake": None}


def expected(status: Status, wait: str, verb: str) -> object:
    """The table of section 5, for rows that fit the graph."""
    if status in REFUSED_BY_STATUS:
        return REFUSED_BY_STATUS[status]
    if status is not Status.INTERRUPTED:
        return {"resume": GoesOn, "signal": RefusalCode.NOT_WAITING, "wake": RefusalCode.NOT_DUE}[verb]
    if verb == "resume":
        return GoesOn if wait in ("none", "human") else RefusalCode.NOT_WAITING
    if verb == "signal":
        return GoesOn if wait == "event" else RefusalCode.NOT_WAITING
    return {"human": EndsHere, "event": GoesOn, "timer": GoesOn}.get(wait, RefusalCode.NOT_DUE)


@pytest.mark.parametrize(("status", "wait", "verb"), list(product(Status, WAITS, VERBS)))
def test_every_row_and_verb(status: Status, wait: str, verb: str) -> None:
    verdict = preflight().resume(row(status, wait), VERBS[verb], now=NOW)
    wanted = expected(status, wait, verb)
    assert (verdict.code if isinstance(verdict, Refused) else type(verdict)) == wanted


@pytest.mark.parametrize(
    ("status", "verb"), list(product(sorted(REFUSED_BY_STATUS.keys() ^ set(Status)), VERBS))
)
def test_a_stamped_row_takes_no_verb(status: Status, verb: str) -> None:
    verdict = preflight().resume(row(status, resumed_at=NOW), VERBS[verb], now=NOW)
    assert isinstance(verdict, Refused)
    assert verdict.code is RefusalCode.ALREADY_RESUMED


@pytest.mark.parametrize("status", list(Status))
def test_only_running_rows_recover(status: Status) -> None:
    verdict = preflight().recover(row(status))
    if status is Status.RUNNING:
        assert isinstance(verdict, GoesOn)
        assert verdict.position == Position(node="plain", state="{}", is_recovery=True)
    else:
        assert isinstance(verdict, Refused)
        assert verdict.code is RefusalCode.NOT_RUNNING


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"schema_version": "1.8.0"}, RefusalCode.SCHEMA_VERSION),
        ({"metadata": {"strata.hops": "-1"}}, RefusalCode.INVALID),
        ({"next_node": None}, RefusalCode.NO_NEXT_NODE),
        ({"frozen_state": "[]"}, RefusalCode.STATE),
        ({"nested": row(Status.RUNNING)}, RefusalCode.NESTED),
        ({"nested": row(Status.RUNNING, schema_version="2.0.0")}, RefusalCode.SCHEMA_VERSION),
    ],
)
@pytest.mark.parametrize("status", [Status.RUNNING, Status.FAILED])
def test_what_is_wrong_with_a_row(status: Status, fields: dict[str, Any], code: RefusalCode) -> None:
    """E016, E017, K010, 5.3."""
    checks, bad = preflight(), row(status, **fields)
    verdict = (
        checks.recover(bad) if status is Status.RUNNING else checks.resume(bad, HumanWake(Answer()), now=NOW)
    )
    assert isinstance(verdict, Refused)
    assert verdict.code is code


@pytest.mark.parametrize(
    ("fields", "before", "most", "reason"),
    [
        ({}, None, None, None),
        ({"schema_version": "3"}, None, None, "its checkpoint has unsupported schema_version '3'"),
        ({"status": Status.FAILED}, None, None, "it is no longer running"),
        ({}, NOW, None, "it is not stale yet"),
        ({}, LATER, None, None),
        (
            {"metadata": {"strata.recoveries": "2"}},
            None,
            2,
            "it was recovered 2 time(s) without a node completing",
        ),
        ({"metadata": {"strata.recoveries": "2"}}, None, 3, None),
    ],
)
def test_who_counts_as_dead(
    fields: dict[str, Any], before: str | None, most: int | None, reason: str | None
) -> None:
    """7.3."""
    checkpoint = row(**{"status": Status.RUNNING, **fields})
    assert still_dead(checkpoint, before=before, max_recoveries=most) == reason


@pytest.mark.parametrize("code", list(RefusalCode))
def test_a_driver_has_words_for_every_refusal(code: RefusalCode) -> None:
    reason = skip_reason(Refused(thread_id="t", code=code, message="why"), gone="gone", raced="raced")
    assert reason in (
        "why", "gone", "raced", "it has no checkpoint", "its checkpoint can't be loaded: why",
        "its checkpointwhy", "itwhy",
    )  # fmt: skip
