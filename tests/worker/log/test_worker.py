"""The worker over an in-memory log: lanes, order of publish and commit, handover, late results."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from outcrop.engine.clock import ManualClock
from outcrop.worker.control import Control, Handled, Unfinished
from outcrop.worker.errors import Undelivered, WorkerError
from outcrop.worker.metrics import Metrics
from outcrop.worker.offsets import MAX_UNFINISHED
from outcrop.worker.ports import Message, Partition, Position, Record
from outcrop.worker.publisher import Publisher
from outcrop.worker.worker import Limits, Worker
from support.log import P0, MemoryBroker, MemoryLog, MemoryOutbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Steered:
    """A handler whose messages end when the test says so."""

    started: list[Message] = field(default_factory=list[Message])
    controls: dict[int, Control] = field(default_factory=dict[int, Control])
    gates: dict[int, asyncio.Future[Handled | Unfinished]] = field(default_factory=dict)
    at_once: bool = False
    hands_over: bool = True
    order: dict[bytes | None, list[int]] = field(default_factory=lambda: defaultdict(list))

    async def handle(self, message: Message, control: Control) -> Handled | Unfinished:
        self.started.append(message)
        self.order[message.key].append(message.offset)
        self.controls[message.offset] = control
        if self.at_once:
            return outcome(message)
        gate: asyncio.Future[Handled | Unfinished] = asyncio.get_running_loop().create_future()
        self.gates[message.offset] = gate
        if self.hands_over:
            control.stop.on_fire(lambda: give_up(gate))
        control.abandon.on_fire(lambda: give_up(gate))
        return await gate

    def finish(self, message: Message) -> None:
        self.gates[message.offset].set_result(outcome(message))

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message in self.started]


def give_up(gate: asyncio.Future[Handled | Unfinished]) -> None:
    if not gate.done():
        gate.set_result(Unfinished())


def outcome(message: Message) -> Handled:
    return Handled((Record("threads.outcomes", message.key, str(message.offset).encode()),))


@dataclass
class Rig:
    broker: MemoryBroker
    log: MemoryLog
    outbox: MemoryOutbox
    worker: Worker
    handler: Steered
    clock: ManualClock
    metrics: Metrics

    async def commit(self) -> None:
        await self.broker.settle()
        self.clock.advance(0.05)
        await self.broker.settle()

    def answered(self, message: Message) -> bool:
        return message.offset in self.answers

    @property
    def answers(self) -> list[int]:
        return [int(record.value or b"-1") for record in self.broker.published]


def make(
    broker: MemoryBroker, handler: Steered | None = None, *, concurrency: int = 4, max_buffered: int = 1000
) -> Rig:
    log = MemoryLog(broker)
    outbox, clock, metrics = MemoryOutbox(broker, log), ManualClock(), Metrics()
    handler = handler or Steered()
    worker = Worker(
        log,
        Publisher(outbox, dead="threads.dead", clock=clock, metrics=metrics),
        handler,
        overtakes=lambda message: "c-9" if message.value == b"cancel" else None,
        limits=Limits(
            concurrency=concurrency,
            max_buffered=max_buffered,
            commit_interval=timedelta(milliseconds=50),
            handover_timeout=timedelta(seconds=10),
        ),
        clock=clock,
        metrics=metrics,
    )
    return Rig(broker, log, outbox, worker, handler, clock, metrics)


@asynccontextmanager
async def running(
    broker: MemoryBroker, handler: Steered | None = None, *, concurrency: int = 4, max_buffered: int = 1000
) -> AsyncIterator[Rig]:
    rig = make(broker, handler, concurrency=concurrency, max_buffered=max_buffered)
    await rig.worker.start()
    try:
        yield rig
    finally:
        rig.log.lose()
        await rig.worker.stop(timedelta(0))


async def test_one_thread_in_order_and_threads_side_by_side() -> None:
    broker = MemoryBroker()
    first, second, other = broker.append(b"t1"), broker.append(b"t1"), broker.append(b"t2")
    async with running(broker) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.started) == 2)
        assert rig.handler.offsets == [first.offset, other.offset]
        rig.handler.finish(first)
        await broker.until(lambda: second in rig.handler.started)


async def test_messages_without_a_key_are_lanes_of_their_own() -> None:
    broker = MemoryBroker()
    broker.append(None), broker.append(b""), broker.append(None)
    async with running(broker) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.started) == 3)


async def test_a_thread_waits_for_its_predecessors_publication() -> None:
    broker = MemoryBroker()
    first, second = broker.append(b"t1"), broker.append(b"t1")
    async with running(broker) as rig:
        seen: list[int] = []
        rig.outbox.before = lambda _: seen.append(len(rig.handler.started))
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: bool(rig.handler.gates))
        rig.handler.finish(first)
        await broker.until(lambda: second in rig.handler.started)
        assert seen == [1]


async def test_concurrency_bounds_the_runs_and_parking_frees_a_place() -> None:
    broker = MemoryBroker()
    for index in range(3):
        broker.append(f"t{index}".encode())
    async with running(broker, concurrency=2) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.settle()
        assert rig.handler.offsets == [0, 1]
        parked = rig.handler.controls[0].parked()
        await parked.__aenter__()
        await broker.until(lambda: rig.handler.offsets == [0, 1, 2])
        back = asyncio.create_task(parked.__aexit__(None, None, None))
        await broker.settle()
        assert not back.done()
        rig.handler.finish(rig.handler.started[1])
        await broker.until(back.done)
        assert rig.handler.offsets == [0, 1, 2]


async def test_a_parked_handler_of_a_revoked_partition_waits_for_no_place() -> None:
    broker = MemoryBroker()
    for index in range(2):
        broker.append(f"t{index}".encode())
    async with running(broker, Steered(hands_over=False), concurrency=1) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.settle()
        parked = rig.handler.controls[0].parked()
        await parked.__aenter__()
        await broker.until(lambda: rig.handler.offsets == [0, 1])
        back = asyncio.create_task(parked.__aexit__(None, None, None))
        revoked = asyncio.create_task(rig.log.revoke())
        await broker.until(back.done)
        rig.clock.advance(10)
        await revoked


async def test_cancel_reaches_everything_in_front_of_it_and_nothing_else() -> None:
    broker = MemoryBroker()
    front, queued, cancel = broker.append(b"t1"), broker.append(b"t1"), broker.append(b"t1", b"cancel")
    behind, other = broker.append(b"t1"), broker.append(b"t2")
    async with running(broker) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.started) == 2)
        assert rig.handler.controls[front.offset].cancel.cause == "c-9"
        assert not rig.handler.controls[other.offset].cancel.fired
        for message in (front, queued, cancel):
            rig.handler.finish(message)
            await broker.until(partial(rig.answered, message))
        await broker.until(lambda: behind in rig.handler.started)
        fired = {offset: control.cancel.fired for offset, control in rig.handler.controls.items()}
        assert fired == {0: True, 1: True, 2: False, 3: False, 4: False}


async def test_an_outcome_is_published_before_its_offset_is_committed() -> None:
    """Planted bug: commit before publish."""
    broker = MemoryBroker()
    broker.append(b"t1")
    async with running(broker, Steered(at_once=True)) as rig:
        rig.log.assign()
        rig.log.deliver()
        await rig.commit()
        assert broker.history == ["publish threads.outcomes", "commit threads.commands/0 1"]


async def test_the_position_waits_for_the_slowest_thread() -> None:
    broker = MemoryBroker()
    slow, fast = broker.append(b"slow"), broker.append(b"fast")
    async with running(broker) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.gates) == 2)
        rig.handler.finish(fast)
        await rig.commit()
        assert broker.committed[P0].offset == slow.offset
    async with running(broker) as second:
        second.log.assign()
        second.log.deliver()
        await broker.settle()
        assert second.handler.offsets == [slow.offset]


async def test_unpublished_is_uncommitted() -> None:
    broker = MemoryBroker()
    broker.append(b"t1")
    async with running(broker, Steered(at_once=True)) as rig:
        tries: list[int] = []

        def unreachable(record: Record) -> Undelivered | None:
            tries.append(1)
            return Undelivered(record, "timed out", permanent=False) if len(tries) < 3 else None

        rig.outbox.refuse = unreachable
        rig.log.assign()
        rig.log.deliver()
        await rig.commit()
        assert P0 not in broker.committed
        rig.clock.advance(0.2)
        await broker.until(lambda: len(tries) == 2)
        await broker.settle()
        rig.clock.advance(0.4)
        await broker.until(lambda: rig.answers == [0])
        await rig.commit()
        assert broker.committed[P0] == Position(1)


async def test_what_can_never_be_published_becomes_a_dead_letter_without_value() -> None:
    broker = MemoryBroker()
    broker.append(b"t1")
    async with running(broker, Steered(at_once=True)) as rig:
        rig.outbox.refuse = lambda record: (
            Undelivered(record, "too large", permanent=True) if record.topic != "threads.dead" else None
        )
        rig.log.assign()
        rig.log.deliver()
        await broker.settle()
        rig.clock.advance(1)
        await broker.until(lambda: bool(broker.published))
        (letter,) = broker.published
        assert (letter.topic, letter.key, letter.value) == ("threads.dead", b"t1", None)
        told = dict(letter.headers)
        assert told["outcrop-error-kind"] == b"undeliverable"
        assert told["outcrop-error"].endswith(b": too large")
        assert (told["outcrop-source-topic"], told["outcrop-source-offset"]) == (P0.topic.encode(), b"0")
        await rig.commit()
        assert broker.committed[P0] == Position(1)


async def test_a_dead_letter_that_its_topic_does_not_take_goes_without_its_value() -> None:
    """The dead-letter topic may take less than `dead_letter_limit`; the partition goes on all the same."""

    class Dying(Steered):
        async def handle(self, message: Message, control: Control) -> Handled | Unfinished:
            del control
            return Handled((Record("threads.dead", message.key, b"v" * 100, (("why", b"bad"),)),))

    broker = MemoryBroker()
    broker.append(b"t1")
    async with running(broker, Dying()) as rig:
        rig.outbox.refuse = lambda record: (
            Undelivered(record, "too large", permanent=True) if record.value is not None else None
        )
        rig.log.assign()
        rig.log.deliver()
        await broker.settle()
        rig.clock.advance(1)
        await broker.until(lambda: bool(broker.published))
        assert broker.published == [Record("threads.dead", b"t1", None, (("why", b"bad"),))]


async def test_revocation_hands_over_and_commits_what_is_done() -> None:
    broker = MemoryBroker()
    done, flying = broker.append(b"t1"), broker.append(b"t2")
    broker.append(b"t2")
    async with running(broker) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.gates) == 2)
        rig.handler.finish(done)
        await broker.until(lambda: bool(rig.answers))
        await rig.log.revoke()
        assert rig.handler.controls[flying.offset].stop.fired
        assert rig.metrics.value("outcrop_handovers_overdue_total") == 0
        assert broker.committed[P0] == Position(1)
        assert rig.handler.offsets == [0, 1]
        assert rig.worker.partitions == frozenset()


async def test_a_run_that_finishes_within_the_handover_is_published_and_committed() -> None:
    broker = MemoryBroker()
    message = broker.append(b"t1")
    async with running(broker, Steered(hands_over=False)) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: bool(rig.handler.gates))
        revoked = asyncio.create_task(rig.log.revoke())
        await broker.settle()
        assert not revoked.done()
        rig.handler.finish(message)
        await revoked
        assert broker.history == ["publish threads.outcomes", "commit threads.commands/0 1"]


async def overdue(rig: Rig) -> Message:
    """A run that outlasts the handover of its partition."""
    message = rig.broker.append(b"t1")
    rig.log.assign()
    rig.log.deliver()
    await rig.broker.until(lambda: bool(rig.handler.gates))
    revoked = asyncio.create_task(rig.log.revoke())
    await rig.broker.settle()
    rig.clock.advance(9.9)
    await rig.broker.settle()
    assert not revoked.done()
    rig.clock.advance(0.2)
    await revoked
    return message


async def test_a_run_that_outlasts_its_handover_goes_on_under_its_lease() -> None:
    """worker.md section 8: it isn't cut off, it stops at its next commit, and it counts for nothing."""
    broker = MemoryBroker()
    async with running(broker, Steered(hands_over=False)) as rig:
        message = await overdue(rig)
        control = rig.handler.controls[message.offset]
        assert not control.abandon.fired
        assert control.stop.fired
        assert broker.committed[P0] == Position(0)
        assert rig.metrics.value("outcrop_handovers_overdue_total") == 1
        rig.handler.finish(message)
        await rig.commit()
        assert broker.published == []
        assert broker.committed[P0] == Position(0)


