"""The pytest plugin: fixtures of the testing kit, for whoever asks for one.

    outcrop_clock          a `SkippingClock`
    outcrop_effects        `Effects` for the nodes of one test
    explore_crash_points   `explore`, which fails the test with the readable report

Loaded into every pytest run in which Outcrop is installed, so it imports nothing of it until
a fixture is asked for; it is no part of `outcrop.engine`, since importing that imports it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from outcrop.engine import CompiledGraph
    from outcrop.engine.testing import Effects, NewServices, NewStore, Report, Script, SkippingClock

S = TypeVar("S")


class ExploreCrashPoints(Protocol):
    """What `explore_crash_points` is."""

    def __call__(
        self,
        graph: CompiledGraph[S],
        state: S,
        *,
        script: Script | None = None,
        effects: Effects | None = None,
        services: NewServices | None = None,
        store: NewStore | None = None,
    ) -> Report:
        """Explore, and fail the test unless no crash changes anything; options as of `explore`."""
        ...


@pytest.fixture
def outcrop_clock() -> SkippingClock:
    """A clock that skips: `outcrop_clock.run(threads.run(...))` waits for nothing."""
    from outcrop.engine.testing import SkippingClock  # noqa: PLC0415 - only who asks for it pays

    return SkippingClock()


@pytest.fixture
def outcrop_effects() -> Effects:
    """A record of what the nodes of this test do."""
    from outcrop.engine.testing import Effects  # noqa: PLC0415 - the same

    return Effects()


@pytest.fixture
def explore_crash_points() -> ExploreCrashPoints:
    """`explore_crash_points(graph, state, script=…, effects=…)`: crashes the graph everywhere."""
    from outcrop.engine.testing import BrokenByCrashes, explore  # noqa: PLC0415 - the same

    def explored(
        graph: CompiledGraph[S],
        state: S,
        *,
        script: Script | None = None,
        effects: Effects | None = None,
        services: NewServices | None = None,
        store: NewStore | None = None,
    ) -> Report:
        report = explore(graph, state, script=script, effects=effects, services=services, store=store)
        try:
            report.assert_ok()
        except BrokenByCrashes as broken:
            pytest.fail(str(broken), pytrace=False)
        return report

    return explored
