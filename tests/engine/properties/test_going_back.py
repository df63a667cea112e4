"""Random graphs taken back to some row once they are over: the same end again, under fresh keys."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.engine import RunOptions
from outcrop.engine.failpoints import armed
from support.engine import Crash, Doc, World, crashing
from support.generated import Model, plans
from support.played import Play, faults

if TYPE_CHECKING:
    from support.generated import Plan
    from support.played import Faults


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    plan=plans(),
    faults=faults(),
    how=st.sampled_from(["fork", "rerun"]),
    choice=st.integers(0, 40),
    after=st.sampled_from([1, 2, 4, 99]),
)
def test_a_fork_or_a_rerun_ends_as_the_run_did(
    plan: Plan, faults: Faults, how: str, choice: int, after: int
) -> None:
    played, at = asyncio.run(Play(plan, faults).going_back(how, choice, after))
    if at >= 0:
        played.check_gone_back(Model(plan), at, how)


async def test_a_recovery_before_the_first_node_begins_no_tree_of_its_own() -> None:
    """Found by the above: its row looks like a fresh run's, but for the count of recoveries."""
    world = World()
    _, threads = world.line("a", "b")
    with armed(crashing("node.before", 1)), suppress(Crash):
        await threads.run("t", Doc())
    await threads.recover("t", RunOptions())
    assert [entry.parent for entry in await threads.history("t")] == [None, 0, 1, 2]
