"""A run of a random graph through its faults, and everything that must hold of it.

Owns the world around the thread: it answers what waits, recovers what crashed, resumes what was
cancelled, and writes down every start of a node beside the rows that there were.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson
from hypothesis import strategies as st

from outcrop.engine import Answer, CancelToken, Completed, Failed, RefusalCode, Refused, RunOptions, Transient
from outcrop.engine.failpoints import armed
from outcrop.engine.metadata import hops_of
from outcrop.engine.questions import answers_in, questions_in
from outcrop.stores.port import EMPTY_LOG
from outcrop.stores.query import MAX_PAGE
from outcrop.stores.record import NoteKind, Status, ThreadState, WaitKind

from .engine import LEASED, Crash, World
from .generated import ATTEMPTS, PAYLOAD, TIMEOUT, Builder, replied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outcrop.engine import NodeContext, RunResult, Threads
    from outcrop.stores.record import Checkpoint, Json, Note, Row

    from .generated import Model, Plan, State

POINTS = (  # without `lease.releasing`: what a crash there leaves behind goes with the process
    "save.before",
    "save.after",
    "node.before",
    "node.after",
    "lease.acquired",
    "notes.before",
    "notes.after",
    "branch.before",
    "branch.kept",
    "branch.after",
)
KINDS = ("fails", "hangs", "cancels", "cancels late", "is given up")
MOST_CALLS = 200


@dataclass(frozen=True)
class Faults:
    """What goes wrong: at the n-th start of a node in all, and at failpoints, one in each call."""

    starts: Mapping[int, str] = field(default_factory=dict[int, str])
    crashes: tuple[tuple[str, int], ...] = ()
    one_reply_at_a_time: bool = False


def faults() -> st.SearchStrategy[Faults]:
    """A few of each kind."""
    return st.builds(
        Faults,
        starts=st.dictionaries(st.integers(1, 20), st.sampled_from(KINDS), max_size=3),
        crashes=st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 6)), max_size=4).map(tuple),
        one_reply_at_a_time=st.booleans(),
    )


@dataclass(frozen=True)
class Start:
    """A start of a node, and the row that was the latest then, with its notes."""

    key: str
    path: str
    attempt: int
    latest: Row
    notes: tuple[Note, ...]
    fails: bool

    @property
    def hops(self) -> tuple[int, ...]:
        """The node's hop at each level, by its key."""
        return hops_in(self.key)


class _Life:
    """A failpoint hook: once dead, whatever of the process still unwinds gets no further."""

    def __init__(self, point: str, count: int) -> None:
        self.point, self.left, self.is_dead = point, count, False

    def reach(self, name: str) -> None:
        if name == self.point and not self.is_dead:
            self.left -= 1
            self.is_dead = self.left == 0
        if self.is_dead:
            raise Crash


class Token(CancelToken):
    """A caller's token that knows how many callbacks are left on it."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks = 0

    def on_fire(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back as any token does."""
        withdraw, is_left = super().on_fire(callback), [True]
        self.callbacks += 1

        def count() -> None:
            self.callbacks -= is_left.pop() if is_left else 0
            withdraw()

        return count


