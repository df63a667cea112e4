"""One command on its way to its outcome: look at the thread, judge, act, look again.

Owns the loop that ends in an answer, in nothing to say, or in leaving the message to its next
owner. Knows the store and the engine, no broker. Invariant: `held`, lost races, lost leases and
failing stores are reasons to look again, never answers (worker.md section 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from outcrop.engine.cancellation import CancelReason
from outcrop.engine.errors import StateError
from outcrop.engine.metadata import carried_metadata
from outcrop.engine.outcome import Cancelled, Completed, Failed, RefusalCode, Refused, Stopped
from outcrop.stores.errors import Unavailable
from outcrop.stores.instants import instant_text
from outcrop.stores.record import Row
from outcrop.topics.messages import ErrorBody, Recover, Run, Wake

from .decisions import (
    Drop,
    LookAgain,
    Reason,
    RecoverThenLook,
    RecoverThread,
    Refuse,
    StartRun,
    TellEnded,
    View,
    decide,
)
from .outcomes import Telling, may_ask
from .ownership import (
    Claimant,
    Fresh,
    InProgress,
    Passed,
    SecondSend,
    Stamped,
    Told,
    horizon,
    judge,
    settled_by_latest,
)
from .verbs import state_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from outcrop.engine.clock import Clock
    from outcrop.engine.outcome import Interrupted
    from outcrop.stores.port import Store
    from outcrop.stores.record import Checkpoint
    from outcrop.topics.messages import AnyCommand, Outcome

    from .decisions import Act, Action
    from .handling import HandlingSettings
    from .logs import EventLog
    from .metrics import Metrics
    from .ownership import Verdict
    from .pauses import Pauses
    from .registry import Registry, Served
    from .verbs import Verbs

LOG_PAGE: Final = 200
"""How many rows are read at once where the latest doesn't settle whose work the thread's are."""

_NEVER_AN_ANSWER: Final = frozenset({RefusalCode.HELD, RefusalCode.LOST_RACE, RefusalCode.STORE})


@dataclass(frozen=True, slots=True)
class Settled:
    """The command is done: with an outcome, or with nothing to say.

    `dead` is why the message goes to the dead letters too: an error kind and a text.
    """

    outcome: Outcome | None = None
    dead: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Again:
    """Look again, after a pause if anybody else has to move first."""

    pause: bool = True
    until: datetime | None = None


_Step: TypeAlias = Settled | _Again
_Ended: TypeAlias = "Completed[Any] | Interrupted[Any] | Failed | Cancelled[Any] | Stopped[Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What every errand of a worker works with; `waiting` hears of rows that wait for a time."""

    store: Store
    registry: Registry
    clock: Clock
    settings: HandlingSettings
    metrics: Metrics
    log: EventLog
    waiting: Callable[[Row], None]


