"""One attempt of one node: call its handler, under the run's token and the node's timeout.

Owns how handlers are stopped and what an attempt comes to; knows no retry, no row and no
graph. An async handler is awaited in the run's own task, so a cancellation that isn't ours
passes straight through, and one that is ours never leaks out of the attempt: it is only
ever delivered while the task is suspended inside the handler.

A ready result beats the token, and the token beats the timeout. An attempt that asked a
question is suspended, whatever else became of it.
"""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

from .cancellation import CancelReason
from .ends import Cut, CutShort, Produced, Raised, Suspended
from .node import NodeMode

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from concurrent.futures import Executor

    from .cancellation import CancelToken
    from .clock import Clock, Timer
    from .ends import AttemptEnd
    from .node import NodeContext, NodeSpec

S = TypeVar("S")

MAX_THREADS = 64


async def attempt(
    spec: NodeSpec[S],
    state: S,
    context: NodeContext,
    *,
    token: CancelToken,
    clock: Clock,
    executor: Executor | None,
) -> AttemptEnd[S]:
    """Run the handler once on `state`; the caller has looked at `token` before.

    Raises only what is no `Exception`. `context.cancellation` fires when the attempt is cut.
    """
    try:
        end = await _run(spec, state, context, token=token, clock=clock, executor=executor)
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise  # the run itself is dropped
    except BaseException:
        if (asked := _asked(context)) is not None:
            return asked
        raise
    return _asked(context) or end


def _asked(context: NodeContext) -> Suspended | None:
    if context.questions is None or not context.questions.pending:
        return None
    return Suspended(questions=tuple(context.questions.pending))


async def _run(
    spec: NodeSpec[S],
    state: S,
    context: NodeContext,
    *,
    token: CancelToken,
    clock: Clock,
    executor: Executor | None,
) -> AttemptEnd[S]:
    if spec.mode is NodeMode.INLINE:
        return _inline(spec, state, context)
    scope = _Scope(context.cancellation)
    scope.open(token, clock, spec.timeout)
    try:
        if spec.mode is NodeMode.THREAD:
            end = await _on_thread(spec, state, context, executor)
        else:
            end = _produced(state, await cast("Awaitable[S | None]", spec.handler(state, context)))
    except asyncio.CancelledError:
        cut = scope.close()
        if cut is None or scope.is_cancelled_from_outside:
            raise
        return CutShort(cut)
    except Exception as error:  # noqa: BLE001 - any exception is the node's failure
        end = Raised(error)
    except BaseException:
        scope.close()
        raise
    cut = scope.close()
    return end if cut is None else CutShort(cut)


def _inline(spec: NodeSpec[S], state: S, context: NodeContext) -> AttemptEnd[S]:
    try:
        return _produced(state, cast("S | None", spec.handler(state, context)))
    except Exception as error:  # noqa: BLE001 - any exception is the node's failure
        return Raised(error)


def _produced(state: S, returned: S | None) -> Produced[S]:
    return Produced(state if returned is None else returned)


async def _on_thread(
    spec: NodeSpec[S], state: S, context: NodeContext, executor: Executor | None
) -> AttemptEnd[S]:
    def call() -> AttemptEnd[S] | BaseException:
        # Returned, not raised: a future takes no StopIteration, and one that nobody waits
        # for any more would warn of an exception never retrieved.
        try:
            return _inline(spec, state, context)
        except BaseException as error:  # noqa: BLE001 - raised again on the loop
            return error

    variables = contextvars.copy_context()
    end = await asyncio.get_running_loop().run_in_executor(executor or _threads(), variables.run, call)
    if isinstance(end, BaseException):
        raise end
    return end


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="outcrop-node")


class _Scope:
    """Cuts short what the current task awaits between `open` and `close`, when told to."""

    __slots__ = ("_cancels_before", "_cut", "_delivered", "_own", "_task", "_timer", "_withdraw")

    def __init__(self, own: CancelToken) -> None:
        self._own = own
        self._cut: Cut | None = None
        self._delivered = False

    def open(self, token: CancelToken, clock: Clock, patience: float | None) -> None:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._task: asyncio.Task[object] | None = task
        self._cancels_before = task.cancelling()
        self._withdraw = token.on_fire(lambda: self._stop(Cut.CANCELLED, token))
        self._timer: Timer | None = None
        if patience is not None:
            self._timer = clock.call_later(patience, lambda: self._stop(Cut.TIMED_OUT, None))

    def close(self) -> Cut | None:
        """How the work was cut short, if it was; the task's own cancellation is taken back."""
        task, self._task = self._task, None
        self._withdraw()
        if self._timer is not None:
            self._timer.cancel()
        if not self._delivered:
            return None
        cast("asyncio.Task[object]", task).uncancel()
        return self._cut

    @property
    def is_cancelled_from_outside(self) -> bool:
        """Whether somebody else cancelled the task too."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > self._cancels_before

    def _stop(self, cut: Cut, token: CancelToken | None) -> None:
        if self._cut is not None:
            return
        self._cut = cut
        if token is None:
            self._own.fire(CancelReason.DEADLINE)
        else:
            self._own.fire(token.reason or CancelReason.REQUESTED, token.cause)
        # Code of the run's own task may fire the token. A cancel now would strike at that
        # task's next await, which may be after the attempt: wait until it is suspended.
        if asyncio.current_task() is self._task:
            asyncio.get_running_loop().call_soon(self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        if self._task is not None:
            self._delivered = True
            self._task.cancel()
