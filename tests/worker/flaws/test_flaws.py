"""The flaws of protocol-flaws.md that concern at-least-once delivery, on the worker's own code.

Each is a scenario that returns its violations, and the switch that turns its rule off. The scenario
must find nothing with the rule in force, and something with it off. `FLAWS.md` is the table.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from outcrop.engine.cancellation import CancelReason
from outcrop.engine.clock import ManualClock
from outcrop.engine.options import CheckpointPolicy, RunOptions
from outcrop.engine.outcome import RefusalCode
from outcrop.engine.runner import Runner
from outcrop.engine.threads import Threads
from outcrop.stores.errors import Unavailable
from outcrop.stores.memory import MemoryStore
from outcrop.topics.messages import CommandType
from outcrop.worker import errand, ownership, verbs
from outcrop.worker.assignment import Assignment
from outcrop.worker.control import Control, Handled, Unfinished
from outcrop.worker.decisions import View
from outcrop.worker.errand import Errand
from outcrop.worker.marks import Marks
from outcrop.worker.metrics import Metrics
from outcrop.worker.ports import Message, Record
from outcrop.worker.publisher import Publisher
from outcrop.worker.worker import Limits, Worker
from support.handling import TTL, World, outcomes, told
from support.log import MemoryBroker, MemoryLog, MemoryOutbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.topics.messages import Outcome
    from support.handling import Process

Violations: TypeAlias = "list[str]"
Scenario: TypeAlias = "Callable[[], Awaitable[Violations]]"
Switch: TypeAlias = "Callable[[pytest.MonkeyPatch], None]"


def check(**conditions: bool) -> Violations:
    """The names of the conditions that don't hold."""
    return [name for name, holds in conditions.items() if not holds]


async def answer(process: Process, message: Message, control: Control | None = None) -> Outcome | None:
    """The one outcome of a message, if it has any."""
    found = outcomes(await process.handle(message, control))
    return found[0] if found else None


def alike(first: Outcome | None, second: Outcome | None) -> bool:
    """Whether a command acted, and was told the same twice."""
    if first is None or second is None or first.status == "refused":
        return False
    return told(first) == told(second)


# F1: a redelivered signal, wake, recover or cancel finds its own work


async def f1_signal() -> Violations:
    """Two waits for one event: c2 moves the thread to the second; the crash comes before its commit."""
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("twice")))
    c2 = world.send(world.signal("came"))
    first = await answer(process, c2)
    rows = len(await world.rows())
    again = await answer(world.process("w1"), c2)
    return check(told_the_same=alike(first, again), applied_once=len(await world.rows()) == rows)


async def f1_wake() -> Violations:
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("timer")))
    world.clock.advance(301)
    d1 = world.send(world.wake(2))
    first = await answer(process, d1)
    return check(told_the_same=alike(first, await answer(world.process("w1"), d1)))


async def f1_recover() -> Violations:
    world = World()
    world.hooks.crashes["b"] = 1
    await world.process().crash(world.send(world.run()))
    d1 = world.send(world.recover(1))
    first = await answer(world.process("w1"), d1)
    return check(told_the_same=alike(first, await answer(world.process("w2"), d1)))


def without_own(*types: CommandType) -> Switch:
    def switch(patch: pytest.MonkeyPatch) -> None:
        for kind in types:
            patch.setitem(ownership._OWN_KEYS, kind, ())

    return switch


# F2: a cancel leaves its mark on the row it causes


async def f2_cancel() -> Violations:
    world = World()
    process = world.process()
    cancel, run = world.cancel(), world.send(world.run())
    entered, _ = world.hooks.gate("b")
    control = Control()
    running = asyncio.ensure_future(process.handler.handle(run, control))
    await entered.wait()
    control.cancel.fire(CancelReason.REQUESTED, str(cancel.command_id))
    await running
    c2, c3 = world.send(cancel), world.send(world.resume())
    first = await answer(process, c2)
    del world.hooks.gates["b"]
    world.hooks.crashes["b"] = 1
    await process.crash(c3)  # c2's offset isn't committed either
    again = await answer(world.process("w1"), c2)
    resumed = await answer(world.process("w1"), c3)
    return check(
        cancelled=first is not None and first.status == "cancelled",
        told_the_same=alike(first, again),
        next_command_unharmed=resumed is not None and resumed.status == "completed",
    )


