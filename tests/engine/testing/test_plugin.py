"""The pytest plugin: its fixtures in somebody else's test suite."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["pytester"]

GRAPH = """
from uuid import uuid4
from pydantic import BaseModel
from outcrop.engine import CheckpointPolicy, Graph

class Order(BaseModel):
    paid: bool = False

def orders(effects, key):
    graph = Graph(Order)

    @graph.node
    async def charge(order, ctx):
        effects.record(key(ctx), "charge")
        order.paid = True

    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)
"""


def loading() -> list[str]:
    """What loads the plugin where the package's entry point doesn't."""
    found = entry_points(group="pytest11")
    return (
        [] if any(one.value == "outcrop.pytest_plugin" for one in found) else ["-p", "outcrop.pytest_plugin"]
    )


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        GRAPH
        + """
import asyncio

def test_good(explore_crash_points, outcrop_effects):
    report = explore_crash_points(
        orders(outcrop_effects, lambda ctx: ctx.idempotency_key), Order(), effects=outcrop_effects
    )
    assert report.trials

def test_bad(explore_crash_points, outcrop_effects):
    graph = orders(outcrop_effects, lambda ctx: str(uuid4()))
    explore_crash_points(graph, Order(), effects=outcrop_effects)

def test_time(outcrop_clock):
    outcrop_clock.run(asyncio.sleep(3600))
    assert outcrop_clock.monotonic() == 3600
"""
    )
    result = pytester.runpytest_subprocess(*loading(), "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "* crash points: 3 broke the run",
            "effect 'charge' happened twice, not once, at thread-1/charge#1",
            "  after a crash at *. effect.after (charge)",
            "  after a crash at *. node.after (charge)",
            "  after a crash at *. save.before (after charge)",
            "    under key *",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*explorer.py*")


def test_it_imports_nothing_of_the_engine_before_it_is_used() -> None:
    assert not {"outcrop.engine", "pydantic", "orjson"} & loaded_by("outcrop.pytest_plugin")


def test_the_kit_is_no_part_of_the_engine_itself() -> None:
    assert "outcrop.engine.testing" not in loaded_by("outcrop.engine")


def loaded_by(module: str) -> set[str]:
    """What importing a module imports."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