async def test_stopping_waits_for_a_run_that_outlasted_its_handover() -> None:
    broker = MemoryBroker()
    rig = make(broker, Steered(hands_over=False))
    await rig.worker.start()
    message = await overdue(rig)
    stopping = asyncio.create_task(rig.worker.stop(timedelta(seconds=5)))
    rig.clock.advance(4)
    await broker.settle()
    assert not stopping.done()
    rig.handler.finish(message)
    assert await stopping


async def test_stopping_cuts_off_a_run_that_outlasted_its_handover_when_its_own_time_is_up() -> None:
    broker = MemoryBroker()
    rig = make(broker, Steered(hands_over=False))
    await rig.worker.start()
    message = await overdue(rig)
    stopping = asyncio.create_task(rig.worker.stop(timedelta(seconds=5)))
    await broker.settle()
    rig.clock.advance(5.1)
    assert not await stopping
    assert rig.handler.controls[message.offset].abandon.fired


class Stubborn(Steered):
    """Ends only when the test says so, whatever fires."""

    async def handle(self, message: Message, control: Control) -> Handled | Unfinished:
        del control
        self.started.append(message)
        gate: asyncio.Future[Handled | Unfinished] = asyncio.get_running_loop().create_future()
        self.gates[len(self.started)] = gate
        return await gate