def without_cancel_marks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Marks, "_cause", lambda _marks, _row: None)


# F3: what was refused before a later command acted is never carried out after it


async def f3_refusal() -> Violations:
    """c2 is refused, c3 moves the thread to the wait that c2 is for, the crash comes before the commit."""
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("events")))
    c2, c3 = world.send(world.signal("second.came")), world.send(world.signal("first.came"))
    first = await answer(process, c2)
    await answer(process, c3)
    rows = len(await world.rows())
    again = await answer(world.process("w1"), c2)
    return check(
        refused_at_first=first is not None and first.status == "refused",
        refused_again=again is not None and again.status == "refused",
        nothing_done=len(await world.rows()) == rows,
    )


async def f3_zombie() -> Violations:
    """w1 refused the cancel c2 and runs c3; zombie w0 still has c2 queued, and takes a valid lease."""
    world = World()
    process = world.process("w1")
    await process.outcome(world.send(world.run("approval")))
    c2, c3 = world.send(world.cancel()), world.send(world.resume())
    await answer(process, c2)
    world.hooks.crashes["b"] = 1
    await process.crash(c3)
    late = await answer(world.process("w0"), c2)
    finished = await answer(process, c3)
    return check(
        late_one_refused=late is not None and late.status == "refused",
        resumed_undisturbed=finished is not None and finished.status == "completed",
    )


def without_passed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "_passed", lambda _claimant, _rows: None)


# F4: a recovery's rows are the work of the command that it continues


async def f4_recovery_by_another() -> Violations:
    """c1 died and went to the dead letters; the resume c2 recovers its run, then has to answer it."""
    world = World()
    world.hooks.crashes["a"] = 1
    await world.process().crash(world.send(world.run("approval")))
    c2 = world.send(world.resume())
    outcome = await answer(world.process("w1"), c2)
    decided = any(row.checkpoint.decision is not None for row in await world.rows())
    return check(decision_applied=decided, completed=outcome is not None and outcome.status == "completed")


def recoveries_as_own_work(patch: pytest.MonkeyPatch) -> None:
    def marks(*args: Any, continues: bool = False, **more: Any) -> Marks:
        return Marks(*args, continues=False, **more)

    patch.setattr(verbs, "Marks", marks)


# F5: the first own row at which work stopped tells, not the last, and not a running one


async def f5_peer() -> Violations:
    """A peer that carries metadata on answers the boundary: its rows have c1's marks."""
    world = World()
    process = world.process()
    c1 = world.send(world.run("approval"))
    first = await answer(process, c1)
    carried = {
        key: text
        for key, text in ((await world.latest()).metadata or {}).items()
        if key.startswith("outcrop.")
    }

    def carry(row: Any, *, stamp: bool, lease: Any) -> dict[str, str]:
        del row, stamp, lease
        return carried

    peer = Threads(world.graph("approval"), world.store, clock=world.clock)
    await peer.resume("t", options=RunOptions(marks=carry))
    return check(told_the_same=alike(first, await answer(world.process("w1"), c1)))


def tell_the_last(patch: pytest.MonkeyPatch) -> None:
    def last(rows: Any, own: Any) -> Any:
        return next((rows[place] for place in reversed(own) if ownership._stopped(rows[place])), None)

    patch.setattr(ownership, "_telling", last)


async def f5_running() -> Violations:
    world = World()
    c1 = world.send(world.run())
    world.hooks.crashes["b"] = 1
    await world.process().crash(c1)
    outcome = await answer(world.process("w1"), c1)
    return check(brought_to_its_end=outcome is not None and outcome.status == "completed")


def running_tells(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "_stopped", lambda _row: True)


# F6 and F7: a run is the thread's first, and every save names the sequence it follows