class Play:
    """One thread `t` of a plan's graph."""

    def __init__(self, plan: Plan, faults: Faults) -> None:
        self.world = World()
        self.faults = faults
        self.starts: list[Start] = []
        self.crashes = list(faults.crashes)
        self.given_up: set[str] = set()
        self.token = Token()
        self.life = _Life("", 0)
        self.threads: Threads[State] = self.world.threads(Builder(self.act).built(plan))

    def run(self) -> Played:
        """Run it to its end, in an event loop of its own."""
        return asyncio.run(self.played())

    async def played(self) -> Played:
        """Take the thread to its end, and look at all that is left."""
        state = await self.to_the_end()
        return await self.told(state)

    async def told(self, state: State | None) -> Played:
        """What there is to look at once the thread is at its end."""
        rows = await self.rows()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, others
        assert self.world.clock.next_due is None, "a timer is left"
        if not self.life.is_dead:
            assert await self.world.memory.get_lease("t") is None, "a lease is left"
        parents = [entry.parent for entry in await self.threads.history("t")]
        notes = await self.world.memory.get_notes(rows)
        return Played(state, rows, parents, dict(notes), self.starts)

    async def rows(self) -> list[Row]:
        """The whole log."""
        return list((await self.world.memory.get_log("t", limit=MAX_PAGE)).entries)

    async def going_back(self, how: str, choice: int, after: int) -> tuple[Played, int]:
        """Run it for so many calls, go back to a row that can be gone back to, and run it to its end.

        Says how it went in all, and to which row it went back; -1 for none.
        """
        await self.to_the_end(after)
        before = await self.rows()
        apt = [row.sequence for row in before if _is_apt(row.checkpoint, how)]
        if not apt:
            return await self.told(await self.to_the_end()), -1
        at = apt[choice % len(apt)]
        self.world.clock.advance(61)
        self.token = Token()
        options = RunOptions(lease=LEASED.lease, cancellation=self.token)
        result = await (self.threads.fork if how == "fork" else self.threads.rerun)("t", at, options)
        if isinstance(result, Refused):
            assert result.code is RefusalCode.UNANSWERED, result
            at = -1
        return await self.told(await self.to_the_end()), at

    async def act(self, ctx: NodeContext) -> None:
        """At the start of a node."""
        row = await self.world.memory.load("t")
        assert row is not None
        notes = (await self.world.memory.get_notes([row])).get(row.sequence, ())
        fault = self.faults.starts.get(len(self.starts) + 1)
        if fault == "is given up":
            self.given_up.add(ctx.idempotency_key)
        fails = ctx.idempotency_key in self.given_up
        self.starts.append(Start(ctx.idempotency_key, ctx.node_path, ctx.attempt, row, notes, fails))
        if fails:
            if ctx.attempt >= ATTEMPTS or ctx.node.startswith("b"):  # a branch has one attempt
                self.given_up.remove(ctx.idempotency_key)
            raise Transient("no good")
        match fault:
            case "fails":
                raise Transient("busy")
            case "hangs":
                asyncio.get_running_loop().call_soon(self.world.clock.advance, TIMEOUT)
                await asyncio.get_running_loop().create_future()
            case "cancels":
                self.token.fire()
                await asyncio.get_running_loop().create_future()
            case "cancels late":
                self.token.fire()
            case _:
                pass

    async def to_the_end(self, most: int = MOST_CALLS) -> State | None:
        """Call what takes the thread on, again and again, until it completes; None if it takes more calls."""
        for _ in range(most):
            row = await self.world.memory.load("t")
            if row is not None and row.checkpoint.state is ThreadState.COMPLETED:
                return self.threads.graph.states.thaw(row.checkpoint.frozen_state)
            self.world.clock.advance(61)  # a dead run's lease is over, and a timer due
            self.token = Token()
            self.life = _Life(*(self.crashes.pop(0) if self.crashes else ("", 0)))
            with armed(self.life.reach):
                try:
                    result = await self.push(row)
                except Crash:
                    continue
            assert not self.token.callbacks, "the call left a callback on its caller's token"
            assert not isinstance(result, Refused), result
            assert not isinstance(result, Failed) or result.message == "no good", result
            if isinstance(result, Completed):
                return result.state
        assert most < MOST_CALLS, "the thread didn't complete"
        return None

    async def push(self, row: Row | None) -> RunResult[State]:
        """Whatever takes the thread on from where it stands."""
        options = RunOptions(lease=LEASED.lease, cancellation=self.token)
        if row is None:
            first = RunOptions(lease=LEASED.lease, cancellation=self.token, expected_sequence=EMPTY_LOG)
            return await self.threads.run("t", {"n": 0}, first)
        if row.checkpoint.state is ThreadState.RUNNING:
            return await self.threads.recover("t", options)
        wait = row.checkpoint.innermost.wait
        if row.checkpoint.state is ThreadState.INTERRUPTED and wait is not None:
            if wait.kind is WaitKind.TIMER:
                return await self.threads.wake("t", options)
            if wait.kind is WaitKind.EVENT:
                event = wait.event_type or ""
                return await self.threads.signal("t", event, {f"e:{event}": PAYLOAD}, options)
        return await self.threads.resume("t", await self.answer(row), options)

    async def answer(self, row: Row) -> Answer:
        """The replies to what is asked, if anything is."""
        notes = (await self.world.memory.get_notes([row])).get(row.sequence, ())
        replies: dict[str | int, Json] = {}
        for question in questions_in(notes):
            told = question.payload
            assert isinstance(told, dict)
            replies[question.id] = replied(str(told["what"]), int(str(told["visit"])))
            if self.faults.one_reply_at_a_time:
                break
        return Answer(replies=replies)


