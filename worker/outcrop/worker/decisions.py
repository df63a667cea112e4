"""What each command does to a thread that isn't its own work already: the table of worker.md section 6.

Pure: a command and a view of the thread in, one of a closed set of actions out. Knows no
store, no graph and no broker. Invariant: every cell of the table is one branch here, and a live lease
is never a reason to answer, only to wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, assert_never

from outcrop.engine.metadata import recoveries_of
from outcrop.stores.record import ThreadState, WaitKind
from outcrop.topics.messages import Cancel, End, Recover, Rerun, Resume, Run, Signal, Update, Wake

if TYPE_CHECKING:
    from outcrop.stores.record import Row
    from outcrop.topics.messages import AnyCommand


class Reason(StrEnum):
    """Why a command is refused by the worker; stable, on the wire."""

    THREAD_EXISTS = "thread_exists"
    NO_THREAD = "no_thread"
    STALE = "stale"
    FINISHED = "finished"
    NOT_WAITING = "not_waiting"
    NOT_RUNNING = "not_running"
    MAX_RECOVERIES = "max_recoveries"
    LOST_RUN = "lost_run"
    PASSED = "passed"
    UNKNOWN_GRAPH = "unknown_graph"
    STATE_TOO_LARGE = "state_too_large"
    HANDLER_ERROR = "handler_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A thread as it was looked at: its latest row, whether a live lease holds it, and when.

    `now` is the text of the whole second, as rows have it; `max_recoveries` is how often a
    thread is recovered without a node committing.
    """

    row: Row | None
    held: bool
    now: str
    max_recoveries: int

    @property
    def exhausted(self) -> bool:
        """Whether the thread was recovered as often as it may be."""
        return self.row is not None and recoveries_of(self.row.checkpoint) >= self.max_recoveries


@dataclass(frozen=True, slots=True)
class StartRun:
    """Run the graph as the thread's first."""


@dataclass(frozen=True, slots=True)
class ResumeThread:
    """Answer the boundary, or retry what failed or was cancelled."""


@dataclass(frozen=True, slots=True)
class SignalThread:
    """Answer the event wait."""


@dataclass(frozen=True, slots=True)
class UpdateThread:
    """Write a row with another state."""


@dataclass(frozen=True, slots=True)
class RerunThread:
    """Run again from an earlier row."""


@dataclass(frozen=True, slots=True)
class EndThread:
    """End the thread."""


@dataclass(frozen=True, slots=True)
class CancelThread:
    """Say that the dead run is cancelled."""


@dataclass(frozen=True, slots=True)
class WakeThread:
    """Fire the timer or the timeout."""


@dataclass(frozen=True, slots=True)
class RecoverThread:
    """Continue the dead run, as this command's own effect."""


@dataclass(frozen=True, slots=True)
class RecoverThenLook:
    """Continue the dead run as the work that it is, then look at the thread again."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer `refused`; nothing is written."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TellEnded:
    """Answer `ended` from the row that says so; nothing is written."""

    row: Row


@dataclass(frozen=True, slots=True)
class Drop:
    """Publish nothing: a driver's command that isn't needed any more."""

    why: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """A live lease holds the thread: wait and look again."""


Act: TypeAlias = (
    StartRun
    | ResumeThread
    | SignalThread
    | UpdateThread
    | RerunThread
    | EndThread
    | CancelThread
    | WakeThread
    | RecoverThread
    | RecoverThenLook
)
Action: TypeAlias = Act | Refuse | TellEnded | Drop | LookAgain
_Later: TypeAlias = Resume | Signal | Update | Rerun | End | Cancel | Wake | Recover


def decide(command: AnyCommand, view: View) -> Action:
    """What the command does, given that no row is its own and none is of a later command."""
    row = view.row
    if isinstance(command, Run) and row is not None:
        return Refuse(Reason.THREAD_EXISTS, f"thread '{command.thread_id}' exists already")
    if view.held:
        return Drop("held") if isinstance(command, Wake | Recover) else LookAgain()
    if isinstance(command, Run):
        return StartRun()
    if row is None:
        return _no_thread(command)
    return _on_thread(command, row, view)


def _no_thread(command: AnyCommand) -> Action:
    if isinstance(command, Wake | Recover):
        return Drop("no_thread")
    return Refuse(Reason.NO_THREAD, f"thread '{command.thread_id}' doesn't exist")


def _on_thread(command: _Later, row: Row, view: View) -> Action:  # noqa: PLR0911 - a command type a line
    match command:
        case Resume():
            return _resume(command, row, view)
        case Signal():
            return _signal(command, row, view)
        case Update() | Rerun():
            return _go_back(command, row, view)
        case End():
            return _end(row)
        case Cancel():
            return _cancel(row)
        case Wake():
            return _wake(command, row, view)
        case Recover():
            return _recover(command, row, view)
        case _:
            assert_never(command)


def _resume(command: Resume, row: Row, view: View) -> Action:
    checkpoint = row.checkpoint
    match checkpoint.state:
        case ThreadState.RUNNING:
            return _recover_first(row, view)
        case ThreadState.RESUMED:
            return _lost(row)
        case ThreadState.COMPLETED | ThreadState.ENDED:
            return Refuse(Reason.FINISHED, f"thread '{command.thread_id}' is {checkpoint.state.value}")
        case ThreadState.INTERRUPTED | ThreadState.FAILED | ThreadState.CANCELLED:
            return _stale(command, row) or _elsewhere(command, row) or ResumeThread()


def _stale(command: Resume | Update | Rerun, row: Row) -> Refuse | None:
    """The row isn't the one that the sender saw."""
    expected, thread = command.expected_sequence, command.thread_id
    if expected is not None and expected != row.sequence:
        return Refuse(Reason.STALE, f"thread '{thread}' is at sequence {row.sequence}, not {expected}")
    return None