class Lagging:
    """A store whose n-th look (from 1) is answered late: `meanwhile` happens after it was taken."""

    def __init__(self, inner: MemoryStore, meanwhile: Callable[[], Awaitable[Any]], *, look: int = 1) -> None:
        self._inner = inner
        self._meanwhile = meanwhile
        self._left = look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def load(self, thread_id: str) -> Any:
        row = await self._inner.load(thread_id)
        self._left -= 1
        if self._left == 0:
            await self._meanwhile()
        return row


class SlowToAcquire:
    """A store whose first lease is asked for late: `meanwhile` happens before it."""

    def __init__(self, inner: MemoryStore, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        self._inner = inner
        self._meanwhile: Callable[[], Awaitable[Any]] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def acquire_lease(self, *args: Any, **options: Any) -> Any:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await self._inner.acquire_lease(*args, **options)


async def f6_run_unseen() -> Violations:
    """w1 takes the thread for new. Zombie w0 runs c1 whole and releases. w1 acquires."""
    world = World()
    c1 = world.send(world.run())
    zombie = world.process("w0")
    lagging: Any = SlowToAcquire(world.store, lambda: zombie.handler.handle(c1, Control()))
    outcome = await answer(world.process("w1", store=lagging), c1)
    return check(
        one_run=await world.statuses() == ["running:->a", "running:a>b", "running:b>c", "completed:c>-"],
        nodes_once=[node for _, node in world.ran] == ["a", "b", "c"],
        told=outcome is not None and outcome.sequence == 3,
    )


def run_unconditionally(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verbs, "RunOptions", lambda **fields: RunOptions(**fields | {"expected_sequence": None}))


class LosesAnswers:
    """A store that saves, once each, and then says that it can't tell."""

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner
        self._saves = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def save(self, *args: Any, **options: Any) -> Any:
        self._saves += 1
        saved = await self._inner.save(*args, **options)
        if self._saves % 2:
            raise Unavailable("the answer was lost")
        return saved


async def f7_lost_answers() -> Violations:
    world = World()
    losing: Any = LosesAnswers(world.store)
    outcome = await answer(world.process(store=losing), world.send(world.run()))
    return check(
        no_row_twice=await world.statuses() == ["running:->a", "running:a>b", "running:b>c", "completed:c>-"],
        completed=outcome is not None and outcome.status == "completed",
    )


def saves_without_sequence(patch: pytest.MonkeyPatch) -> None:
    original = MemoryStore.save

    async def save(self: MemoryStore, checkpoint: Any, **options: Any) -> Any:
        return await original(self, checkpoint, **options | {"expected": None})

    patch.setattr(MemoryStore, "save", save)


# F9: what a handler of an earlier assignment ends with counts no more


class LateHandler:
    """Ends each message when the test says so, whatever becomes of its partition."""

    def __init__(self) -> None:
        self.gates: list[asyncio.Future[None]] = []

    async def handle(self, message: Message, control: Control) -> Handled | Unfinished:
        del control
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        await gate
        return Handled((Record("threads.outcomes", message.key, b"outcome"),))


async def f9_earlier_assignment() -> Violations:
    """A run outlives its partition's stay, and the partition comes back."""
    broker, metrics, clock, handler = MemoryBroker(), Metrics(), ManualClock(), LateHandler()
    broker.append(b"t", b"c1")
    log = MemoryLog(broker)
    publisher = Publisher(MemoryOutbox(broker, log), dead="threads.dead", clock=clock, metrics=metrics)
    worker = Worker(
        log,
        publisher,
        handler,
        overtakes=lambda _message: None,
        limits=Limits(),
        clock=clock,
        metrics=metrics,
    )
    await worker.start()
    log.assign()
    log.deliver()
    await broker.until(lambda: len(handler.gates) == 1)
    log.lose()
    log.assign()
    log.deliver()
    await broker.until(lambda: len(handler.gates) == 2)
    handler.gates[0].set_result(None)
    await broker.settle()
    late = len(broker.published)
    handler.gates[1].set_result(None)
    await broker.until(lambda: len(broker.published) > late)
    log.crash()
    await worker.stop(timedelta(0))
    return check(nothing_late=late == 0, one_outcome=len(broker.published) == 1)


def late_results_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Assignment, "open", property(lambda _assignment: True))


