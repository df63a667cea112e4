"""A kit for testing graphs: skipped time, scripted runs, and crashes at every point.

    effects = Effects()  # what the graph's nodes record what they do in
    script = Script(decisions={"approve": Answer()}, failures={"charge": [Transient("busy")]})
    played = Harness(orders, script, effects=effects).run(Order(amount=5))
    assert played.state.status == "paid"
    explore(orders, Order(amount=5), script=script, effects=effects).assert_ok()

Everything is synchronous and takes no real time; with pytest, see `outcrop.pytest_plugin`.
"""

from __future__ import annotations

from .clock import SkippingClock
from .comparing import Doubled, Lost, Repeated
from .effects import Effect, Effects, Execution
from .errors import BrokenByCrashes, ScriptFailed, Unexplorable
from .explorer import explore
from .harness import Harness, NewServices, NewStore, Played
from .life import CrashPoint
from .report import Report, Trial
from .script import TIMES_OUT, InTurn, Script, Stop

__all__ = [
    "TIMES_OUT",
    "BrokenByCrashes",
    "CrashPoint",
    "Doubled",
    "Effect",
    "Effects",
    "Execution",
    "Harness",
    "InTurn",
    "Lost",
    "NewServices",
    "NewStore",
    "Played",
    "Repeated",
    "Report",
    "Script",
    "ScriptFailed",
    "SkippingClock",
    "Stop",
    "Trial",
    "Unexplorable",
    "explore",
]