async def late_result(broker: MemoryBroker) -> Rig:
    """A run outlives its handover, the partition comes back, and both handlers end."""
    message = broker.append(b"t1")
    async with running(broker, Stubborn()) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.gates) == 1)
        revoked = asyncio.create_task(rig.log.revoke())
        await broker.settle()
        rig.clock.advance(11)
        await revoked
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.gates) == 2)
        rig.handler.gates[1].set_result(outcome(message))
        await rig.commit()
        rig.handler.gates[2].set_result(outcome(message))
        await rig.commit()
    return rig


async def test_a_result_of_an_earlier_assignment_counts_for_nothing() -> None:
    """F9."""
    broker = MemoryBroker()
    rig = await late_result(broker)
    assert rig.answers == [0]
    assert rig.metrics.value("outcrop_results_late_total") == 1
    assert broker.committed[P0] == Position(1)


async def test_without_the_assignment_rule_both_would_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """F9 switched off."""
    monkeypatch.setattr("outcrop.worker.assignment.Assignment.open", property(lambda _: True))
    assert (await late_result(MemoryBroker())).answers == [0, 0]


async def test_lost_partitions_commit_nothing_and_abandon_their_runs() -> None:
    broker = MemoryBroker()
    done, flying = broker.append(b"t1"), broker.append(b"t2")
    async with running(broker) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: len(rig.handler.gates) == 2)
        rig.handler.finish(done)
        await broker.until(lambda: bool(rig.answers))
        rig.log.lose()
        await rig.commit()
        assert rig.handler.controls[flying.offset].abandon.fired
        assert broker.commits == []


