"""Telemetry that fails costs the run nothing, and is counted; OpenTelemetry is an optional extra."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from outcrop.engine import (
    Completed,
    Failed,
    Fatal,
    Graph,
    RunEvent,
    RunOptions,
    Scheduler,
    SchedulerOptions,
)
from outcrop.engine.events import RunCompleted
from outcrop.engine.telemetry import OpenTelemetry
from support.engine import EVERY_NODE, LEASED, Doc, World
from support.telescope import Telescope

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = ["run", "observed", "enter", "leave", "loaded", "observer_failed", "nothing"]


class Faulty:
    """Telemetry that fails in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.failures = 0
        self.events = list[RunEvent]()
        self.around = list[str]()

    def run(self, _thread_id: str, _run_id: str) -> Faulty:
        self._fail("run")
        return self

    def observed(self, event: RunEvent) -> None:
        self.events.append(event)
        self._fail("observed")

    @contextmanager
    def attempt(self, path: str, number: int) -> Iterator[None]:
        self._fail("enter")
        self.around.append(f"{path}#{number}")
        yield
        self._fail("leave")

    def loaded(self, _seconds: float, _status: str | None) -> None:
        self._fail("loaded")

    def held(self) -> None:
        self._fail("held")

    def observer_failed(self) -> None:
        self.failures += 1
        self._fail("observer_failed")

    def _fail(self, method: str) -> None:
        if method == self.method:
            raise RuntimeError(f"{method} is broken")


def grouped(world: World) -> Graph[Doc]:
    graph = world.graph("a", "b")
    graph.interrupt("a")
    group = graph.group("g", reduce=lambda _doc, _states: None)

    @group.branch
    async def work(_doc: Doc) -> None: ...

    graph.edge("b", "g")
    return graph


@pytest.mark.parametrize("method", METHODS)
async def test_telemetry_that_fails_breaks_no_run(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """R005: logged and counted, wherever it fails; the rows are those of a run without it."""
    plain, world, faulty = World(), World(), Faulty(method)
    threads = world.threads(grouped(world).compile(checkpoints=EVERY_NODE), telemetry=faulty)
    await threads.run("t", Doc(), LEASED)
    assert isinstance(await threads.resume("t", options=LEASED), Completed)
    unwatched = plain.threads(grouped(plain).compile(checkpoints=EVERY_NODE))
    await unwatched.run("t", Doc(), LEASED)
    await unwatched.resume("t", options=LEASED)
    assert await world.log() == await plain.log()
    assert await world.memory.get_lease("t") is None
    expected = {"observed": len(faulty.events), "enter": 4, "leave": 4, "loaded": 1}
    assert faulty.failures == expected.get(method, 0)
    assert ("telemetry failed" in caplog.text) == (method in {"run", *expected})


@pytest.mark.parametrize("method", ["enter", "leave", "nothing"])
async def test_what_a_node_raises_passes_through_telemetry(method: str) -> None:
    """R005: a failing node fails, whatever else does."""
    world = World()
    graph = world.graph()
    world.failing(graph, "a", Fatal("no"))
    threads = world.threads(graph.compile(), telemetry=Faulty(method))
    result = await threads.run("t", Doc())
    assert isinstance(result, Failed)
    assert result.message == "no"


async def test_an_observer_and_telemetry_may_both_fail() -> None:
    """R005: nobody counts, and both the run and its events go on."""
    world, over = World(), threading.Event()
    threads = world.threads(world.graph("a").compile(), telemetry=Faulty("observer_failed"))

    def observe(event: RunEvent) -> None:
        if isinstance(event.kind, RunCompleted):
            over.set()
        raise RuntimeError("no")

    assert isinstance(await threads.run("t", Doc(), RunOptions(observer=observe)), Completed)
    assert await asyncio.to_thread(over.wait, 5)


async def test_without_an_sdk_nothing_is_told_and_nothing_fails() -> None:
    """R008: the API alone is enough."""
    world, telemetry = World(), OpenTelemetry()
    scheduler = Scheduler(SchedulerOptions(), world.clock, hook=telemetry)
    threads = world.threads(grouped(world).compile(checkpoints=EVERY_NODE), telemetry=telemetry)
    options = RunOptions(scheduler=scheduler)
    await threads.run("t", Doc(), options)
    assert isinstance(await threads.resume("t", options=options), Completed)


async def test_runs_that_are_not_sampled_still_have_metrics() -> None:
    """R010."""
    telescope, world = Telescope(sampler=ALWAYS_OFF), World()
    threads = world.threads(world.graph("a").compile(), telemetry=telescope.telemetry)
    await threads.run("t", Doc())
    assert telescope.spans == ()
    assert telescope.counts("strata.graphs.started") == [({"strata.run.mode": "run"}, 1)]


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_the_engine_imports_no_opentelemetry() -> None:
    """R008: whoever doesn't ask for telemetry pays nothing for it."""
    done = python(
        "import sys, outcrop.engine, outcrop.engine.testing, outcrop.engine.host\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_says_how_to_get_it() -> None:
    """R008."""
    done = python("import sys; sys.modules['opentelemetry'] = None; import outcrop.engine.telemetry")
    assert (
        "ImportError: opentelemetry-api is not installed: run pip install 'outcrop[telemetry]'" in done.stderr
    )
