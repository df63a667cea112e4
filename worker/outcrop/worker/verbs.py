"""One action of one command as a call of the engine.

Owns the options of that call: the lease, the row it must follow, the marks of the rows it writes,
and how cancels, handovers and lost partitions reach the run. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

from outcrop.engine.cancellation import CancelReason, CancelToken
from outcrop.engine.metadata import COMMAND_ID
from outcrop.engine.options import Answer, LeaseOptions, RunOptions
from outcrop.engine.questions import ONLY_QUESTION
from outcrop.stores.port import EMPTY_LOG
from outcrop.topics.messages import Cancel, End, Recover, Rerun, Resume, Run, Signal, Update, Wake

from .decisions import RecoverThenLook, RecoverThread
from .marks import Marks, mark
from .watch import UNWATCHED

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine.outcome import RunResult
    from outcrop.stores.record import Checkpoint, Row
    from outcrop.topics.messages import AnyCommand

    from .control import Control
    from .decisions import Act
    from .handling import HandlingSettings
    from .marks import Coordinates
    from .registry import Served
    from .watch import Watch


@dataclass(frozen=True, slots=True)
class Done:
    """What the engine answered, and the last row it wrote for that, if any."""

    result: RunResult[Any]
    row: Checkpoint | None


@dataclass(frozen=True, slots=True)
class Verbs:
    """Calls the engine for one command, told in `message`."""

    command: AnyCommand
    message: Coordinates
    control: Control
    settings: HandlingSettings
    watch: Watch = UNWATCHED

    async def carry_out(self, action: Act, served: Served, row: Row | None) -> Done:
        """Act on the thread as long as `row` is its latest.

        Raises `StateError` when a run's state doesn't fit its graph.
        """
        cancellation, withdraw = self._cancellation()
        marks = self._marks(action, cancellation)
        options = self._options(action, row, cancellation, marks)
        try:
            async with self.watch.of(served.graph, self.command.thread_id, options) as watched:
                result = await self._call(action, served, watched)
        finally:
            withdraw()
        return Done(result, marks.last)

    async def _call(  # noqa: C901, PLR0911 - a command type a line
        self, action: Act, served: Served, options: RunOptions
    ) -> RunResult[Any]:
        threads, thread_id = served.threads, self.command.thread_id
        if isinstance(action, RecoverThread | RecoverThenLook):
            return await threads.recover(thread_id, options)
        match self.command:
            case Run(state=state):
                return await threads.run(thread_id, served.graph.states.thaw(_text(state)), options)
            case Resume():
                return await threads.resume(thread_id, _answer(self.command), options)
            case Signal(event=event, payload=payload):
                return await threads.signal(thread_id, event, cast("dict[str, Any]", payload), options)
            case Update(values=values, as_node=as_node, at_sequence=at):
                fields = cast("dict[str, Any]", values)
                return await threads.update_state(thread_id, fields, options, as_node=as_node, at_sequence=at)
            case Rerun(at_sequence=at):
                return await threads.rerun(thread_id, at, options)
            case End(by=by):
                return await threads.end(thread_id, by=by, options=options)
            case Cancel():
                return await threads.cancel(thread_id, options)
            case Wake():
                return await threads.wake(thread_id, options)
            case Recover():
                return await threads.recover(thread_id, options)

    def _options(self, action: Act, row: Row | None, cancellation: CancelToken, marks: Marks) -> RunOptions:
        command, is_ours = self.command, not isinstance(action, RecoverThenLook)
        return RunOptions(
            metadata=command.metadata if is_ours else {},
            run_id=_run_id(command, row, is_ours=is_ours),
            lease=LeaseOptions(self.settings.worker, self.settings.lease_ttl),
            deadline=command.deadline if is_ours and isinstance(command, Run | Resume | Rerun) else None,
            cancellation=cancellation,
            stop=self.control.stop,
            expected_sequence=EMPTY_LOG if row is None else row.sequence,
            marks=marks,
            services=self.settings.services,
        )

    def _marks(self, action: Act, cancellation: CancelToken) -> Marks:
        """A recovery is the continued command's work; who recovered is told where it is another."""
        command_id = str(self.command.command_id)
        is_by_another = isinstance(action, RecoverThenLook) or isinstance(self.command, Recover)
        return Marks(
            command_id,
            self.message,
            cancellation=cancellation,
            continues=isinstance(action, RecoverThread | RecoverThenLook),
            recovery_id=command_id if is_by_another else None,
            cancel_id=command_id if isinstance(self.command, Cancel) else None,
        )

    def _cancellation(self) -> tuple[CancelToken, Callable[[], None]]:
        """A token that a cancel behind the message fires, and a lost partition as a lost lease."""
        token = CancelToken()
        cancel, abandon = self.control.cancel, self.control.abandon
        withdrawals = (
            abandon.on_fire(lambda: token.fire(CancelReason.LEASE_LOST)),
            cancel.on_fire(lambda: token.fire(cancel.reason or CancelReason.REQUESTED, cancel.cause)),
        )

        def withdraw() -> None:
            for each in withdrawals:
                each()

        return token, withdraw


def state_size(command: AnyCommand) -> int:
    """The bytes of JSON that a command brings for the state."""
    match command:
        case Run(state=state):
            return len(orjson.dumps(state))
        case Resume(decision=decision, answers=answers, value=value):
            overrides = {} if decision is None else decision.overrides
            return sum(len(orjson.dumps(part)) for part in (overrides, answers, value) if part)
        case Update(values=values):
            return len(orjson.dumps(values))
        case Signal(payload=payload):
            return len(orjson.dumps(payload))
        case _:
            return 0


def _run_id(command: AnyCommand, row: Row | None, *, is_ours: bool) -> str:
    continued = "" if is_ours or row is None else mark(row.checkpoint, COMMAND_ID)
    return continued or str(command.command_id)


def _answer(command: Resume) -> Answer:
    decision, replies = command.decision, cast("dict[str | int, Any]", dict(command.answers))
    if command.value is not None:
        replies[ONLY_QUESTION] = cast("Any", command.value)
    if decision is None:
        return Answer(replies=replies)
    overrides = cast("dict[str, Any]", decision.overrides)
    return Answer(approved=decision.approved, by=decision.by, overrides=overrides, replies=replies)


def _text(state: object) -> str:
    return orjson.dumps(state).decode()