async def test_a_member_fenced_without_knowing_keeps_trying_and_is_refused() -> None:
    broker = MemoryBroker()
    broker.append(b"t1")
    async with running(broker, Steered(at_once=True)) as rig:
        rig.log.assign()
        rig.log.zombie()
        rig.log.deliver()
        await rig.commit()
        assert broker.commits == []
        assert rig.metrics.value("outcrop_commits_total", result="failed") >= 1


async def test_a_crash_between_publish_and_commit_delivers_again() -> None:
    broker = MemoryBroker()
    broker.append(b"t1")
    async with running(broker, Steered(at_once=True)) as rig:
        rig.outbox.after = lambda _: rig.log.crash()
        rig.log.assign()
        rig.log.deliver()
        await rig.commit()
        assert rig.answers == [0]
    async with running(broker, Steered(at_once=True)) as second:
        second.log.assign()
        second.log.deliver()
        await second.commit()
        assert second.answers == [0, 0]
        assert broker.committed[P0] == Position(1)


async def test_backpressure_pauses_and_resumes_below_half() -> None:
    broker = MemoryBroker(2)
    for index in range(20):
        broker.append(f"t{index}".encode(), partition=index % 2)
    async with running(broker, max_buffered=10, concurrency=20) as rig:
        rig.log.assign()
        assert rig.log.deliver(10) == 10
        assert rig.log.paused == {Partition("threads.commands", 0), Partition("threads.commands", 1)}
        assert rig.log.deliver() == 0
        await broker.until(lambda: len(rig.handler.started) == 10)
        for message in rig.handler.started[:5]:
            rig.handler.finish(message)
        await broker.settle()
        assert rig.log.paused
        rig.handler.finish(rig.handler.started[5])
        await broker.until(lambda: not rig.log.paused)


