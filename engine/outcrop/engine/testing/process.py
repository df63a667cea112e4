"""One process that takes a thread to its end: starts it, answers it, lets time pass, recovers it.

Looks at the thread's latest row and does what the world would do next, so it goes on after a
crash as after anything else. What to answer is the script's. Nothing of a process outlives it:
no task, and no thread of a sync node.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import WeakSet

from outcrop.engine.chunks import ChunkStream
from outcrop.engine.options import Answer, LeaseOptions, RunOptions
from outcrop.engine.outcome import Completed, Failed, Refused
from outcrop.engine.questions import questions_in
from outcrop.engine.recovery import RecoverOptions
from outcrop.engine.threads import Threads
from outcrop.stores.instants import parse_instant
from outcrop.stores.record import ThreadState, Wait, WaitKind

from .errors import ScriptFailed
from .life import Crash, MortalStore, in_store
from .places import Places
from .script import Stop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.engine.outcome import RunResult
    from outcrop.stores.port import Store
    from outcrop.stores.record import Json, Row

    from .clock import SkippingClock
    from .life import Life
    from .script import Performance

S = TypeVar("S")
T = TypeVar("T")

TTL = timedelta(minutes=1)
LONGEST_CALL = timedelta(days=7)
MOST_CALLS = 1000
OVER = frozenset({ThreadState.COMPLETED, ThreadState.FAILED, ThreadState.CANCELLED, ThreadState.ENDED})


@dataclass(slots=True, kw_only=True)
class Process(Generic[S]):
    """A process, alive as long as `life` is."""

    graph: CompiledGraph[S]
    store: Store
    clock: SkippingClock
    life: Life
    script: Performance
    services: Mapping[type[object], object]
    new_id: Callable[[], str]
    thread_id: str

    async def run(self, state: S) -> RunResult[S] | None:
        """Take the thread to its end; None when it had come there before.

        Raises `Crash` when the process dies, and `ScriptFailed`.
        """
        loop, tasks = asyncio.get_running_loop(), _Tasks()
        executor = ThreadPoolExecutor(thread_name_prefix="outcrop-harness")
        loop.set_default_executor(executor)
        loop.set_exception_handler(_tell_of_the_living)
        loop.set_task_factory(tasks.create)
        threads = Threads(
            self.graph,
            MortalStore(self.store, self.life, self.clock),
            clock=self.clock,
            executor=executor,
            uniform=lambda: 1.0,
            new_id=self.new_id,
            telemetry=Places(),
        )
        try:
            return await self._to_the_end(threads, state)
        finally:
            await tasks.end()
            loop.set_task_factory(None)
            loop.set_default_executor(ThreadPoolExecutor())  # the store may go on using it
            await loop.run_in_executor(None, executor.shutdown)

    async def _to_the_end(self, threads: Threads[S], state: S) -> RunResult[S] | None:
        outcome: RunResult[S] | None = None
        for _ in range(MOST_CALLS):
            row = await threads.store.load(self.thread_id)
            if row is not None and row.checkpoint.state in OVER:
                return outcome
            outcome = await self._in_time(self._next(threads, row, state))
            if isinstance(outcome, Refused):
                raise ScriptFailed(f"a call on thread '{self.thread_id}' was refused: {outcome.message}")
            if isinstance(outcome, (Completed, Failed)):
                return outcome
        raise ScriptFailed(f"thread '{self.thread_id}' has stopped {MOST_CALLS} times, and isn't over")

    async def _in_time(self, call: Awaitable[RunResult[S]]) -> RunResult[S]:
        try:
            async with asyncio.timeout(LONGEST_CALL.total_seconds()):
                return await call
        except TimeoutError:
            raise ScriptFailed(
                f"a run of thread '{self.thread_id}' was still going after {LONGEST_CALL.days} days of "
                "skipped time: some node waits for what never comes, or for something real "
                "(see SkippingClock.held)"
            ) from None

    def _next(self, threads: Threads[S], row: Row | None, state: S) -> Awaitable[RunResult[S]]:
        if row is None:
            return threads.run(self.thread_id, state, self._options)
        match row.checkpoint.state:
            case ThreadState.INTERRUPTED:
                return self._answer(threads, row)
            case _:
                return self._recover(threads)

    async def _recover(self, threads: Threads[S]) -> RunResult[S]:
        report = await threads.recover_stale(RecoverOptions(options=self._options))
        for recovered in report.recovered:
            if recovered.thread_id == self.thread_id:
                return recovered.result
        why = report.refusal or ", ".join(skipped.reason for skipped in report.skipped)
        raise ScriptFailed(f"thread '{self.thread_id}' can't be recovered: {why or 'no sweep lists it'}")

    async def _answer(self, threads: Threads[S], row: Row) -> RunResult[S]:
        notes = await threads.store.get_notes([row])
        checkpoint = row.checkpoint
        stop = Stop(
            at="/".join(checkpoint.waiting_at),
            sequence=row.sequence,
            state=self.graph.states.thaw(checkpoint.frozen_state),
            wait=checkpoint.innermost.wait,
            questions=questions_in(notes.get(row.sequence, ())),
        )
        if stop.questions:
            replies: dict[str | int, Json] = {one.id: self.script.reply(stop, one) for one in stop.questions}
            return await threads.resume(self.thread_id, Answer(replies=replies), self._options)
        match stop.wait:
            case Wait(kind=WaitKind.TIMER):
                return await self._wake(threads, stop, "")
            case Wait(kind=WaitKind.EVENT, event_type=str(event)):
                payload = self.script.signal(stop, event)
                if payload is not None:
                    return await threads.signal(self.thread_id, event, payload, self._options)
                return await self._wake(threads, stop, f"event '{event}': add signals={{'{event}': {{…}}}}")
            case _:
                answer = self.script.decision(stop)
                if answer is not None:
                    return await threads.resume(self.thread_id, answer, self._options)
                return await self._wake(threads, stop, f"a person: add decisions={{'{stop.at}': Answer()}}")

    async def _wake(self, threads: Threads[S], stop: Stop, missing: str) -> RunResult[S]:
        """Let time pass until the wait is due."""
        if stop.wait is None or stop.wait.wake_at is None:
            raise ScriptFailed(
                f"thread '{self.thread_id}' waits at '{stop.at}', and the script has no answer for {missing}"
            )
        left = parse_instant(stop.wait.wake_at) - self.clock.now()
        self.clock.advance(max(left, timedelta()))
        return await threads.wake(self.thread_id, self._options)

    @property
    def _options(self) -> RunOptions:
        return RunOptions(
            lease=LeaseOptions("outcrop-harness", TTL),
            services=self.services,
            stream=ChunkStream(lossy=True) if self.graph.streaming else None,
        )


class _Tasks:
    """The tasks of one process, other than its store's."""

    def __init__(self) -> None:
        self._tasks = WeakSet[asyncio.Task[Any]]()

    def create(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **options: Any,  # noqa: ANN401 - whatever the loop's version has
    ) -> asyncio.Task[T]:
        """A task factory."""
        task: asyncio.Task[T] = asyncio.Task(cast("Coroutine[Any, Any, T]", work), loop=loop, **options)
        if not in_store.get():
            self._tasks.add(task)
        return task

    async def end(self) -> None:
        """Cancel what is left, and wait for it."""
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _tell_of_the_living(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report errors that nobody looks at, but for what stray tasks of a dead process die of."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)
