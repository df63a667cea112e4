"""Crashes at every boundary of random graphs: what committed never runs again, and the end is the same.

The property behind I013, I014 and I018: a durable thread that is recovered as often as it takes ends
as if nothing had happened, whatever the crashes hit.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.engine import Completed, Graph, Interrupted, NodeContext, RunOptions, Threads
from outcrop.engine.failpoints import KILLED, arm_from, armed, failpoint
from outcrop.stores.errors import Unavailable
from outcrop.stores.port import EMPTY_LOG
from outcrop.stores.record import ThreadState
from support.engine import EVERY_NODE, LEASED, Crash, Doc, World

if TYPE_CHECKING:
    from outcrop.stores.record import Row

FIRST = RunOptions(lease=LEASED.lease, expected_sequence=EMPTY_LOG)
POINTS = ("save.before", "save.after", "node.before", "node.after", "lease.acquired", "lease.releasing")


@dataclass
class Effects:
    """What nodes did outside, as a journal that honours no key: (node, key), in order."""

    made: list[tuple[str, str]]


def line_of(kinds: list[str], effects: Effects) -> Graph[Doc]:
    """A line with a node for each kind: plain, a boundary, or a loop that visits itself twice."""
    graph = Graph(Doc)
    for number, kind in enumerate(kinds):
        name = f"n{number}"

        @graph.node(name=name)
        async def act(doc: Doc, ctx: NodeContext) -> None:
            effects.made.append((ctx.node, ctx.idempotency_key))
            doc.trail.append(ctx.node)
            doc.n += 1

        if kind == "loop":
            graph.edge(name, name, when=lambda doc, name=name: doc.trail.count(name) < 2)  # type: ignore[misc]  # bound here
        if kind == "boundary":
            graph.interrupt(name)
        if number + 1 < len(kinds):
            graph.edge(name, f"n{number + 1}")
    return graph


async def latest(world: World) -> Row | None:
    return await world.memory.load("t")


async def push(threads: Threads[Doc], row: Row | None) -> Any:
    """Whatever takes the thread on from where it stands."""
    if row is None:
        return await threads.run("t", Doc(), LEASED)
    match row.checkpoint.state:
        case ThreadState.RUNNING:
            return await threads.recover("t", LEASED)
        case _:
            return await threads.resume("t", options=LEASED)


async def to_the_end(world: World, threads: Threads[Doc], crashes: list[tuple[str, int]]) -> Completed[Doc]:
    """Run, resume and recover through the crashes, until the thread completes."""
    left = list(crashes)
    for _ in range(60):
        row = await latest(world)
        if row is not None and row.checkpoint.state is ThreadState.COMPLETED:
            state = threads.graph.states.thaw(row.checkpoint.frozen_state)
            return Completed(thread_id="t", state=state, sequence=row.sequence)
        point, count = left.pop(0) if left else ("never", 1)
        world.clock.advance(31)  # a dead run's lease is over
        hits = iter(range(count))

        def hook(name: str, point: str = point, hits: Any = hits) -> None:
            if name == point and next(hits, None) is None:
                raise Crash

        with armed(hook):
            try:
                await push(threads, row)
            except Crash:
                continue
    raise AssertionError("the thread didn't complete")


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["plain", "boundary", "loop"]), max_size=4).map(
        lambda kinds: [*kinds, "plain"]
    ),
    crashes=st.lists(st.tuples(st.sampled_from(POINTS), st.integers(0, 4)), max_size=6),
)
def test_crashes_change_nothing_but_the_number_of_attempts(
    kinds: list[str], crashes: list[tuple[str, int]]
) -> None:
    asyncio.run(_check(kinds, crashes))


async def _check(kinds: list[str], crashes: list[tuple[str, int]]) -> None:
    calm, stormy = Effects([]), Effects([])
    world = World()
    expected = await to_the_end(
        world, world.threads(line_of(kinds, calm).compile(checkpoints=EVERY_NODE)), []
    )
    world = World()
    threads = world.threads(line_of(kinds, stormy).compile(checkpoints=EVERY_NODE))
    result = await to_the_end(world, threads, crashes)
    assert result.state == expected.state
    # The same executions, keys and order, each repeated in its place at most: a node that
    # ran again after it had committed would come back out of turn.
    assert _once(stormy.made) == calm.made
    rows = await world.entries()
    assert [row.sequence for row in rows] == list(range(len(rows)))


def _once(made: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The executions without their immediate repeats."""
    return [one for at, one in enumerate(made) if at == 0 or made[at - 1] != one]


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["plain", "loop"]), max_size=3).map(lambda kinds: [*kinds, "plain"]),
    faults=st.sets(st.tuples(st.integers(1, 9), st.booleans()), max_size=5),
)
def test_saves_of_unknown_result_leave_each_row_once(kinds: list[str], faults: set[tuple[int, bool]]) -> None:
    """worker.md 5: under a lease an unanswered save is asked again, and found if it had happened."""
    asyncio.run(_check_faults(kinds, faults))


async def _check_faults(kinds: list[str], faults: set[tuple[int, bool]]) -> None:
    calm, stormy = World(), World()
    effects = Effects([]), Effects([])
    await calm.threads(line_of(kinds, effects[0]).compile(checkpoints=EVERY_NODE)).run("t", Doc(), FIRST)
    for call, after in faults:
        stormy.store.fail("save", Unavailable("gone"), call=call, after=after)
    threads = stormy.threads(line_of(kinds, effects[1]).compile(checkpoints=EVERY_NODE))
    run = asyncio.create_task(threads.run("t", Doc(), FIRST))
    while not run.done():
        await asyncio.sleep(0)
        if not run.done() and (due := stormy.clock.next_due) is not None and due <= 1:
            stormy.clock.advance(due)
    assert isinstance(run.result(), Completed)
    assert await stormy.log() == await calm.log()
    assert effects[1].made == effects[0].made


@pytest.mark.parametrize("point", POINTS)
async def test_each_point_is_reached(point: str) -> None:
    """A failpoint that nothing passes would make the property above hollow."""
    world, seen = World(), set[str]()
    threads = world.threads(
        line_of(["plain", "boundary", "plain"], Effects([])).compile(checkpoints=EVERY_NODE)
    )
    with armed(seen.add):
        assert isinstance(await threads.run("t", Doc(), LEASED), Interrupted)
    assert point in seen


def test_the_environment_arms_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = list[int]()
    monkeypatch.setattr("os._exit", codes.append)
    with armed(lambda _name: None):  # restores what was armed before
        arm_from({})
        arm_from({"OUTCROP_FAILPOINT": "save.after:2"})
        failpoint("save.before")
        failpoint("save.after")
        assert codes == []
        failpoint("save.after")
        assert codes == [KILLED]