async def test_a_partition_stops_at_what_a_commit_can_tell() -> None:
    broker = MemoryBroker(2)
    for index in range(MAX_UNFINISHED + 100):
        broker.append(f"t{index}".encode())
    async with running(broker, concurrency=1000, max_buffered=5000) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.settle()
        assert rig.log.paused == {P0}
        assert len(rig.handler.started) == MAX_UNFINISHED
        rig.handler.finish(rig.handler.started[7])
        await broker.until(lambda: len(rig.handler.started) == MAX_UNFINISHED + 1)


async def test_stop_hands_over_and_says_whether_it_was_clean() -> None:
    broker = MemoryBroker()
    broker.append(b"t1")
    rig = make(broker)
    await rig.worker.start()
    rig.log.assign()
    rig.log.deliver()
    await broker.until(lambda: bool(rig.handler.gates))
    assert await rig.worker.stop(timedelta(seconds=1))
    assert rig.log.closed
    assert broker.committed[P0] == Position(0)


async def test_stop_cuts_off_what_does_not_end() -> None:
    broker = MemoryBroker()
    broker.append(b"t1")
    rig = make(broker, Stubborn())
    await rig.worker.start()
    rig.log.assign()
    rig.log.deliver()
    await broker.until(lambda: bool(rig.handler.gates))
    stopping = asyncio.create_task(rig.worker.stop(timedelta(seconds=1)))
    await broker.settle()
    rig.clock.advance(1.1)
    assert not await stopping


async def test_an_exception_of_the_handler_stops_the_worker() -> None:
    class Broken(Steered):
        async def handle(self, message: Message, control: Control) -> Handled | Unfinished:
            del message, control
            raise RuntimeError("a bug")

    broker = MemoryBroker()
    broker.append(b"t1")
    async with running(broker, Broken()) as rig:
        rig.log.assign()
        rig.log.deliver()
        with pytest.raises(RuntimeError, match="a bug"):
            await rig.worker.failed()


async def test_unfinished_without_a_reason_stops_the_worker() -> None:
    broker = MemoryBroker()
    message = broker.append(b"t1")
    async with running(broker) as rig:
        rig.log.assign()
        rig.log.deliver()
        await broker.until(lambda: bool(rig.handler.gates))
        rig.handler.gates[message.offset].set_result(Unfinished())
        with pytest.raises(WorkerError, match="unfinished"):
            await rig.worker.failed()
