"""The worker's heart: messages in, lanes, outcomes out, offsets after them.

Owns the assignments and the order of events: an outcome is published before its offset
is committed, and what ends after its assignment closed adds neither. Knows no client
library and nothing of what a command means.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from outcrop.engine.clock import sleep

from .assignment import Assignment, Entry
from .backpressure import Backpressure
from .control import Handled
from .errors import WorkerError
from .lanes import Lanes, Overtakes
from .logs import EventLog
from .offsets import Admission
from .slots import Slots

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from outcrop.engine.clock import Clock

    from .control import MessageHandler
    from .metrics import Metrics
    from .ports import Assigned, CommandLog, Message, Partition, Position
    from .publisher import Publisher

_LONGEST_PAUSE = 5.0  # seconds between commits that fail
_log = EventLog("worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much at once, and how long."""

    concurrency: int = 64
    max_buffered: int = 2000
    commit_interval: timedelta = timedelta(milliseconds=50)
    handover_timeout: timedelta = timedelta(seconds=10)


class Worker:
    """One member of the group; a `LogListener`."""

    def __init__(
        self,
        log: CommandLog,
        publisher: Publisher,
        handler: MessageHandler,
        *,
        overtakes: Overtakes,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._source = log
        self._publisher = publisher
        self._handler = handler
        self._commit_interval = limits.commit_interval.total_seconds()
        self._handover_timeout = limits.handover_timeout.total_seconds()
        self._clock = clock
        self._metrics = metrics
        self._slots = Slots(limits.concurrency)
        self._lanes = Lanes(self._work, overtakes)
        self._backpressure = Backpressure(limits.max_buffered)
        self._assignments: dict[Partition, Assignment] = {}
        self._released: list[Assignment] = []  # handed over with runs that go on
        self._numbers = itertools.count(1)
        self._dirty = asyncio.Event()
        self._failure: asyncio.Future[None] | None = None
        self._committer: asyncio.Task[None] | None = None

    @property
    def partitions(self) -> frozenset[Partition]:
        """What this member owns now."""
        return frozenset(self._assignments)

    async def start(self) -> None:
        """Join the group and handle what comes, until `stop`."""
        self._failure = asyncio.get_running_loop().create_future()
        self._committer = asyncio.create_task(self._commit_for_ever())
        await self._source.start(self)

    async def failed(self) -> None:
        """Wait until the worker can't go on; raises why."""
        if self._failure is None:
            raise WorkerError("the worker wasn't started")
        await asyncio.shield(self._failure)

    async def stop(self, within: timedelta) -> bool:
        """Hand everything over in that time and leave the group; False if runs were cut off."""
        self._handover_timeout = within.total_seconds()
        await asyncio.gather(self._source.close(), self._settle(self._released))
        left = [*self._released, *self._assignments.values()]
        cut_off = sum(assignment.in_hand for assignment in left)
        for assignment in self._released:
            assignment.close()
        self.on_lost(self.partitions)  # nothing is left after an orderly close
        if self._committer is not None:
            self._committer.cancel()
            await asyncio.wait([self._committer])
        for task in self._lanes.tasks:
            task.cancel()
        if self._lanes.tasks:
            await asyncio.wait(self._lanes.tasks, timeout=1)
        return not cut_off

    def on_assigned(self, assigned: Assigned) -> None:
        """Open an assignment for each partition."""
        self._close(assigned.positions)  # one that came again without having gone is another stay
        for partition, position in assigned.positions.items():
            self._assignments[partition] = Assignment(partition, next(self._numbers), position)
            _log.info("partition.assigned", topic=partition.topic, partition=partition.number)
        self._metrics.count("outcrop_rebalances_total", kind="assigned")
        self._regulate()

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Queue messages in their threads' lanes."""
        self._metrics.count("outcrop_messages_fetched_total", len(messages))
        for message in messages:
            assignment = self._assignments.get(message.partition)
            if assignment is None or not assignment.accepting:
                continue
            assignment.held.append(message)
            self._admit(assignment)
        self._regulate()

    async def on_revoked(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        """Hand partitions over within the handover timeout; returns their final positions."""
        going = [self._assignments[p] for p in partitions if p in self._assignments]
        self._metrics.count("outcrop_rebalances_total", kind="revoked")
        for assignment in going:
            assignment.hand_over()
            self._lanes.drop(assignment)
        await self._settle(going)
        standing = [assignment for assignment in going if assignment.open]
        for assignment in standing:
            self._release(assignment)
        self._regulate()
        _log.info("partitions.revoked", count=len(going))
        return {a.partition: position for a in standing if (position := a.tracker.position())}

    def on_lost(self, partitions: Collection[Partition]) -> None:
        """Drop everything of partitions that are gone."""
        lost = [p for p in partitions if p in self._assignments]
        if lost:
            self._metrics.count("outcrop_rebalances_total", kind="lost")
            _log.warning("partitions.lost", count=len(lost))
            self._close(lost)

    def on_failed(self, error: Exception) -> None:
        """Remember the first thing that keeps the worker from going on."""
        if self._failure is not None and not self._failure.done():
            _log.error("worker.failed", reason=str(error), kind=type(error).__name__)
            self._failure.set_exception(error)
            self._failure.exception()  # `failed` may never be awaited

    async def _settle(self, going: Sequence[Assignment]) -> None:
        """Wait until the assignments are idle, or the handover's time is up."""
        if not any(assignment.in_hand for assignment in going):
            return
        idle = asyncio.create_task(_all_idle(going))
        patience = asyncio.create_task(sleep(self._clock, self._handover_timeout))
        await asyncio.wait((idle, patience), return_when=asyncio.FIRST_COMPLETED)
        for waiting in (idle, patience):
            waiting.cancel()
        await asyncio.wait((idle, patience))

    def _release(self, assignment: Assignment) -> None:
        """Let a partition go; a run that took too long keeps its lease, and its command waits elsewhere."""
        del self._assignments[assignment.partition]
        assignment.release()
        self._released = [earlier for earlier in self._released if earlier.in_hand]
        if assignment.in_hand:
            self._released.append(assignment)
            self._metrics.count("outcrop_handovers_overdue_total", assignment.in_hand)
            _log.warning("handover.overdue", partition=assignment.partition.number, runs=assignment.in_hand)

    def _close(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            assignment = self._assignments.pop(partition, None)
            if assignment is not None:
                assignment.close()
                self._lanes.drop(assignment)
        self._regulate()

    def _admit(self, assignment: Assignment) -> None:
        """Move held messages into lanes while their partition isn't full."""
        while assignment.held:
            message = assignment.held[0]
            admission = assignment.tracker.admit(message.offset)
            if admission is Admission.HOLD:
                return
            assignment.held.popleft()
            if admission is Admission.SKIP:
                self._metrics.count("outcrop_messages_skipped_total")
                self._dirty.set()
                continue
            stopped = self._lanes.add(assignment.enter(message, self._slots))
            self._metrics.count("outcrop_overtakes_total", stopped)

    async def _work(self, entry: Entry) -> bool:
        """Handle one message to its end; False where its lane must not go on."""
        stay = entry.assignment
        try:
            await entry.slot.take(unless=(stay.stop, stay.abandon))
            if not stay.accepting:
                return False
            result = await self._handler.handle(entry.message, entry.control)
            entry.slot.free()
            if isinstance(result, Handled):
                return await self._finish(entry, result)
            if stay.accepting:
                raise WorkerError("a message was left unfinished though nothing asked for it")  # noqa: TRY301 - reported below
            self._metrics.count("outcrop_messages_unfinished_total")
        except Exception as error:  # noqa: BLE001 - nothing here may raise; a bug must stop the worker, not a lane
            self.on_failed(error)
        finally:
            entry.slot.free()
        return False

    async def _finish(self, entry: Entry, result: Handled) -> bool:
        """Publish the result, then count the message as done, if its assignment still stands."""
        assignment = entry.assignment
        if not assignment.open:
            self._metrics.count("outcrop_results_late_total")
            return False
        await self._publisher.publish(result.records, source=entry.message, unless=assignment.over)
        if not assignment.open:
            return False
        assignment.tracker.finish(entry.message.offset)
        self._metrics.count("outcrop_messages_finished_total")
        assignment.leave(entry)
        self._dirty.set()
        self._admit(assignment)
        self._regulate()
        return True

    async def _commit_for_ever(self) -> None:
        pause = self._commit_interval
        while True:
            await self._dirty.wait()
            await sleep(self._clock, pause)
            self._dirty.clear()
            pause = self._commit_interval if await self._commit() else min(pause * 2, _LONGEST_PAUSE)

    async def _commit(self) -> bool:
        """Commit what changed; what a handover has begun on is committed by the handover."""
        stays = [assignment for assignment in self._assignments.values() if assignment.accepting]
        changed = {a: p for a in stays if (p := a.tracker.position()) and p != a.committed}
        if not changed:
            return True
        try:
            await self._source.commit({assignment.partition: p for assignment, p in changed.items()})
        except WorkerError as error:
            self._metrics.count("outcrop_commits_total", result="failed")
            _log.warning("commit.failed", reason=str(error))
            self._dirty.set()
            return False
        self._metrics.count("outcrop_commits_total", result="done")
        for assignment, position in changed.items():
            assignment.committed = position
        return True

    def _regulate(self) -> None:
        """Pause and resume partitions by how much is in the process."""
        stays = self._assignments.values()
        buffered = sum(assignment.buffered for assignment in stays)
        flow = self._backpressure.decide(
            buffered, {a.partition: a.tracker.unfinished + len(a.held) for a in stays}
        )
        if flow.pause:
            self._source.pause(flow.pause)
        if flow.resume:
            self._source.resume(flow.resume)
        self._metrics.gauge("outcrop_partitions", len(self._assignments))
        self._metrics.gauge("outcrop_messages_buffered", buffered)
        self._metrics.gauge("outcrop_partitions_paused", len(self._backpressure.paused))
        self._metrics.gauge("outcrop_slots_taken", self._slots.taken)


async def _all_idle(assignments: Sequence[Assignment]) -> None:
    for assignment in assignments:
        await assignment.idle()
