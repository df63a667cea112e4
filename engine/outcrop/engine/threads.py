"""The verbs on a graph's threads: run, resume, signal, wake, end, cancel, recover, and time travel.

Owns what a caller sees and how a fresh run begins; the other verbs' work is `continuing`'s, `ending`'s
and `time_travel`'s. A verb returns what it came to, and raises nothing but what is no `Exception`;
a refused verb has written nothing.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.stores.port import EMPTY_LOG
from outcrop.stores.record import Status

from .call import Call, Engine, without_limits
from .clock import SystemClock
from .commit import LogMoved
from .continuing import recover_thread, resume_thread
from .ending import cancel_thread, end_thread
from .errors import StateError
from .events import RunMode
from .history import history
from .interrupts import interrupts_refusal
from .leases import LoopRenewer
from .metadata import is_text
from .options import Answer, RunOptions, options_refusal
from .outcome import Failed, FailureKind, RefusalCode, Refused
from .position import Position
from .recovery import RecoverOptions, RecoverReport, recover_stale
from .run_ids import new_run_id
from .thread_renewer import shared_renewer
from .time_travel import fork, rerun, update_state
from .waits import EventWake, HumanWake
from .wake import WakeOptions, WakeReport, wake_due

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Executor
    from datetime import datetime

    from outcrop.stores.port import Store
    from outcrop.stores.record import Json

    from .clock import Clock
    from .compiled import CompiledGraph
    from .history import HistoryEntry
    from .leases import LeaseRenewer
    from .outcome import RunResult
    from .recorder import Telemetry
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
    machine's, the event loop by that clock. `telemetry` watches every run, like
    `outcrop.engine.telemetry.OpenTelemetry`.
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
        telemetry: Telemetry | None = None,
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
            telemetry=telemetry,
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
        `options.expected_sequence` says what the log must end with. A second run of a thread counts
        its hops from 0 again, so its nodes have the idempotency keys of the first: give each run
        a thread of its own.
        """

        async def work(call: Call[S]) -> RunResult[S]:
            return await self._run(call, state)

        return await self._perform(thread_id, options, RunMode.RUN, work)

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
        return await self._answer(thread_id, EventWake(event, payload or {}), options)

    async def wake(
        self, thread_id: str, options: RunOptions = _DEFAULTS, *, now: datetime | None = None
    ) -> RunResult[S]:
        """Fire the thread's timer or timeout, if it is due at `now` (default: the clock's)."""
        return await self._answer(thread_id, None, options, now=now)

    async def end(
        self, thread_id: str, *, by: str | None = None, options: RunOptions = _DEFAULTS
    ) -> RunResult[S]:
        """End a waiting, failed, cancelled or abandoned thread for good; again, tells it again."""
        return await self._perform(
            thread_id, without_limits(options), RunMode.END, lambda call: end_thread(call, by)
        )

    async def cancel(self, thread_id: str, options: RunOptions = _DEFAULTS) -> RunResult[S]:
        """Make a thread that was left `running`, with no live lease, a cancelled one.

        A run of this process is cancelled by its own `cancellation` token instead.
        """
        return await self._perform(thread_id, without_limits(options), RunMode.END, cancel_thread)

    async def recover(self, thread_id: str, options: RunOptions = _DEFAULTS) -> RunResult[S]:
        """Continue a `running` thread whose process is gone, at the node that it was running."""
        return await self._perform(thread_id, options, RunMode.RECOVER, recover_thread)

    async def update_state(
        self,
        thread_id: str,
        values: Mapping[str, Json],
        options: RunOptions = _DEFAULTS,
        *,
        as_node: str | None = None,
        at_sequence: int | None = None,
    ) -> RunResult[S]:
        """Write a row with top-level fields of the outermost state replaced, and run nothing.

        From the latest row, or from that at `at_sequence`, the new row hangs on it. The
        thread waits where it waited, or with `as_node` as if that node had just left this
        state. Resume it to go on. Results of branches that were kept go where a state changes.
        What comes back tells where the thread stands now, so `Failed` on a failed row: its `sequence`
        is None only if nothing was written.
        """
        return await self._perform(
            thread_id,
            without_limits(options),
            RunMode.RESUME,
            lambda call: update_state(call, values, as_node, at_sequence),
        )

    async def fork(self, thread_id: str, at_sequence: int, options: RunOptions = _DEFAULTS) -> RunResult[S]:
        """Make an earlier row the thread's latest again, as a branch, and run nothing.

        What comes back tells where the thread stands now, as in `update_state`.
        """
        return await self._perform(
            thread_id, without_limits(options), RunMode.RESUME, lambda call: fork(call, at_sequence)
        )

    async def rerun(self, thread_id: str, at_sequence: int, options: RunOptions = _DEFAULTS) -> RunResult[S]:
        """Go back to an earlier row, as a branch, and run what follows it again.

        Every node that follows does its work again, under new idempotency keys. Refuses
        (`unanswered`) to pass a boundary, a wait or a timer that the thread still stood at. Hops
        go on from the highest of the whole log: near a limit, raise `max_node_hops` for this run.
        """
        return await self._perform(thread_id, options, RunMode.RESUME, lambda call: rerun(call, at_sequence))

    async def history(self, thread_id: str) -> tuple[HistoryEntry, ...]:
        """The thread's whole log, each row with the one that it hangs on; raises what the store raises."""
        return await history(self._engine.store, thread_id)

    async def wake_due(self, options: WakeOptions = _WAKE_DEFAULTS) -> WakeReport[S]:
        """Wake every thread of this graph that is due, one after the other."""
        return await wake_due(self, options)

    async def recover_stale(self, options: RecoverOptions = _RECOVER_DEFAULTS) -> RecoverReport[S]:
        """Recover every thread of this graph whose run is dead, one after the other."""
        return await recover_stale(self, options)

    async def _perform(
        self,
        thread_id: str,
        options: RunOptions,
        mode: RunMode,
        work: Callable[[Call[S]], Awaitable[RunResult[S]]],
    ) -> RunResult[S]:
        """Do a verb's work inside its call, once it is admitted, and tell what came of it."""
        refused = options_refusal(options) or interrupts_refusal(self._engine.graph, options)
        if refused is None and not is_text(thread_id):
            refused = f"thread ID {thread_id!r} must be text"
        if refused is not None:
            if options.stream is not None:
                options.stream.close()
            return Refused(thread_id=thread_id, code=RefusalCode.INVALID, message=refused)
        async with Call(self._engine, thread_id, options, mode) as call:
            if (kept_out := await call.admit()) is not None:
                return kept_out
            result = await work(call)
            call.record.ended(result)
            return result

    async def _run(self, call: Call[S], state: S) -> RunResult[S]:
        graph, options = self._engine.graph, call.options
        call.record.started(graph.entry, options.metadata)
        try:
            start = Position(node=graph.entry, state=graph.states.freeze(state))
        except StateError as error:
            message = f"failed to persist state before '{graph.entry}': {error}"
            return Failed(thread_id=call.thread_id, kind=FailureKind.ABORTED, message=message)
        if (refusal := await self._start(call)) is not None:
            return refusal
        journal = call.journal(options.metadata, expected=options.expected_sequence)
        runner, first = call.runner(journal), None
        if journal.durable:
            first = runner.rows.row(Status.RUNNING, None, start.node, start)
        return await runner.run(start, first=first, moved=_moved(call), is_fresh=True)

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

    async def _answer(
        self,
        thread_id: str,
        wake: Wake | None,
        options: RunOptions,
        *,
        boundary: str | None = None,
        now: datetime | None = None,
    ) -> RunResult[S]:
        async def work(call: Call[S]) -> RunResult[S]:
            return await resume_thread(call, wake, boundary, now)

        return await self._perform(thread_id, options, RunMode.RESUME, work)


def _moved(call: Call[S]) -> Refused:
    """What a run is told whose log doesn't end with what it expected."""
    expected, thread = call.options.expected_sequence, f"thread '{call.thread_id}'"
    if expected == EMPTY_LOG:
        return call.refuse(RefusalCode.EXISTS, f"{thread} has a log already: this run had to be its first")
    return call.refuse(
        RefusalCode.STALE, f"{thread} is not at sequence {expected}: look at it again before running it"
    )
