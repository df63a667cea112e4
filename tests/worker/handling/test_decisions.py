"""The table of worker.md section 6, every cell: commands down, the thread's latest row across."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from outcrop.worker.decisions import (
    CancelThread,
    Drop,
    EndThread,
    LookAgain,
    RecoverThenLook,
    RecoverThread,
    Refuse,
    RerunThread,
    ResumeThread,
    SignalThread,
    StartRun,
    TellEnded,
    UpdateThread,
    View,
    WakeThread,
    decide,
)
from support.handling import World
from support.rows import NOW, event, row, timer

if TYPE_CHECKING:
    from outcrop.stores.record import Row
    from outcrop.topics.messages import AnyCommand

WORLD = World()
SEQUENCE = 7
LATER = "2026-01-02T03:04:06Z"

ROWS: dict[str, Row | None] = {
    "none": None,
    "running": row(SEQUENCE, marks={"strata.recoveries": "2"}),
    "exhausted": row(SEQUENCE, marks={"strata.recoveries": "3"}),
    "boundary": row(SEQUENCE, "interrupted"),
    "event": row(SEQUENCE, "interrupted", wait=event("paid")),
    "due": row(SEQUENCE, "interrupted", wait=timer(NOW)),
    "not yet": row(SEQUENCE, "interrupted", wait=timer(LATER)),
    "failed": row(SEQUENCE, "failed"),
    "cancelled": row(SEQUENCE, "cancelled"),
    "completed": row(SEQUENCE, "completed"),
    "ended": row(SEQUENCE, "ended"),
    "resumed": row(SEQUENCE, "interrupted", resumed_at=NOW),
}
COMMANDS: dict[str, AnyCommand] = {
    "run": WORLD.run(),
    "resume": WORLD.resume(),
    "resume seen": WORLD.resume(expected_sequence=SEQUENCE, boundary="a"),
    "resume stale": WORLD.resume(expected_sequence=6),
    "resume elsewhere": WORLD.resume(boundary="z"),
    "signal": WORLD.signal("paid"),
    "signal other": WORLD.signal("other"),
    "update": WORLD.update({}),
    "update stale": WORLD.update({}, expected_sequence=6),
    "rerun": WORLD.rerun(2),
    "rerun seen": WORLD.rerun(2, expected_sequence=SEQUENCE),
    "rerun stale": WORLD.rerun(2, expected_sequence=6),
    "end": WORLD.end(),
    "cancel": WORLD.cancel(),
    "wake": WORLD.wake(SEQUENCE),
    "wake old": WORLD.wake(6),
    "recover": WORLD.recover(SEQUENCE),
    "recover old": WORLD.recover(6),
}
WAITING = ("boundary", "event", "due", "not yet")
STOPPED = ("failed", "cancelled")
FINISHED = ("completed", "ended")


def row_of(cells: dict[str | tuple[str, ...], Any]) -> dict[str, Any]:
    """One line of the table, its keys spread out."""
    line: dict[str, Any] = {}
    for names, cell in cells.items():
        for name in (names,) if isinstance(names, str) else names:
            line[name] = cell
    assert line.keys() == ROWS.keys()
    return line


RESUME = row_of({
    "none": "no_thread", "running": RecoverThenLook, "exhausted": "max_recoveries",
    (*WAITING, *STOPPED): ResumeThread, FINISHED: "finished", "resumed": "lost_run",
})  # fmt: skip
SIGNAL = row_of({
    "none": "no_thread", "running": RecoverThenLook, "exhausted": "max_recoveries", "event": SignalThread,
    ("boundary", "due", "not yet", *STOPPED, *FINISHED, "resumed"): "not_waiting",
})  # fmt: skip
BACK: dict[Any, Any] = {"none": "no_thread", "running": RecoverThenLook, "exhausted": "max_recoveries"}
STANDING = (*WAITING, *STOPPED, *FINISHED, "resumed")
ANSWERED = ("running", "exhausted", "boundary", "event", "not yet", *STOPPED, *FINISHED, "resumed")
STALE = dict.fromkeys((*WAITING, *STOPPED), "stale")
TABLE: dict[str, dict[str, Any]] = {
    "run": dict.fromkeys(ROWS, "thread_exists") | {"none": StartRun},
    "resume": RESUME,
    "resume seen": RESUME,
    "resume stale": RESUME | STALE,
    "resume elsewhere": RESUME | STALE,
    "signal": SIGNAL,
    "signal other": SIGNAL | {"event": "not_waiting"},
    "update": row_of({**BACK, STANDING: UpdateThread}),
    "update stale": row_of({**BACK, STANDING: "stale"}),
    "rerun": row_of({**BACK, STANDING: RerunThread}),
    "rerun seen": row_of({**BACK, STANDING: RerunThread}),
    "rerun stale": row_of({**BACK, STANDING: "stale"}),
    "end": row_of({
        "none": "no_thread", ("running", "exhausted", *WAITING, *STOPPED): EndThread,
        "completed": "finished", "ended": TellEnded, "resumed": "lost_run",
    }),
    "cancel": row_of({
        "none": "no_thread", ("running", "exhausted"): CancelThread,
        (*WAITING, *STOPPED, *FINISHED, "resumed"): "not_running",
    }),
    "wake": row_of({("none", *ANSWERED): Drop, "due": WakeThread}),
    "wake old": dict.fromkeys(ROWS, Drop),
    "recover": dict.fromkeys(ROWS, Drop) | {"running": RecoverThread},
    "recover old": dict.fromkeys(ROWS, Drop),
}  # fmt: skip


def view(latest: Row | None, *, held: bool = False) -> View:
    return View(row=latest, held=held, now=NOW, max_recoveries=3)


@pytest.mark.parametrize("state", ROWS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_cell(name: str, state: str) -> None:
    action, cell = decide(COMMANDS[name], view(ROWS[state])), TABLE[name][state]
    if isinstance(cell, str):
        assert isinstance(action, Refuse)
        assert action.reason == cell
        assert "'t'" in action.message
    else:
        assert isinstance(action, cell)


@pytest.mark.parametrize("state", ROWS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_live_lease_is_never_an_answer_but_to_a_run_of_an_existing_thread(name: str, state: str) -> None:
    action = decide(COMMANDS[name], view(ROWS[state], held=True))
    if name == "run" and state != "none":
        assert isinstance(action, Refuse)
        assert action.reason == "thread_exists"
    elif name.startswith(("wake", "recover")):
        assert action == Drop("held")
    else:
        assert action == LookAgain()


def test_a_refusal_for_too_many_recoveries_says_what_to_do() -> None:
    action = decide(COMMANDS["resume"], view(ROWS["exhausted"]))
    assert isinstance(action, Refuse)
    assert "3 time(s) without node 'b' completing; end or cancel it" in action.message
