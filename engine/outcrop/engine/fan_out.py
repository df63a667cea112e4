"""Running members beside each other until their join is decided: the driver of groups and maps.

Owns the tasks, the order of starts and the events of members. Whatever becomes of it, no task
outlives it and no exception is lost: what a member raises is the run's own end (a lost lease, a
panic), raised once the others have wound down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .cancellation import CancelReason, CancelToken
from .commit import Overtaken
from .composites import BranchOutcome, Joined, JoinPolicy, OutcomeStatus
from .ends import Cut, CutShort, Produced, Raised, Suspended
from .errors import StateError
from .events import BranchCompleted, BranchReason, BranchResult, BranchStarted, ErrorType, JoinDecided
from .failpoints import failpoint
from .failures import error_text, hint_of
from .joins import Course, Failure, Tally
from .questions import asked_twice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .composites import FanOut
    from .ends import AttemptEnd
    from .questions import Question
    from .retry import Retry
    from .state import StateCodec
    from .visit import Visit


@dataclass(slots=True)
class Succeeded:
    """The member left this state, as JSON text; `kept` when it was read back and nothing ran."""

    text: str
    kept: bool = False


@dataclass(slots=True)
class FailedMember:
    """The member failed."""

    failure: Failure
    timed_out: bool = False


@dataclass(slots=True)
class StoppedMember:
    """The member was told to stop, and did."""


@dataclass(slots=True)
class _Panicked:
    """The run dies of what the member raised."""

    error: BaseException


MemberEnd: TypeAlias = "Succeeded | FailedMember | StoppedMember | Suspended"


class Members(Protocol):
    """Branches or items: what they are called, and how one is run."""

    one: str
    many: str
    names: Sequence[str]
    states: StateCodec[Any]

    async def run(self, index: int, token: CancelToken) -> MemberEnd:
        """Run one to its end, until `token` fires; raises only what the run itself dies of."""
        ...


@dataclass(slots=True)
class FanOutRun:
    """One attempt at a group or a map."""

    members: Members
    options: FanOut
    visit: Visit[Any]
    tally: Tally = field(init=False)
    _ends: dict[int, MemberEnd] = field(default_factory=dict[int, MemberEnd])
    _running: dict[asyncio.Task[MemberEnd], int] = field(default_factory=dict["asyncio.Task[MemberEnd]", int])
    _tokens: dict[int, CancelToken] = field(default_factory=dict[int, CancelToken])
    _started_at: dict[int, float] = field(default_factory=dict[int, float])
    _finished: deque[asyncio.Task[MemberEnd]] = field(default_factory=deque["asyncio.Task[MemberEnd]"])
    _wake: asyncio.Future[None] | None = None
    _next: int = 0
    _loss: BranchReason | None = None
    _panic: BaseException | None = None
    _is_told: bool = False

    def __post_init__(self) -> None:
        options = self.options
        self.tally = Tally(options.join, len(self.members.names), options.partial, options.cancel_siblings)

    async def run(self) -> AttemptEnd[Any]:
        """Run the members and reduce what they left."""
        withdraw = self.visit.token.on_fire(self._stop_all)
        try:
            await self._drive()
        except GeneratorExit:  # the coroutine was closed: nothing can be awaited any more
            self._drop()
            raise
        except BaseException:
            await self._wind_down()
            raise
        finally:
            withdraw()
        if self._panic is not None:
            raise self._panic
        return self._end()

    async def _drive(self) -> None:
        course = self._react(self.tally.course)
        while True:
            if course is Course.GO_ON:
                course = self._start()
            if not self._running:
                return
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            while self._finished:
                ended = self._settle(self._finished.popleft())
                course = ended if course is Course.GO_ON else course

    def _start(self) -> Course:
        """Start members in their order while slots are free."""
        most, token = self.options.max_concurrency, self.visit.token
        while self._next < len(self.members.names) and not token.fired and self._panic is None:
            if most is not None and len(self._running) >= most:
                break
            index, self._next = self._next, self._next + 1
            course = self._begin(index)
            if course is not Course.GO_ON:
                return course
        return Course.GO_ON

    def _begin(self, index: int) -> Course:
        run, path = self.visit.run, self._path(index)
        if run.recorder is not None:
            self._started_at[index] = run.clock.monotonic()
            run.emit(BranchStarted(), path, self.visit.context.attempt)
        kept = run.notes.finished(path) if self.options.keep_finished and self.visit.keeps else None
        if kept is not None:
            return self._ended(index, Succeeded(kept, kept=True))
        token = self._tokens[index] = CancelToken()
        task = asyncio.get_running_loop().create_task(self._member(index, token))
        self._running[task] = index
        task.add_done_callback(self._done)
        return Course.GO_ON

    async def _member(self, index: int, token: CancelToken) -> MemberEnd:
        if token.fired:  # it lost before it began
            return StoppedMember()
        failpoint("branch.before")
        end = await self.members.run(index, token)
        keeps = self.options.keep_finished and self.visit.keeps and self._loss is None
        if keeps and isinstance(end, Succeeded):
            await self.visit.run.keep(self._path(index), end.text, self.visit.hops)
            failpoint("branch.kept")
        failpoint("branch.after")
        return end

    def _done(self, task: asyncio.Task[MemberEnd]) -> None:
        self._finished.append(task)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _settle(self, task: asyncio.Task[MemberEnd]) -> Course:
        index = self._running.pop(task)
        del self._tokens[index]
        panic = asyncio.CancelledError() if task.cancelled() else task.exception()
        if panic is not None:
            if self._panic is None:
                self._panic = panic
            elif self._panic is not panic:
                self._panic.add_note(f"'{self._path(index)}' ended so too: {type(panic).__name__}: {panic}")
            self._tell_ended(index, _Panicked(panic))
            self._lose(self._loss or BranchReason.SIBLING_FAILED)
            return Course.FAIL_NOW
        return self._ended(index, task.result())

    def _ended(self, index: int, end: MemberEnd) -> Course:
        """Take a member's end in, tell of it, and follow what it means."""
        does_match = True
        if isinstance(end, Succeeded) and self._loss is None:
            try:
                does_match = self._matches(end)
            except Exception as error:  # noqa: BLE001 - the author's predicate: its failure is the branch's
                end = FailedMember(failure_of(error, self.visit.spec.retry))
        self._ends[index] = end
        self._tell_ended(index, end)
        if self._loss is not None:
            return Course.FAIL_NOW
        match end:
            case Succeeded():
                course = self.tally.succeeded(self.members.names[index], matches=does_match)
            case FailedMember():
                course = self.tally.failed()
            case _:
                course = Course.GO_ON
        return self._react(course)

    def _matches(self, end: Succeeded) -> bool:
        matches = self.options.join.matches
        return matches is None or bool(matches(self.members.states.thaw(end.text)))

    def _react(self, course: Course) -> Course:
        """Tell of a decision once, and the others to stop."""
        is_decided = self.tally.is_met or self.tally.is_lost
        if is_decided and not self._is_told:
            self._is_told = True
            policy = self.options.join.policy
            if policy is not JoinPolicy.ALL:
                deciding = tuple(self.tally.deciding) if self.tally.is_met else ()
                self.visit.run.emit(
                    JoinDecided(policy.value, self.tally.is_met, deciding),
                    self.visit.path,
                    self.visit.context.attempt,
                )
        if course is Course.MET:
            self._lose(BranchReason.LOST_RACE)
        elif course is Course.FAIL_NOW:
            self._lose(BranchReason.SIBLING_FAILED)
        return course

    def _lose(self, reason: BranchReason) -> None:
        self._loss = reason
        self._stop_all()

    def _stop_all(self) -> None:
        token = self.visit.token
        for member in list(self._tokens.values()):
            member.fire(token.reason or CancelReason.REQUESTED, token.cause)

    def _drop(self) -> None:
        for task in self._running:
            task.remove_done_callback(self._done)
            task.cancel()

    async def _wind_down(self) -> None:
        """The run was dropped: end every task, however often the run's own is cancelled meanwhile."""
        self._drop()
        while pending := {task for task in self._running if not task.done()}:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError:
                continue
        for task in self._running:
            if not task.cancelled():
                task.exception()

    def _tell_ended(self, index: int, end: MemberEnd | _Panicked) -> None:
        run = self.visit.run
        if run.recorder is None:
            return
        took = run.clock.monotonic() - self._started_at.pop(index)
        run.emit(self._completed(end, took), self._path(index), self.visit.context.attempt)

    def _completed(self, end: MemberEnd | _Panicked, took: float) -> BranchCompleted:
        match end:
            case _Panicked(error=error) if not isinstance(error, Overtaken):
                return BranchCompleted(BranchResult.FAILED, took, error_text(error), ErrorType.PANIC)
            case Succeeded(kept=kept):
                return BranchCompleted(BranchResult.SUCCEEDED, took, kept=kept)
            case FailedMember(failure=failure, timed_out=timed_out):
                if timed_out:
                    type_, reason = ErrorType.TIMEOUT, BranchReason.TIMED_OUT
                else:
                    type_, reason = (ErrorType.FATAL if failure.is_fatal else ErrorType.TRANSIENT), None
                return BranchCompleted(BranchResult.FAILED, took, failure.message, type_, reason)
            case Suspended():
                return BranchCompleted(BranchResult.INTERRUPTED, took)
            case _:
                return BranchCompleted(BranchResult.CANCELLED, took, reason=self._loss)

    def _end(self) -> AttemptEnd[Any]:
        asked = self._questions()
        if not self.tally.is_met:
            if self.visit.token.fired:
                return CutShort(Cut.CANCELLED)
            if asked and self.tally.course is Course.GO_ON:
                unclear = asked_twice(asked)
                return Suspended(questions=asked) if unclear is None else Raised(unclear)
        if self.tally.reduces:
            return self._reduced()
        failures = [
            (name, end.failure)
            for name, end in zip(
                self.members.names, map(self._ends.get, range(self.tally.total)), strict=True
            )
            if isinstance(end, FailedMember)
        ]
        return Raised(self.tally.error(failures, self.members.one, self.members.many))

    def _questions(self) -> tuple[Question, ...]:
        ends = (self._ends.get(index) for index in range(self.tally.total))
        return tuple(one for end in ends if isinstance(end, Suspended) for one in end.questions)

    def _reduced(self) -> AttemptEnd[Any]:
        options, visit = self.options, self.visit
        entry = visit.states.thaw(visit.position.state)
        try:
            if options.reduce_outcomes is not None:
                returned = options.reduce_outcomes(entry, self._joined())
            elif options.reduce is not None:
                returned = options.reduce(entry, self._deciding_states())
            else:
                returned = None
        except Exception as error:  # noqa: BLE001 - the author's code: its failure is the node's
            return Raised(error)
        return Produced(entry if returned is None else returned)

    def _deciding_states(self) -> list[Any]:
        """Those of the members that decided, or of all that succeeded when nobody did; as declared."""
        counts = frozenset(self.tally.deciding) if self.tally.is_met else frozenset(self.members.names)
        thaw = self.members.states.thaw
        return [
            thaw(end.text)
            for index, name in enumerate(self.members.names)
            if name in counts and isinstance(end := self._ends.get(index), Succeeded)
        ]

    def _joined(self) -> Joined[Any]:
        is_met = self.tally.is_met
        return Joined(
            outcomes=tuple(
                self._outcome(name, self._ends.get(index)) for index, name in enumerate(self.members.names)
            ),
            join_met=is_met,
            deciding=tuple(self.tally.deciding) if is_met else (),
        )

    def _outcome(self, name: str, end: MemberEnd | None) -> BranchOutcome[Any]:
        match end:
            case Succeeded(text=text):
                return BranchOutcome(name, OutcomeStatus.SUCCEEDED, state=self.members.states.thaw(text))
            case FailedMember(failure=failure, timed_out=timed_out):
                status = OutcomeStatus.TIMED_OUT if timed_out else OutcomeStatus.FAILED
                return BranchOutcome(name, status, error=failure.message)
            case _:
                return BranchOutcome(name, OutcomeStatus.CANCELLED)

    def _path(self, index: int) -> str:
        return f"{self.visit.path}/{self.members.names[index]}"


def failure_of(error: Exception, retry: Retry) -> Failure:
    """What an exception of a member's own code is to the whole, which `retry` is of.

    A state that can't be stored stays so.
    """
    is_fatal = isinstance(error, StateError) or retry.is_fatal(error)
    return Failure(error_text(error), is_fatal, hint_of(error))
