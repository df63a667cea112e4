"""The verbs on a graph's threads: run, resume, signal, wake, end, cancel, recover.

Owns how each verb puts its checks, its lease and its first row together; the checks are
`preflight`'s, the running `runner`'s. A verb returns what it came to, and raises nothing but
what is no `Exception`; a refused verb has written nothing.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.stores.instants import instant_text
from outcrop.stores.port import EMPTY_LOG
from outcrop.stores.record import Status

from .call import Call, Engine, without_limits
from .clock import SystemClock
from .commit import LogMoved
from .ending import cancel_thread, end_thread, time_out_thread
from .errors import StateError
from .leases import LoopRenewer
from .metadata import RECOVERIES, carried_marks, carried_metadata, is_text, recoveries_of
from .options import Answer, RunOptions, options_refusal, time_refusal
from .outcome import Failed, FailureKind, RefusalCode, Refused
from .position import Position
from .preflight import EndsHere, Preflight
from .recovery import RecoverOptions, RecoverReport, recover_stale
from .run_ids import new_run_id
from .thread_renewer import shared_renewer
from .waits import EventWake, HumanWake
from .wake import WakeOptions, WakeReport, wake_due

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor
    from datetime import datetime

    from outcrop.stores.port import Store
    from outcrop.stores.record import Checkpoint, Json, Row

    from .clock import Clock
    from .compiled import CompiledGraph
    from .leases import LeaseRenewer
    from .outcome import RunResult
    from .waits import Wake

S = TypeVar("S")

_DEFAULTS = RunOptions()
_APPROVED = Answer()
_WAKE_DEFAULTS = WakeOptions()
_RECOVER_DEFAULTS = RecoverOptions()


class Threads(Generic[S]):
    """A graph's threads in a store.

    `executor` is the thread pool of sync nodes (default: one for the whole process). `renewer` renews
    leases: by default one thread for the whole process, or with a clock that isn't the
    machine's, the event loop by that clock.
    """

    def __init__(
        self,
        graph: CompiledGraph[S],
        store: Store,
        *,
        clock: Clock | None = None,
        renewer: LeaseRenewer | None = None,
        executor: Executor | None = None,
        uniform: Callable[[], float] = random.random,
        new_id: Callable[[], str] = new_run_id,
    ) -> None:
        clock = clock or SystemClock()
        default = shared_renewer() if isinstance(clock, SystemClock) else LoopRenewer(clock)
        self._engine = Engine(
            graph=graph,
            store=store,
            clock=clock,
            renewer=renewer or default,
            executor=executor,
            uniform=uniform,
            new_id=new_id,
        )

    @property
    def graph(self) -> CompiledGraph[S]:
        """The graph whose threads these are."""
        return self._engine.graph

    @property
    def store(self) -> Store:
        """The store that keeps them."""
        return self._engine.store

    @property
    def clock(self) -> Clock:
        """The time they go by."""
        return self._engine.clock

    async def run(self, thread_id: str, state: S, options: RunOptions = _DEFAULTS) -> RunResult[S]:
        """Run a thread from the graph's entry.

        Whatever the thread's log holds already, the run's rows follow it, unless
        `options.expected_sequence` says what the log must end with.
        """
        call = self._call(thread_id, options)
        if isinstance(call, Refused):
            return call
        graph = self._engine.graph
        try:
            start = Position(node=graph.entry, state=graph.states.freeze(state))
        except StateError as error:
            message = f"failed to persist state before '{graph.entry}': {error}"
            return Failed(thread_id=thread_id, kind=FailureKind.ABORTED, message=message)
        async with call:
            if (refusal := await self._start(call)) is not None:
                return refusal
            journal = call.journal(options.metadata, expected=options.expected_sequence)
            first = None
            if journal.durable:
                first = journal.row(Status.RUNNING, None, start.node, start.state, hops=0, decision=None)
            return await call.runner(journal).run(start, first=first, moved=_moved(call), is_fresh=True)

    async def resume(
        self,
        thread_id: str,
        answer: Answer = _APPROVED,
        options: RunOptions = _DEFAULTS,
        *,
        boundary: str | None = None,
    ) -> RunResult[S]:
        """Answer the boundary that the thread waits at, or retry a failed or cancelled thread.

        With `boundary`, refused unless that is where the thread waits.
        """
        return await self._answer(thread_id, HumanWake(answer), options, boundary=boundary)

    async def signal(
        self,
        thread_id: str,
        event: str,
        payload: Mapping[str, Json] | None = None,
        options: RunOptions = _DEFAULTS,
    ) -> RunResult[S]:
        """Answer the thread's wait for `event`, laying the payload's fields over its state."""
        if not event.strip() and options_refusal(options) is None:
            message = "a signal needs an event type"
            return Refused(thread_id=thread_id, code=RefusalCode.INVALID, message=message)
        return await self._answer(thread_id, EventWake(event, payload or {}), options)

    async def wake(
        self, thread_id: str, options: RunOptions = _DEFAULTS, *, now: datetime | None = None
    ) -> RunResult[S]:
        """Fire the thread's timer or timeout, if it is due at `now` (default: the clock's)."""
        if now is not None and (refused := options_refusal(options) or time_refusal("a wake's time", now)):
            return Refused(thread_id=thread_id, code=RefusalCode.INVALID, message=refused)
        return await self._answer(thread_id, None, options, now=now)

    async def end(
        self, thread_id: str, *, by: str | None = None, options: RunOptions = _DEFAULTS
    ) -> RunResult[S]:
        """End a waiting, failed, cancelled or abandoned thread for good; again, tells it again."""
        call = self._call(thread_id, without_limits(options))
        if isinstance(call, Refused):
            return call
        async with call:
            return await end_thread(call, by)

    async def cancel(self, thread_id: str, options: RunOptions = _DEFAULTS) -> RunResult[S]:
        """Make a thread that was left `running`, with no live lease, a cancelled one.

        A run of this process is cancelled by its own `cancellation` token instead.
        """
        call = self._call(thread_id, without_limits(options))
        if isinstance(call, Refused):
            return call
        async with call:
            return await cancel_thread(call)

    async def recover(self, thread_id: str, options: RunOptions = _DEFAULTS) -> RunResult[S]:
        """Continue a `running` thread whose process is gone, at the node that it was running."""
        call = self._call(thread_id, options)
        if isinstance(call, Refused):
            return call
        checks = Preflight(self._engine.graph, thread_id)
        if (refusal := checks.durable()) is not None:
            return refusal
        async with call:
            row = await self._found(call, checks)
            if isinstance(row, Refused):
                return row
            start = checks.recover(row.checkpoint)
            if isinstance(start, Refused):
                return start
            if (refusal := await call.claim_running()) is not None:
                return refusal
            return await self._recover(call, row, start)

    async def wake_due(self, options: WakeOptions = _WAKE_DEFAULTS) -> WakeReport[S]:
        """Wake every thread of this graph that is due, one after the other."""
        return await wake_due(self, options)

    async def recover_stale(self, options: RecoverOptions = _RECOVER_DEFAULTS) -> RecoverReport[S]:
        """Recover every thread of this graph whose run is dead, one after the other."""
        return await recover_stale(self, options)

    def _call(self, thread_id: str, options: RunOptions) -> Call[S] | Refused:
        refused = options_refusal(options)
        if refused is None and not is_text(thread_id):
            refused = f"thread ID {thread_id!r} must be text"
        if refused is not None:
            return Refused(thread_id=thread_id, code=RefusalCode.INVALID, message=refused)
        return Call(self._engine, thread_id, options)

    async def _start(self, call: Call[S]) -> Refused | None:
        """Take the lease of a thread whose log ends as expected, in one round trip."""
        expected = call.options.expected_sequence
        if call.options.lease is not None:
            try:
                return await call.take_lease(expected=expected)
            except LogMoved:
                return _moved(call)
        if expected is None or self._engine.is_durable:
            return None  # a durable run's first save will tell
        row = await call.load()
        if isinstance(row, Refused):
            return row
        return None if (EMPTY_LOG if row is None else row.sequence) == expected else _moved(call)

    async def _found(self, call: Call[S], checks: Preflight[S]) -> Row | Refused:
        row = await call.load()
        return row if isinstance(row, Refused) else checks.found(row, call.options.expected_sequence)

    async def _answer(
        self,
        thread_id: str,
        wake: Wake | None,
        options: RunOptions,
        *,
        boundary: str | None = None,
        now: datetime | None = None,
    ) -> RunResult[S]:
        call = self._call(thread_id, options)
        if isinstance(call, Refused):
            return call
        checks = Preflight(self._engine.graph, thread_id)
        async with call:
            row = await self._found(call, checks)
            if isinstance(row, Refused):
                return row
            instant = instant_text(now or self._engine.clock.now())
            verdict = checks.resume(row.checkpoint, wake, now=instant, boundary=boundary)
            if isinstance(verdict, Refused):
                return verdict
            if isinstance(verdict, EndsHere):
                return await time_out_thread(call, row)
            if (refusal := await call.take_lease()) is not None:
                return refusal
            return await self._resume(call, row, verdict)

    async def _resume(self, call: Call[S], row: Row, start: Position) -> RunResult[S]:
        loaded = row.checkpoint
        journal = call.journal(carried_metadata(loaded, call.options.metadata), expected=row.sequence)
        if journal.durable:
            first = journal.row(
                Status.RUNNING,
                loaded.suspended_node,
                start.node,
                start.state,
                hops=start.hops,
                decision=start.decision,
            )
        else:
            first = _stamped(loaded, instant_text(self._engine.clock.now()))
        moved = call.refuse(
            RefusalCode.LOST_RACE,
            f"checkpoint for thread '{call.thread_id}' changed before it could be resumed: "
            "another resume or end got there first",
        )
        return await call.runner(journal).run(start, first=first, moved=moved)

    async def _recover(self, call: Call[S], row: Row, start: Position) -> RunResult[S]:
        loaded = row.checkpoint
        journal = call.journal(
            carried_metadata(loaded, call.options.metadata),
            expected=row.sequence,
            carried=carried_marks(loaded),
        )
        claim = journal.row(
            Status.RUNNING,
            loaded.suspended_node,
            start.node,
            start.state,
            hops=start.hops,
            decision=start.decision,
            extra={RECOVERIES: str(recoveries_of(loaded) + 1)},
        )
        moved = call.refuse(
            RefusalCode.LOST_RACE,
            f"thread '{call.thread_id}' changed before it could be recovered: "
            "its run went on, or another recovery got there first",
        )
        return await call.runner(journal).run(start, first=claim, moved=moved)


def _moved(call: Call[S]) -> Refused:
    """What a run is told whose log doesn't end with what it expected."""
    expected, thread = call.options.expected_sequence, f"thread '{call.thread_id}'"
    if expected == EMPTY_LOG:
        return call.refuse(RefusalCode.EXISTS, f"{thread} has a log already: this run had to be its first")
    return call.refuse(
        RefusalCode.STALE, f"{thread} is not at sequence {expected}: look at it again before running it"
    )


def _stamped(row: Checkpoint, now: str) -> Checkpoint:
    """The row again, marked as resumed: a Boundaries run leaves no other trace of its start."""
    return replace(row, resumed_at=now)
