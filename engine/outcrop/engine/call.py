"""One call of a verb: its token, deadline, slot and lease, set up before the thread is touched.

Owns what must be undone however the call ends: the deadline's timer, the link to the
caller's token, the scheduler's slot, the stream, and the lease, which a finished call releases
and a dropped one leaves to expire. Knows no verb's rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from outcrop.stores.errors import LeasesUnsupported
from outcrop.stores.instants import instant_text_rounded_up
from outcrop.stores.port import Held, NotLatest

from .cancellation import CancelReason, CancelToken, is_dropped, task_cancels
from .commit import Journal, LogMoved
from .failpoints import failpoint
from .leases import take_lease
from .open_notes import OpenNotes
from .options import CheckpointPolicy
from .outcome import Failed, FailureKind, RefusalCode, Refused
from .rows import LevelRows
from .run import Run
from .run_record import RunRecord
from .runner import Runner
from .scheduler import NotAdmitted, admit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor
    from types import TracebackType

    from outcrop.stores.port import Store
    from outcrop.stores.record import Lease, Note, Row

    from .clock import Clock, Timer
    from .compiled import CompiledGraph
    from .events import RunMode
    from .leases import LeaseRenewer, Tenure
    from .options import RunOptions
    from .recorder import Telemetry
    from .scheduler import Admission

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Generic[S]):
    """What every call of one `Threads` works with."""

    graph: CompiledGraph[S]
    store: Store
    clock: Clock
    renewer: LeaseRenewer
    executor: Executor | None
    uniform: Callable[[], float]
    new_id: Callable[[], str]
    telemetry: Telemetry | None

    @property
    def is_durable(self) -> bool:
        """Whether runs write a row after every node."""
        return self.graph.policy is CheckpointPolicy.EVERY_NODE


class Call(Generic[S]):
    """An async context around one verb on one thread."""

    def __init__(self, engine: Engine[S], thread_id: str, options: RunOptions, mode: RunMode) -> None:
        self.engine = engine
        self.thread_id = thread_id
        self.options = options
        self.token = CancelToken()
        self.run_id = options.run_id or engine.new_id()
        self.record = RunRecord.of(engine, thread_id, self.run_id, options, mode)
        self._admission: Admission | None = None
        self._tenure: Tenure | None = None
        self._timer: Timer | None = None
        self._withdraw: Callable[[], None] | None = None
        self._cancels_before = 0

    async def __aenter__(self) -> Call[S]:
        self._cancels_before = task_cancels()
        asked, deadline = self.options.cancellation, self.options.deadline
        if asked is not None:
            self._withdraw = asked.on_fire(
                lambda: self.token.fire(asked.reason or CancelReason.REQUESTED, asked.cause)
            )
        if deadline is not None:
            left = (deadline - self.engine.clock.now()).total_seconds()
            if left <= 0:
                self.token.fire(CancelReason.DEADLINE)
            else:
                self._timer = self.engine.clock.call_later(
                    left, lambda: self.token.fire(CancelReason.DEADLINE)
                )
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._withdraw is not None:
            self._withdraw()
        if self._timer is not None:
            self._timer.cancel()
        if self.options.stream is not None:
            self.options.stream.close()
        dropped = error is not None and is_dropped(error, self._cancels_before)
        if error is not None:
            self.record.died(error, dropped=dropped)
        try:
            if self._tenure is not None:
                await _leave(self._tenure, dropped=dropped)
        finally:  # not before the lease: the next run that gets the slot may be of this thread
            if self._admission is not None:
                self._admission.release()

    async def admit(self) -> Failed | None:
        """Wait for a slot of the scheduler, if the call has one; its refusal is the call's result."""
        options = self.options
        admitted = options.admission or await admit(options, options.metadata, options.stop)
        if admitted is None:
            return None
        if isinstance(admitted, NotAdmitted):
            return Failed(thread_id=self.thread_id, kind=FailureKind.NOT_ADMITTED, message=admitted.message)
        self._admission = admitted
        self.record.queued_for = admitted.waited.total_seconds()
        return None

    def refuse(self, code: RefusalCode, message: str, *, held_by: Lease | None = None) -> Refused:
        """A refusal of this call's thread."""
        return Refused(thread_id=self.thread_id, code=code, message=message, held_by=held_by)

    async def load(self) -> Row | Refused | None:
        """The thread's latest row; a store that fails refuses the call."""
        started = self.engine.clock.monotonic()
        try:
            row = await self.engine.store.load(self.thread_id)
        except Exception as error:  # noqa: BLE001 - a verb tells what its store said, and raises nothing
            self.record.started_nowhere(self.options.metadata)
            return self.refuse(RefusalCode.STORE, str(error))
        self.record.loaded(started, row)
        return row

    async def notes(self, row: Row) -> tuple[Note, ...] | Refused:
        """What stands beside the row."""
        try:
            return (await self.engine.store.get_notes([row])).get(row.sequence, ())
        except Exception as error:  # noqa: BLE001 - the same
            self.record.started_nowhere(self.options.metadata)
            return self.refuse(RefusalCode.STORE, str(error))

    async def take_lease(self, *, expected: int | None = None) -> Refused | None:
        """Take the thread's lease if the call is to run under one, unless it has it already.

        With `expected`, only while the log ends there: raises `LogMoved`.
        """
        if self.options.lease is None or self._tenure is not None:
            return None
        engine = self.engine
        try:
            taken = await take_lease(
                engine.store,
                self.thread_id,
                self.options.lease,
                clock=engine.clock,
                renewer=engine.renewer,
                on_lost=self._lose,
                expected=expected,
            )
        except Exception as error:  # noqa: BLE001 - the same
            return self.refuse(RefusalCode.STORE, str(error))
        if isinstance(taken, Held):
            return self._held(taken.lease)
        if isinstance(taken, NotLatest):
            raise LogMoved
        self._tenure = taken
        self.record.holding(taken.lease)
        failpoint("lease.acquired")
        return None

    async def claim_running(self) -> Refused | None:
        """As `take_lease`; without a lease of its own, the call must find none alive."""
        if self.options.lease is not None:
            return await self.take_lease()
        try:
            live = await self.engine.store.get_lease(self.thread_id)
        except LeasesUnsupported:
            return None
        except Exception as error:  # noqa: BLE001 - the same
            return self.refuse(RefusalCode.STORE, str(error))
        return None if live is None else self._held(live)

    def journal(
        self, caller: Mapping[str, str], *, expected: int | None, carried: Mapping[str, str] | None = None
    ) -> Journal:
        """The thread's log, to be written after the `expected` sequence."""
        engine = self.engine
        return Journal(
            store=engine.store,
            clock=engine.clock,
            thread_id=self.thread_id,
            durable=engine.is_durable,
            caller=MappingProxyType(dict(caller)),
            carried=carried or {},
            marks=self.options.marks,
            expected=expected,
            tenure=self._tenure,
            recorder=self.record.recorder,
        )

    def runner(self, journal: Journal, notes: Iterable[Note] = ()) -> Runner[S]:
        """Whoever runs the thread's nodes, carrying on those of the notes that its nodes left."""
        engine, options = self.engine, self.options
        limit = options.max_node_hops or engine.graph.max_node_hops
        run = Run(
            journal=journal,
            clock=engine.clock,
            uniform=engine.uniform,
            executor=engine.executor,
            token=self.token,
            asked=options.cancellation,
            stop=options.stop,
            run_id=self.run_id,
            services=options.services,
            notes=OpenNotes(notes),
            recorder=self.record.recorder,
            stream=options.stream,
            interrupt_before=options.interrupt_before,
            interrupt_after=options.interrupt_after,
        )
        rows = LevelRows(
            name=self.thread_id,
            identity=engine.graph.identity,
            clock=engine.clock,
            caller=journal.caller,
            counts_hops=engine.is_durable or limit is not None,
        )
        return Runner(graph=engine.graph, run_=run, rows=rows, limit=limit)

    def _lose(self) -> None:
        self.record.lost()
        self.token.fire(CancelReason.LEASE_LOST)

    def _held(self, lease: Lease) -> Refused:
        self.record.held()
        until = instant_text_rounded_up(lease.expires_at)
        message = f"thread '{self.thread_id}' is held by '{lease.owner}' until {until}"
        return self.refuse(RefusalCode.HELD, message, held_by=lease)


def without_limits(options: RunOptions) -> RunOptions:
    """The options of a verb that runs no node: nothing cuts it short or makes it wait."""
    return replace(options, cancellation=None, deadline=None, scheduler=None)


async def _leave(tenure: Tenure, *, dropped: bool) -> None:
    """Give the lease back; a run that was dropped leaves it to expire."""
    if dropped:
        tenure.drop()
        return
    failpoint("lease.releasing")
    await tenure.release()