# F12: a command that acted and is sent again is answered once


async def f12_second_send() -> Violations:
    world = World()
    process = world.process()
    command = world.run()
    await process.outcome(world.send(command))
    return check(not_answered_again=await answer(process, world.send(command)) is None)


async def f12_behind_another() -> Violations:
    """Two waits for one event: c2 answers the first, c3 ends the thread, c2 is sent once more."""
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("twice")))
    c2 = world.signal("came")
    await process.outcome(world.send(c2))
    await world.process("w1").outcome(world.send(world.end("t")))
    return check(not_answered_again=await answer(process, world.send(c2)) is None)


def settled_by_the_latest_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "CLOCK_SKEW", -timedelta(days=1))


def second_sends_tell(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "_is_of_another_message", lambda _claimant, _row: False)


# F13: a node that kills its worker stops doing so, and everybody is answered


async def f13_poison() -> Violations:
    world = World()
    world.hooks.crashes["b"] = 10**9
    c1, c2 = world.send(world.run()), world.send(world.resume())
    kills, answers = 0, []
    for message in (c1, c2):
        for _ in range(8):
            try:
                answers.append(await answer(world.process(f"w{kills}"), message))
                break
            except asyncio.CancelledError:
                kills += 1
                world.clock.advance(TTL.total_seconds() + 1)
    return check(few_kills=kills <= 4, both_answered=len(answers) == 2)


def recover_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(View, "exhausted", property(lambda _view: False))


# F14: a handover adds no recovery


class StopsAfterSave:
    """A store whose worker is asked to hand over with its first save."""

    def __init__(self, inner: MemoryStore, control: Control) -> None:
        self._inner = inner
        self._control = control

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def save(self, *args: Any, **options: Any) -> Any:
        saved = await self._inner.save(*args, **options)
        self._control.stop.fire()
        return saved


async def f14_handovers() -> Violations:
    world = World()
    c1 = world.send(world.run())
    result: Handled | Unfinished = Unfinished()
    for number in range(8):
        control = Control()
        stopping: Any = StopsAfterSave(world.store, control)
        result = await world.process(f"w{number}", store=stopping).handle(c1, control)
        if isinstance(result, Handled):
            break
    ended = outcomes(result) if isinstance(result, Handled) else []
    return check(
        completed=[outcome.status.value for outcome in ended] == ["completed"],
        nodes_once=[node for _, node in world.ran] == ["a", "b", "c"],
    )


def stop_right_after_a_claim(patch: pytest.MonkeyPatch) -> None:
    original = Runner.run

    async def run(self: Any, start: Any, **options: Any) -> Any:
        return await original(self, start, **options | {"is_fresh": True})

    patch.setattr(Runner, "run", run)


# F15: a Boundaries resume knows its own stamp


async def f15_stamp() -> Violations:
    world = World()
    process = world.process("w0", world.graph("approval", CheckpointPolicy.BOUNDARIES))
    await process.outcome(world.send(world.run("approval")))
    c2 = world.send(world.resume())
    world.hooks.crashes["b"] = 1
    await process.crash(c2)
    outcome = await answer(process, c2)
    return check(not_refused_after_acting=outcome is not None and outcome.status == "failed")


def stamps_without_marks(patch: pytest.MonkeyPatch) -> None:
    original = Marks.__call__

    def call(self: Marks, row: Any, *, stamp: bool, lease: Any) -> dict[str, str]:
        return {} if stamp else original(self, row, stamp=stamp, lease=lease)

    patch.setattr(Marks, "__call__", call)


# F17: `held` is never an answer


async def f17_held_on_acquire() -> Violations:
    """w1 looks, somebody acquires, then w1 tries to."""
    world = World()
    process = world.process()
    await process.outcome(world.send(world.run("approval")))
    lagging: Any = Lagging(world.store, lambda: world.store.acquire_lease("t", "w0", TTL))
    outcome = await answer(world.process("w1", store=lagging), world.send(world.resume()))
    return check(waited_for=outcome is not None and outcome.status == "completed")


def held_is_an_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(errand, "_NEVER_AN_ANSWER", frozenset({RefusalCode.LOST_RACE, RefusalCode.STORE}))