@dataclass(frozen=True)
class Played:
    """How it went."""

    state: State | None
    rows: list[Row]
    parents: list[int | None]
    notes: dict[int, tuple[Note, ...]]
    starts: list[Start]

    def check(self, model: Model) -> None:
        """Everything that must hold of a run that never went back."""
        assert self.state == model.end
        self.check_starts()
        self.check_notes()
        self.check_commits(model)
        self.check_questions()
        keys = {start.key for start in self.starts}
        assert keys <= model.visits
        assert keys >= model.visits - model.optional
        assert [row.sequence for row in self.rows] == list(range(len(self.rows)))
        assert self.parents == [None, *range(len(self.rows) - 1)]
        self.check_states(model, self.rows)
        last = self.rows[-1].checkpoint
        assert last.status is Status.COMPLETED
        assert orjson.loads(last.frozen_state) == self.state

    def check_starts(self) -> None:
        """No start after the node's commit, none of a branch that was kept, and a key a visit."""
        paths: dict[str, str] = {}
        again: set[tuple[int, ...]] = set()  # children that begin again, as one of their nodes was given up
        for start in self.starts:
            assert paths.setdefault(start.key, start.path) == start.path
            if start.fails:
                again.add(start.hops[:-1])
            if any(start.hops[: len(child)] == child for child in again if child):
                continue
            at = next_visit(start.latest.checkpoint)
            assert start.hops >= at, f"{start.key} started after its commit, at {at}"
            kept = [note.path for note in start.notes if note.kind is NoteKind.FINISHED]
            mine = [path for path in kept if f"{start.path}/".startswith(f"{path}/")]
            assert not mine, f"{start.key} started although its result was kept"

    def check_questions(self) -> None:
        """Nobody is asked what was answered."""
        answered = set[str]()
        for row in self.rows:
            notes = self.notes.get(row.sequence, ())
            asked = {question.id for question in questions_in(notes)}
            assert not asked & answered, asked & answered
            answered |= {reply.id for replies in answers_in(notes).values() for reply in replies}

    def check_notes(self) -> None:
        """Notes are only of the node that the thread is in the middle of."""
        for row in self.rows:
            level, here = row.checkpoint, "/".join(one.next_node or "-" for one in row.checkpoint.levels())
            for note in self.notes.get(row.sequence, ()):
                if note.kind is not NoteKind.PARENT:
                    assert level.status is not Status.COMPLETED, note
                    assert f"{note.path}/".startswith(f"{here}/"), (note, here)

    def check_gone_back(self, model: Model, at: int, how: str) -> None:
        """Everything that must hold of a run that went back to the row `at` once it was over."""
        assert self.state == model.end
        self.check_notes()
        first = next(
            row.sequence
            for row in self.rows
            if row.sequence
            and self.parents[row.sequence] == at
            and any(note.kind is NoteKind.PARENT for note in self.notes.get(row.sequence, ()))
        )
        old = {start.key for start in self.starts if start.latest.sequence < first}
        new = {start.key for start in self.starts if start.latest.sequence >= first}
        assert not old & new, old & new
        self.check_starts()
        assert self.parents[:first] == [None, *range(first - 1)]
        assert self.parents[first:] == [at, *range(first, len(self.rows) - 1)]
        shift = hops_of(self.rows[first].checkpoint) - hops_of(self.rows[at].checkpoint)
        self.check_states(model, self.rows[:first])
        self.check_states(model, self.rows[first:], shift)
        if how == "rerun":
            on = next_visit(self.rows[at].checkpoint)
            expected = {key for key in model.visits - model.optional if hops_in(key) >= on}
            assert {hops_in(key, shift) for key in new} >= {hops_in(key) for key in expected}

    def check_commits(self, model: Model) -> None:
        """Each commit has a row; a child's last one is its parent's commit."""
        seen = {
            next_visit(row.checkpoint)[: depth + 1]
            for row in self.rows
            for depth, _ in enumerate(row.checkpoint.levels())
        }
        for *above, hops in model.states:
            is_last = (*above, hops + 1) not in model.states
            assert not hops or (above and is_last) or (*above, hops + 1) in seen, (above, hops)

    @staticmethod
    def check_states(model: Model, rows: list[Row], shift: int = 0) -> None:
        """Each level of each row has the state that the model has after the same commits."""
        for row in rows:
            above: tuple[int, ...] = ()
            for level in row.checkpoint.levels():
                hops = hops_of(level) - (0 if above else shift)
                before, *after = model.states[*above, hops]
                waits = level.wait is not None and level.status is Status.INTERRUPTED
                expected = after[-1] if after and not waits else before
                assert orjson.loads(level.frozen_state) == expected, (row.sequence, above, hops)
                above = (*above, hops + 1)


def _is_apt(row: Checkpoint, how: str) -> bool:
    """A completed row has nothing to go on with, and a rerun answers no event."""
    answers = row.innermost.wait is not None and row.innermost.wait.kind is WaitKind.EVENT
    return row.status is not Status.COMPLETED and not (how == "rerun" and answers)


def hops_in(key: str, shift: int = 0) -> tuple[int, ...]:
    """The hops in an idempotency key, the outermost's less the shift."""
    first, *rest = map(int, key.rpartition("#")[2].split("."))
    return (first - shift, *rest)


def next_visit(row: Checkpoint) -> tuple[int, ...]:
    """The hops of the node that a row goes on with."""
    return tuple(hops_of(level) + 1 for level in row.levels())
