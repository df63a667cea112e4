"""A clock that skips: whenever nothing can run but what waits for time, time jumps there.

Owns an event loop whose own time is the clock's, so that `asyncio.sleep` in a node is skipped
as a backoff is. Nothing really sleeps and nothing polls: the loop asks its selector how long it
may wait, and the selector moves the clock instead of waiting. While a thread works (a sync node,
`asyncio.to_thread`) or inside `held`, the wait is real, and time stands still until it is over.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from concurrent.futures import Executor

    from outcrop.engine.clock import Timer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_TICK = 1e-9  # asyncio calls back what is due within its clock's resolution


class SkippingClock:
    """A `Clock` for `Threads` whose waits take no time; what uses it is run by `run`.

    clock = SkippingClock()
    result = clock.run(threads.run("order-1", Order()))  # threads made with clock=clock

    While a sync node works, what waits beside it waits in real time.
    """

    def __init__(self, now: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) -> None:
        self._start = now
        self._passed = 0.0
        self._holds = 0

    def now(self) -> datetime:
        """The wall time, as far as it has been skipped."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """The seconds skipped so far."""
        return self._passed

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back once time has got there; raises RuntimeError outside `run`."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, _SkippingLoop) or loop.clock is not self:
            raise RuntimeError("a SkippingClock only works in its own event loop: call clock.run(...)")
        return loop.call_later(max(delay, 0.0), callback)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in an event loop of this clock's time, as `asyncio.run` does.

        Raises RuntimeError inside a running event loop: there, go through `asyncio.to_thread`.
        """
        try:
            if _is_inside_a_loop():
                raise RuntimeError(
                    "a SkippingClock can't run inside a running event loop: use asyncio.to_thread"
                )
            with asyncio.Runner(loop_factory=lambda: _SkippingLoop(self)) as runner:
                return runner.run(main)
        finally:
            main.close()

    def advance(self, by: float | timedelta) -> None:
        """Let time pass, seconds or a span, as while no process runs; what falls due is called next."""
        self._passed += by.total_seconds() if isinstance(by, timedelta) else by

    @contextmanager
    def held(self) -> Generator[None]:
        """Skip nothing inside, for waits on something real like a server."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    @property
    def is_held(self) -> bool:
        """Whether something real is waited for."""
        return self._holds > 0


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop by the clock's time, which holds it while it waits for threads."""

    def __init__(self, clock: SkippingClock) -> None:
        self.clock = clock
        super().__init__(_SkippingSelector(clock))

    def time(self) -> float:
        return self.clock.monotonic()

    if sys.version_info >= (3, 12):

        async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's
            with self.clock.held():  # its timeout means real time
                await super().shutdown_default_executor(timeout)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        hold = self.clock.held()
        hold.__enter__()
        # Called on this loop, after whoever awaits the future was told: no gap to skip in.
        future.add_done_callback(lambda _: hold.__exit__(None, None, None))
        return future


class _SkippingSelector(selectors.DefaultSelector):
    """Moves the clock by the time that the loop would wait, unless there is something real to do."""

    def __init__(self, clock: SkippingClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(timeout if self._clock.is_held else 0)
        if not ready:
            self._clock.advance(timeout)
            now = self._clock.monotonic()
            if now + _TICK == now:  # far out, a float can't tell them apart, and asyncio waits for the next
                self._clock.advance(math.ulp(now))
        return ready