# Planted bugs of section 3


async def own_rows_further_back() -> Violations:
    """c1 stopped at the boundary; c2 moved the thread on; c1 comes again."""
    world = World()
    process = world.process()
    c1 = world.send(world.run("approval"))
    first = await answer(process, c1)
    await answer(process, world.send(world.resume()))
    return check(told_the_same=alike(first, await answer(world.process("w1"), c1)))


def look_at_the_latest_row_only(patch: pytest.MonkeyPatch) -> None:
    async def rows(_errand: Errand, latest: Any) -> Any:
        return [latest]

    patch.setattr(Errand, "_rows_up_to", rows)


async def claims_race() -> Violations:
    """Two processes recover one dead thread: one's engine looks before the other's claim, acquires after."""
    world = World()
    c1 = world.send(world.run())
    world.hooks.crashes["b"] = 1
    await world.process().crash(c1)
    other = world.process("w1")
    lagging: Any = Lagging(world.store, lambda: other.handler.handle(c1, Control()), look=2)
    await answer(world.process("w2", store=lagging), c1)
    ran = [node for _, node in world.ran]
    return check(committed_nodes_once=ran == ["a", "b", "b", "c"])


@dataclass(frozen=True)
class Flaw:
    """A scenario, its rule's switch, and what the scenario finds without the rule."""

    scenario: Scenario
    switch: Switch
    found: Violations


FLAWS = {
    "F1 signal": Flaw(f1_signal, without_own(CommandType.SIGNAL), ["told_the_same", "applied_once"]),
    "F1 wake": Flaw(f1_wake, without_own(CommandType.WAKE), ["told_the_same"]),
    "F1 recover": Flaw(f1_recover, without_own(CommandType.RECOVER), ["told_the_same"]),
    "F1 cancel": Flaw(f2_cancel, without_own(CommandType.CANCEL), ["cancelled", "told_the_same"]),
    "F2": Flaw(f2_cancel, without_cancel_marks, ["cancelled", "told_the_same"]),
    "F3 refusal": Flaw(f3_refusal, without_passed, ["refused_again", "nothing_done"]),
    "F3 zombie": Flaw(f3_zombie, without_passed, ["late_one_refused", "resumed_undisturbed"]),
    "F4": Flaw(f4_recovery_by_another, recoveries_as_own_work, ["decision_applied", "completed"]),
    "F5 the last row": Flaw(f5_peer, tell_the_last, ["told_the_same"]),
    "F5 a running row": Flaw(f5_running, running_tells, ["brought_to_its_end"]),
    "F6": Flaw(f6_run_unseen, run_unconditionally, ["one_run", "nodes_once", "told"]),
    "F7": Flaw(f7_lost_answers, saves_without_sequence, ["no_row_twice"]),
    "F9": Flaw(f9_earlier_assignment, late_results_count, ["nothing_late", "one_outcome"]),
    "F12": Flaw(f12_second_send, second_sends_tell, ["not_answered_again"]),
    "F12 behind another": Flaw(f12_behind_another, settled_by_the_latest_offset, ["not_answered_again"]),
    "F13": Flaw(f13_poison, recover_for_ever, ["few_kills", "both_answered"]),
    "F14": Flaw(f14_handovers, stop_right_after_a_claim, ["completed", "nodes_once"]),
    "F15": Flaw(f15_stamp, stamps_without_marks, ["not_refused_after_acting"]),
    "F17": Flaw(f17_held_on_acquire, held_is_an_answer, ["waited_for"]),
    "own rows further back": Flaw(own_rows_further_back, look_at_the_latest_row_only, ["told_the_same"]),
    "unconditional claim": Flaw(claims_race, saves_without_sequence, ["committed_nodes_once"]),
}


@pytest.mark.parametrize("name", FLAWS)
async def test_the_rule_holds(name: str) -> None:
    assert await FLAWS[name].scenario() == []


@pytest.mark.parametrize("name", FLAWS)
async def test_without_the_rule_the_scenario_finds_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FLAWS[name].switch(monkeypatch)
    assert await FLAWS[name].scenario() == FLAWS[name].found
