"""The crash-point explorer: crashes a graph's run at every point, and compares what comes of it.

Owns the plan: two runs without a crash, the first of which tells the points and what to expect,
both of which tell what varies anyway; then one run a point. What counts as a difference is
`comparing`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

import orjson

from outcrop.engine.options import CheckpointPolicy

from .comparing import differences, doubled, lost, ran_again, repeated, varying_slots
from .effects import Effects
from .errors import ScriptFailed, Unexplorable
from .harness import Harness, memory_store, only_effects
from .report import Report, Trial
from .script import Script

if TYPE_CHECKING:
    from outcrop.engine.compiled import CompiledGraph
    from outcrop.stores.record import Json

    from .harness import NewServices, NewStore, Played
    from .life import CrashPoint

S = TypeVar("S")


def explore(
    graph: CompiledGraph[S],
    state: S,
    *,
    script: Script | None = None,
    effects: Effects | None = None,
    services: NewServices | None = None,
    store: NewStore | None = None,
) -> Report:
    """Run a thread once for each of its crash points, crash it there, and let it recover.

        report = explore(orders, Order(amount=5), script=script, effects=effects)
        report.assert_ok()

    Crash points are around every save, node, branch, kept result and effect that the run comes to.
    `effects` is what the nodes tell of what they do (see `Effects`). Raises `Unexplorable` for a
    graph that saves no row after every node, and `ScriptFailed` when the run without a
    crash doesn't fit the script.
    """
    if graph.policy is not CheckpointPolicy.EVERY_NODE:
        raise Unexplorable(
            "a graph under CheckpointPolicy.BOUNDARIES saves rows only where it waits: what dies in between "
            "can't be recovered, so there is nothing to explore; compile it with checkpoints=EVERY_NODE"
        )
    harness = Harness(
        graph,
        script or Script(),
        effects=Effects() if effects is None else effects,
        services=services or only_effects,
        store=store or memory_store,
    )
    exploration = _Exploration(harness, state)
    return exploration.report()


class _Exploration(Generic[S]):
    def __init__(self, harness: Harness[S], state: S) -> None:
        self._harness = harness
        self._state = state
        self._expected = harness.run(state)
        again = harness.run(state)
        self._varying_paths = differences(self._json(self._expected), self._json(again))
        self._varying_slots = varying_slots(self._expected.effects, again.effects)
        self._sure_stops = self._expected.stops & again.stops

    def report(self) -> Report:
        return Report(
            trials=tuple(self._trial(point) for point in self._expected.points),
            faultless=doubled(self._expected.effects, self._expected.effects),
            varying=(
                *sorted(self._varying_paths),
                *(f"effect '{name}' at {visit}" for visit, name in sorted(self._varying_slots)),
            ),
        )

    def _trial(self, point: CrashPoint) -> Trial:
        expected = self._expected
        try:
            played = self._harness.run_crashing(self._state, point.number)
        except ScriptFailed as failed:
            return Trial(point=point, problem=str(failed))
        if not played.crashed:
            return Trial(point=point, crashed=False)
        differing = differences(self._json(expected), self._json(played)) - self._varying_paths
        return Trial(
            point=played.points[-1],
            end=played.end,
            expected_end=expected.end,
            doubled=doubled(played.effects, expected.effects),
            lost=lost(played.effects, expected.effects, self._varying_slots),
            differences=tuple(sorted(differing)),
            skipped=tuple((self._sure_stops - played.stops).elements()),
            repeated=repeated(played.effects),
            ran_again=ran_again(played.executions, expected.executions),
        )

    def _json(self, played: Played[S]) -> Json:
        return cast("Json", orjson.loads(self._harness.graph.states.freeze(played.state)))