def _elsewhere(command: Resume, row: Row) -> Refuse | None:
    """The thread doesn't wait where the sender thinks."""
    node = row.checkpoint.innermost.suspended_node
    if command.boundary is not None and command.boundary != node:
        message = f"thread '{command.thread_id}' is at '{node}', not at '{command.boundary}'"
        return Refuse(Reason.STALE, message)
    return None


def _go_back(command: Update | Rerun, row: Row, view: View) -> Action:
    """Whatever came of the thread: only a dead run is brought to its end first."""
    if row.checkpoint.state is ThreadState.RUNNING:
        return _recover_first(row, view)
    if (stale := _stale(command, row)) is not None:
        return stale
    return UpdateThread() if isinstance(command, Update) else RerunThread()


def _signal(command: Signal, row: Row, view: View) -> Action:
    match row.checkpoint.state:
        case ThreadState.RUNNING:
            return _recover_first(row, view)
        case ThreadState.INTERRUPTED:
            wait = row.checkpoint.innermost.wait
            if wait is not None and wait.kind is WaitKind.EVENT and wait.event_type == command.event:
                return SignalThread()
        case _:
            pass
    return Refuse(
        Reason.NOT_WAITING, f"thread '{command.thread_id}' is not waiting for event '{command.event}'"
    )


def _end(row: Row) -> Action:
    match row.checkpoint.state:
        case ThreadState.COMPLETED:
            return Refuse(Reason.FINISHED, f"thread '{row.checkpoint.thread_id}' has completed")
        case ThreadState.ENDED:
            return TellEnded(row)
        case ThreadState.RESUMED:
            return _lost(row)
        case _:
            return EndThread()


def _cancel(row: Row) -> Action:
    if row.checkpoint.state is ThreadState.RUNNING:
        return CancelThread()
    return Refuse(Reason.NOT_RUNNING, f"thread '{row.checkpoint.thread_id}' is {row.checkpoint.state.value}")


def _wake(command: Wake, row: Row, view: View) -> Action:
    checkpoint = row.checkpoint
    if checkpoint.state is not ThreadState.INTERRUPTED:
        return Drop(f"is_{checkpoint.state.value}")
    if row.sequence != command.sequence:
        return Drop("moved_on")
    wait = checkpoint.innermost.wait
    if wait is None or wait.wake_at is None or wait.wake_at > view.now:
        return Drop("not_due")
    return WakeThread()


def _recover(command: Recover, row: Row, view: View) -> Action:
    if row.checkpoint.state is not ThreadState.RUNNING:
        return Drop(f"is_{row.checkpoint.state.value}")
    if row.sequence != command.sequence:
        return Drop("moved_on")
    return Drop("max_recoveries") if view.exhausted else RecoverThread()


def _recover_first(row: Row, view: View) -> Action:
    if not view.exhausted:
        return RecoverThenLook()
    return Refuse(Reason.MAX_RECOVERIES, exhausted_message(row))


def exhausted_message(row: Row) -> str:
    """What is said of a thread that is left running because recovering it doesn't help."""
    checkpoint = row.checkpoint
    return (
        f"thread '{checkpoint.thread_id}' was recovered {recoveries_of(checkpoint)} time(s) without node "
        f"'{checkpoint.innermost.next_node}' completing; end or cancel it"
    )


def _lost(row: Row) -> Refuse:
    return Refuse(Reason.LOST_RUN, lost_message(row))


def lost_message(row: Row) -> str:
    """What is said of a thread whose resumed run left nothing to continue from."""
    return (
        f"thread '{row.checkpoint.thread_id}' was resumed at {row.checkpoint.resumed_at} by a run that left "
        "nothing to continue from; compile its graph with CheckpointPolicy.EVERY_NODE where work matters"
    )
