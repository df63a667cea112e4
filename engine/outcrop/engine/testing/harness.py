"""Running a graph from its start to its end as a script says, over a crash of the process too.

Owns what a run starts with (an empty store, no effects, a clock of its own) and what is told of
it in the end. How a process takes a thread along is `process`'s, what crashes is `life`'s.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from outcrop.engine.failpoints import armed
from outcrop.engine.outcome import Completed, Failed
from outcrop.stores.memory import MemoryStore
from outcrop.stores.record import ThreadState

from .clock import SkippingClock
from .effects import Effects
from .errors import ScriptFailed
from .life import Life
from .process import TTL, Process
from .script import Performance, Script
from .watching import Watcher

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.engine.outcome import RunResult
    from outcrop.stores.port import Store
    from outcrop.stores.record import Row

    from .effects import Effect, Execution
    from .life import CrashPoint

S = TypeVar("S")

NewStore: TypeAlias = "Callable[[SkippingClock], AbstractAsyncContextManager[Store]]"
"""Opens an empty store for one run."""

NewServices: TypeAlias = "Callable[[Effects], Mapping[type[object], object]]"
"""Makes what nodes get by `ctx.service`, anew for each process that runs the thread."""


@asynccontextmanager
async def memory_store(clock: SkippingClock) -> AsyncGenerator[Store]:
    """A store in memory, whose leases go by the clock."""
    yield MemoryStore(clock=clock.now)


def only_effects(effects: Effects) -> Mapping[type[object], object]:
    """No services but the effects."""
    return {Effects: effects}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played(Generic[S]):
    """How a run went.

    `outcome` is what the last call came to, `state` the last one, `rows` the thread's log.
    `executions` are the attempts of nodes and branches, each with its idempotency key as
    `visit`; `effects` what they did. `points` are the failpoints passed, up to the crash if the
    run `crashed`; `outcome` is None when it did so after everything was saved.
    """

    outcome: RunResult[S] | None
    state: S
    rows: tuple[Row, ...]
    executions: tuple[Execution, ...]
    effects: tuple[Effect, ...]
    points: tuple[CrashPoint, ...]
    crashed: bool

    @property
    def nodes(self) -> list[str]:
        """The paths of the nodes and branches that ran, attempt by attempt."""
        return [execution.path for execution in self.executions]

    @property
    def stops(self) -> Counter[str]:
        """How often the thread waited, by the path of the node at which it did."""
        waits = (row.checkpoint for row in self.rows if row.checkpoint.state is ThreadState.INTERRUPTED)
        return Counter("/".join(filter(None, wait.waiting_at)) for wait in waits)

    @property
    def end(self) -> str:
        """Where the thread stands, like `completed` or `failed`."""
        if self.outcome is None or (self.rows and not isinstance(self.outcome, Completed)):
            return self.rows[-1].checkpoint.state.value
        return type(self.outcome).__name__.lower()


@dataclass(slots=True)
class Harness(Generic[S]):
    """Runs threads of a graph as a script says, each in a store of its own.

        harness = Harness(orders, Script(decisions={"approve": Answer()}))
        played = harness.run(Order(amount=5))
        assert played.state.status == "paid"

    Time is skipped: timers, backoffs and timeouts take none. `effects` starts empty with every
    run; nodes get it as a service unless `services` gives them others. Not for use inside a
    running event loop: go through `asyncio.to_thread` there.
    """

    graph: CompiledGraph[S]
    script: Script = field(default_factory=Script)
    effects: Effects = field(default_factory=Effects)
    services: NewServices = only_effects
    store: NewStore = memory_store
    thread_id: str = "thread-1"

    def run(self, state: S) -> Played[S]:
        """Run a thread from `state` to its end.

        Raises `ScriptFailed` when it stops where the script has no answer, and when something
        of the script never came.
        """
        script = Performance(self.script)
        played = self._play(state, script, Life())
        if unused := script.unused():
            why = f" ({played.outcome.message})" if isinstance(played.outcome, Failed) else ""
            raise ScriptFailed(
                f"the thread ended {played.end}{why}, and these of its script never came:\n  "
                + "\n  ".join(unused)
            )
        return played

    def run_crashing(self, state: S, at: int) -> Played[S]:
        """The same over a crash at the `at`-th crash point (from 1), with a recovery in another process.

        What of the script doesn't come is fine here.
        """
        return self._play(state, Performance(self.script), Life(at))

    def _play(self, state: S, script: Performance, life: Life) -> Played[S]:
        self.effects.clear()
        clock = SkippingClock()
        return clock.run(self._played(state, script, life, clock))

    async def _played(self, state: S, script: Performance, life: Life, clock: SkippingClock) -> Played[S]:
        watcher, run_numbers = Watcher(script), itertools.count(1)
        graph = watcher.watched(self.graph)
        outcome: RunResult[S] | None = None
        async with self.store(clock) as store:

            async def live(life: Life) -> RunResult[S] | None:
                process = Process(
                    graph=graph,
                    store=store,
                    clock=clock,
                    life=life,
                    script=script,
                    services=self.services(self.effects),
                    new_id=lambda: f"run-{next(run_numbers)}",
                    thread_id=self.thread_id,
                )
                with armed(life.reach):
                    return await process.run(state)

            try:
                outcome = await live(life)
            except BaseException:
                if not life.is_dead:  # a `Crash` may come in a group of exceptions, if at all
                    raise
            if life.is_dead:
                clock.advance(TTL)  # whoever takes over waits until the dead one's lease is over
                outcome = await live(Life())
            rows = await _log(store, self.thread_id)
        return Played(
            outcome=outcome,
            state=outcome.state if isinstance(outcome, Completed) else self._last_state(rows, state),
            rows=rows,
            executions=tuple(watcher.executions),
            effects=self.effects.requests,
            points=tuple(life.points),
            crashed=life.is_dead,
        )

    def _last_state(self, rows: tuple[Row, ...], start: S) -> S:
        return self.graph.states.thaw(rows[-1].checkpoint.frozen_state) if rows else start


async def _log(store: Store, thread_id: str) -> tuple[Row, ...]:
    rows: list[Row] = []
    after: int | None = -1
    while after is not None:
        page = await store.get_log(thread_id, after=after)
        rows.extend(page.entries)
        after = page.next_after
    return tuple(rows)