class Errand:
    """One command, come in `verbs.message`; `settle` takes it to its end."""

    def __init__(self, desk: Desk, verbs: Verbs, pauses: Pauses) -> None:
        self._desk = desk
        self._verbs = verbs
        self._pauses = pauses
        self._started_at = desk.clock.now()
        command = verbs.command
        self._command: AnyCommand = command
        self._claimant = Claimant(command.type, command.command_id, verbs.message)
        self._may_be_first = isinstance(command, Run)
        self._log = desk.log.bind(thread=command.thread_id, command=str(command.command_id))

    async def settle(self) -> Settled | None:
        """Handle the command to its end; None where this worker has to leave it to the next owner."""
        control = self._verbs.control
        while not (control.stop.fired or control.abandon.fired):
            step = await self._step()
            if isinstance(step, Settled):
                return step
            if step.pause:
                await self._pauses.take(step.until)
        return None

    async def _step(self) -> _Step:
        try:
            if self._may_be_first:
                self._may_be_first = False
                return await self._start_unseen()
            row = await self._desk.store.load(self._command.thread_id)
            return await self._follow(await self._judge(row), row)
        except Unavailable as error:
            self._log.warning("store_unavailable", code=error.code)
            return _Again()

    async def _start_unseen(self) -> _Step:
        """Start a run as its thread's first, which costs no look: the engine takes an empty log's lease only.

        Whatever speaks against it, the errand looks as ever: the answer may be in the log.
        """
        served = self._served(StartRun(), None)
        if served is None or state_size(self._command) > self._desk.settings.state_limit:
            return _Again(pause=False)
        try:
            done = await self._verbs.carry_out(StartRun(), served, None)
        except StateError:
            return _Again(pause=False)
        if isinstance(done.result, Refused):
            return _Again(pause=False)
        step = await self._on_done(StartRun(), done.result, done.row, served, None)
        return step if isinstance(step, Settled) else _Again(pause=False)

    async def _judge(self, latest: Row | None) -> Verdict:
        if latest is None or settled_by_latest(self._claimant, latest):
            return Fresh()
        return judge(self._claimant, await self._rows_up_to(latest))

    async def _rows_up_to(self, latest: Row) -> list[Row]:
        """The thread's rows in log order, back to where none can be the command's."""
        oldest = horizon(self._command.command_id)
        rows: list[Row] = []
        first = latest.sequence + 1
        while first > 0 and not (rows and oldest is not None and rows[0].checkpoint.created_at < oldest):
            start = max(first - LOG_PAGE, 0)
            page = await self._desk.store.get_log(
                latest.checkpoint.thread_id, after=start - 1, limit=first - start
            )
            rows = [*(row for row in page.entries if row.sequence < first), *rows]
            first = start
        return rows

    async def _follow(self, verdict: Verdict, row: Row | None) -> _Step:
        match verdict:
            case Told(told):
                return await self._answer_from(told)
            case InProgress(running):
                return await self._continue(running)
            case Stamped(stamp, is_over):
                lost = self._telling.lost(stamp)
                return self._answer(lost) if is_over else await self._unless_alive(stamp, lost)
            case SecondSend():
                return self._dropped("second_send")
            case Passed(by):
                message = f"a later command acted first, in row {by.sequence}; send this one again"
                return self._refused(Reason.PASSED, message, by)
            case Fresh():
                return await self._decide(row)
            case _:
                assert_never(verdict)

    async def _continue(self, running: Row) -> _Step:
        """The command's own work was left running: bring it to its end."""
        if self._view(running).exhausted:
            self._log.warning("recoveries_exhausted", sequence=running.sequence)
            return await self._unless_alive(running, self._telling.exhausted(running))
        served = self._desk.registry.for_row(running.checkpoint)
        if served is None:
            error = ErrorBody(kind=Reason.UNKNOWN_GRAPH, message=self._unknown_graph(running))
            return await self._unless_alive(running, self._telling.unfinishable(running, error))
        return await self._act(RecoverThread(), served, running, is_own=True)

    async def _unless_alive(self, row: Row, outcome: Outcome) -> _Step:
        """Answer that the work can't be finished, if nobody is at it."""
        lease = await self._desk.store.get_lease(self._command.thread_id)
        if lease is not None:
            return _Again(until=lease.expires_at)
        return _Again() if await self._has_moved(row) else self._answer(outcome)

    async def _decide(self, row: Row | None) -> _Step:
        """Act by the table; an act finds out by itself whether the thread is held."""
        action = decide(self._command, self._view(row))
        if not _rests_on_the_lease(action):
            return await self._carry_out(action, row)
        lease = await self._desk.store.get_lease(self._command.thread_id)
        if lease is not None:
            action = decide(self._command, self._view(row, held=True))
        if isinstance(action, LookAgain):
            return _Again(until=None if lease is None else lease.expires_at)
        if await self._has_moved(row):  # row and lease were not looked at in one instant
            return _Again()
        return await self._carry_out(action, row)

    async def _carry_out(self, action: Action, row: Row | None) -> _Step:
        match action:
            case Refuse(reason, message):
                return self._refused(reason, message, row)
            case TellEnded(ended):
                return await self._answer_from(ended)
            case Drop(why):
                return self._dropped(why)
            case LookAgain():
                return _Again()
            case _:
                return await self._begin(action, row)

    async def _begin(self, action: Act, row: Row | None) -> _Step:
        served = self._served(action, row)
        if served is None:
            return self._of_unknown_graph(row)
        size, limit = state_size(self._command), self._desk.settings.state_limit
        if size > limit:
            message = f"the command's state has {size} bytes; the limit is {limit} bytes"
            return self._refused(Reason.STATE_TOO_LARGE, message, row)
        return await self._act(action, served, row)

    async def _act(self, action: Act, served: Served, row: Row | None, *, is_own: bool = False) -> _Step:
        try:
            done = await self._verbs.carry_out(action, served, row)
        except StateError as error:
            if not isinstance(action, StartRun):
                raise
            return self._refused(RefusalCode.STATE.value, str(error), row, is_dead=True)
        result = done.result
        if isinstance(result, Refused):
            return await self._on_refused(result, row, is_own=is_own)
        if isinstance(action, RecoverThread | RecoverThenLook):
            self._desk.metrics.count("outcrop_recoveries_total")
        return await self._on_done(action, result, done.row, served, row)

    async def _on_refused(self, refused: Refused, row: Row | None, *, is_own: bool) -> _Step:
        """Whether the engine's refusal is the answer: only where the thread is as we saw it."""
        if refused.code is RefusalCode.HELD and isinstance(self._command, Wake | Recover) and not is_own:
            return self._dropped("held")
        if refused.code in _NEVER_AN_ANSWER:
            self._log.info("waiting", reason=refused.code.value)
            return _Again(until=None if refused.held_by is None else refused.held_by.expires_at)
        if await self._has_moved(row):
            return _Again()
        if is_own and row is not None:
            error = ErrorBody(kind=refused.code.value, message=refused.message)
            return self._answer(self._telling.unfinishable(row, error))
        if isinstance(self._command, Wake | Recover):
            return self._dropped(refused.code.value)
        return self._refused(refused.code.value, refused.message, row)

    async def _on_done(
        self, action: Act, result: _Ended, written: Checkpoint | None, served: Served, row: Row | None
    ) -> _Step:
        if isinstance(result, Stopped):
            return _Again()
        if isinstance(result, Cancelled) and result.reason is CancelReason.LEASE_LOST:
            self._desk.metrics.count("outcrop_leases_lost_total")
            self._log.warning("lease_lost")
            return _Again()
        if result.sequence is None:
            return await self._on_unwritten(action, result, served, row)
        stopped = await self._written(result.sequence, written)
        if isinstance(action, RecoverThenLook):
            self._noticed(stopped)
            return _Again(pause=False)
        return await self._answer_from(stopped)

    async def _on_unwritten(self, action: Act, result: _Ended, served: Served, row: Row | None) -> _Step:
        """No row tells the result: it is the answer, unless a running row is there to go on from."""
        metadata, identity = self._metadata(row), served.graph.identity
        match result:
            case Completed(state=state) if not isinstance(action, RecoverThenLook):
                text = served.graph.states.freeze(state)
                return self._answer(self._telling.completed(text, identity, metadata))
            case Failed() if not isinstance(action, RecoverThenLook):
                latest = await self._desk.store.load(self._command.thread_id)
                if not isinstance(await self._judge(latest), InProgress):
                    return self._answer(self._telling.failed(result, identity, metadata))
            case _:
                pass
        return _Again()

    async def _written(self, sequence: int, written: Checkpoint | None) -> Row:
        if written is not None:
            return Row(sequence, written)
        page = await self._desk.store.get_log(self._command.thread_id, after=sequence - 1, limit=1)
        return page.entries[0]

    async def _has_moved(self, row: Row | None) -> bool:
        latest = await self._desk.store.load(self._command.thread_id)
        seen = None if row is None else row.sequence
        return seen != (None if latest is None else latest.sequence)

    def _served(self, action: Act, row: Row | None) -> Served | None:
        registry = self._desk.registry
        if isinstance(action, StartRun) and isinstance(self._command, Run):
            return registry.for_run(self._command.graph)
        return None if row is None else registry.for_row(row.checkpoint)

    def _of_unknown_graph(self, row: Row | None) -> _Step:
        if isinstance(self._command, Wake | Recover):
            return self._dropped(Reason.UNKNOWN_GRAPH)
        return self._refused(Reason.UNKNOWN_GRAPH, self._unknown_graph(row), row, is_dead=True)

    def _unknown_graph(self, row: Row | None) -> str:
        graph = row.checkpoint.graph if row is not None else None
        if isinstance(self._command, Run) and row is None:
            named, version = self._command.graph.id, self._command.graph.version
        elif graph is not None:
            named, version = graph.id, graph.version
        else:
            return (
                f"the row of thread '{self._command.thread_id}' names no graph, and several are served here"
            )
        told = "" if version is None else f" version '{version}'"
        return f"this worker doesn't serve graph '{named}'{told}"

    def _metadata(self, row: Row | None) -> dict[str, str]:
        given = self._command.metadata
        return dict(given) if row is None else carried_metadata(row.checkpoint, given)

    def _view(self, row: Row | None, *, held: bool = False) -> View:
        now = instant_text(self._desk.clock.now())
        return View(row=row, held=held, now=now, max_recoveries=self._desk.settings.max_recoveries)

    @property
    def _telling(self) -> Telling:
        return Telling(
            command_id=self._command.command_id,
            command_type=self._command.type,
            thread_id=self._command.thread_id,
            worker=self._desk.settings.worker,
            started_at=self._started_at,
            finished_at=self._desk.clock.now(),
            state_cap=self._desk.settings.state_cap,
        )

    async def _answer_from(self, row: Row) -> Settled:
        self._noticed(row)
        if not may_ask(row.checkpoint):
            return self._answer(self._telling.row(row))
        notes = await self._desk.store.get_notes([row])
        return self._answer(self._telling.row(row, notes.get(row.sequence, ())))

    def _noticed(self, row: Row) -> None:
        wait = row.checkpoint.innermost.wait
        if wait is not None and wait.wake_at is not None:
            self._desk.waiting(row)

    def _answer(self, outcome: Outcome) -> Settled:
        self._log.info("answered", status=outcome.status.value, sequence=outcome.sequence)
        return Settled(outcome)

    def _refused(self, reason: str, message: str, row: Row | None, *, is_dead: bool = False) -> Settled:
        self._log.info("refused", reason=reason)
        outcome = self._telling.refused(reason, message, None if row is None else row.checkpoint.graph)
        return Settled(outcome, (reason, message) if is_dead else None)

    def _dropped(self, why: str) -> Settled:
        self._log.info("dropped", reason=why)
        self._desk.metrics.count("outcrop_messages_dropped_total", reason=why)
        return Settled()


def _rests_on_the_lease(action: Action) -> bool:
    """Whether the action answers without acting, and another answer is right for a held thread."""
    if isinstance(action, Refuse):
        return action.reason != Reason.THREAD_EXISTS
    return isinstance(action, TellEnded)
