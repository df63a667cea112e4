"""Random graphs as plans, and what a run of each must come to.

A plan is plain data; `built` makes its graph, whose nodes tell a `Journal` of their starts, and
`Model` works out its visits and its states without any engine. Both follow one rule: a node
mixes its path into the state, so that every step's place in the order shows in the end.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from hypothesis import strategies as st

from outcrop.engine import Graph, Retry
from outcrop.engine.composites import Join, first_success, quorum

from .engine import EVERY_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from outcrop.engine import CompiledGraph, NodeContext

State: TypeAlias = dict[str, Any]

DEPTH = 3
MOST_VISITS = 20
TIMEOUT = 5.0
PAYLOAD = 7
JOINS = {"all": Join(), "first": first_success(), "quorum": quorum(2)}
PATIENT = Retry(max_retries=20)
ATTEMPTS = 4
BRIEF = Retry(max_retries=ATTEMPTS - 1)


@dataclass(frozen=True)
class Node:
    """One node."""


@dataclass(frozen=True)
class Question:
    """A node that asks one question after the other."""

    count: int


@dataclass(frozen=True)
class Boundary:
    """A name that only waits for a person."""


@dataclass(frozen=True)
class Event:
    """A wait for an event of its own name, whose payload goes into the state."""


@dataclass(frozen=True)
class Timer:
    """A wait for a minute."""


@dataclass(frozen=True)
class Branches:
    """A group; `asking` is how many of its branches ask a question first."""

    count: int
    join: str
    keep: bool
    asking: int


@dataclass(frozen=True)
class Items:
    """A map over `count` items."""

    count: int
    keep: bool
    body: Plan


@dataclass(frozen=True)
class Child:
    """A subgraph."""

    body: Plan


@dataclass(frozen=True)
class Loop:
    """The body again and again, `times` in all, with a counting node at its end."""

    times: int
    body: Plan


Step: TypeAlias = "Node | Question | Boundary | Event | Timer | Branches | Items | Child | Loop"
Plan: TypeAlias = "tuple[Step, ...]"


def plans() -> st.SearchStrategy[Plan]:
    """Plans of a few dozen visits at most."""
    return _plans(DEPTH).filter(lambda plan: size(plan) <= MOST_VISITS)


def size(plan: Plan) -> int:
    """How many nodes a run of the plan visits."""
    return sum(map(_size, plan))


def _size(step: Step) -> int:
    match step:
        case Loop(times=times, body=body):
            return times * (size(body) + 1)
        case Items(count=count, body=body):
            return count * size(body)
        case Child(body=body):
            return size(body)
        case Branches(count=count):
            return count
        case _:
            return 1


def _plans(depth: int, *, waits: bool = True, loops: bool = True) -> st.SearchStrategy[Plan]:
    """Plans up to `depth` levels; inside a map's item nothing may wait."""
    kinds: list[st.SearchStrategy[Any]] = [st.just(Node())]
    asking = st.integers(0, 2) if waits else st.just(0)
    kinds.append(
        st.builds(Branches, st.integers(2, 3), st.sampled_from(sorted(JOINS)), st.booleans(), asking)
    )
    if waits:
        kinds += [st.builds(Question, st.integers(1, 2)), st.sampled_from([Boundary(), Event(), Timer()])]
    if loops:
        kinds.append(st.builds(Loop, st.integers(2, 3), _plans(depth, waits=waits, loops=False)))
    if depth > 1:
        kinds += [
            st.builds(Child, _plans(depth - 1, waits=waits))
        ] * 3  # most faults are at the seams of levels
        kinds.append(st.builds(Items, st.integers(2, 3), st.booleans(), _plans(depth - 1, waits=False)))
    return st.lists(st.one_of(kinds), min_size=1, max_size=3).map(_ended)


def _ended(steps: list[Step]) -> Plan:
    """The steps as a plan: a wait or a loop has to have a way on."""
    return (*steps, Node()) if isinstance(steps[-1], (Boundary, Event, Timer, Loop)) else tuple(steps)


def mixed(state: State, path: str) -> None:
    """What a node does to a state: counts itself, and mixes its path and all there is into `n`."""
    state[path] = state.get(path, 0) + 1
    state["n"] = (31 * state["n"] + zlib.crc32(path.encode()) + sum(state.values())) % 1_000_003


def replied(question: str, visit: int) -> int:
    """The answer to the question of that name in that visit of its node."""
    return zlib.crc32(f"{question}!{visit}".encode()) % 1000


def folded(state: State, name: str, children: Sequence[State], *, is_all: bool) -> None:
    """Put what branches or items left into the state; only that they did, when it may be any of them."""
    for index, child in enumerate(children if is_all else ()):
        state["n"] = (31 * state["n"] + child["n"]) % 1_000_003
        state[f"{name}:{index}"] = sum(value for key, value in child.items() if key != "n")
    mixed(state, name)


def named(plan: Plan, prefix: str = "s") -> Iterator[tuple[str, Step]]:
    """The plan's steps under their names; a loop's body is of the same level."""
    for number, step in enumerate(plan):
        name = f"{prefix}{number}"
        if isinstance(step, Loop):
            yield from named(step.body, f"{name}_")
        yield name, step


def edges(plan: Plan) -> Iterator[tuple[str, str, Callable[[State], bool] | None]]:
    """The edges between the steps; a loop's way back comes before its way on."""
    steps = list(named(plan))
    for at, (name, step) in enumerate(steps):
        if isinstance(step, Loop):
            first = next(other for other, _ in steps if other.startswith(f"{name}_"))
            yield name, first, partial(_goes_on, name, step.times)
        if at + 1 < len(steps):
            yield name, steps[at + 1][0], None


def _goes_on(name: str, times: int, state: State) -> bool:
    return bool(state[name] % times)


Act: TypeAlias = "Callable[[NodeContext], Any]"
"""Called at the start of every node: tells of it, and fails it if it is to fail."""


@dataclass
class Builder:
    """Makes the graphs of plans; `act` is awaited at the start of each node."""

    act: Act

    def built(self, plan: Plan) -> CompiledGraph[State]:
        """The plan's graph, a child's if it is inside another's."""
        graph: Graph[State] = Graph(State)
        for name, step in named(plan):
            self._add(graph, name, step)
        for edge in edges(plan):
            graph.edge(*edge)
        return graph.compile(checkpoints=EVERY_NODE)

    def _add(self, graph: Graph[State], name: str, step: Step) -> None:
        match step:
            case Boundary():
                graph.interrupt(name)
            case Event():
                graph.wait_for_event(name, event=name)
            case Timer():
                graph.timer(name, delay=60.0)
            case Branches():
                self._group(graph, name, step)
            case Items():
                graph.map(
                    name,
                    self.built(step.body),
                    items=lambda _: range(step.count),
                    key=lambda item: f"k{item}",
                    input=lambda state, item: {"n": state["n"] + item},
                    reduce=lambda state, children: folded(state, name, children, is_all=True),
                    keep_finished=step.keep,
                    retry=PATIENT,
                )
            case Child():
                graph.subgraph(
                    name,
                    self.built(step.body),
                    input=lambda state: {"n": state["n"]},
                    output=lambda state, child: folded(state, name, [child], is_all=True),
                    retry=PATIENT,
                )
            case Question(count=count):
                graph.node(name=name, retry=BRIEF, timeout=TIMEOUT)(self._work(name, count))
            case _:
                graph.node(name=name, retry=BRIEF, timeout=TIMEOUT)(self._work(name, 0))

    def _group(self, graph: Graph[State], name: str, step: Branches) -> None:
        is_all = step.join == "all"
        group = graph.group(
            name,
            reduce=lambda state, children: folded(state, name, children, is_all=is_all),
            join=JOINS[step.join],
            keep_finished=step.keep,
            retry=PATIENT,
            branch_timeout=TIMEOUT,
        )
        for number in range(step.count):
            asks = 1 if number < step.asking else 0
            group.branch(name=f"b{number}")(self._work(f"{name}/b{number}", asks, pause=number))

    def _work(self, name: str, asks: int, *, pause: int = 0) -> Any:
        async def work(state: State, ctx: NodeContext) -> None:
            await self.act(ctx)
            for _ in range(pause):
                await asyncio.sleep(0)
            for position in range(asks):
                question = f"{name}?{position}"
                answer = await ctx.interrupt({"what": question, "visit": state.get(name, 0)})
                assert isinstance(answer, int)
                state[question] = answer
            mixed(state, name)

        return work


@dataclass
class Model:
    """What a run of a plan must come to, worked out without an engine.

    `visits` are the idempotency keys of all nodes, `optional` those of branches that may lose.
    `states` are a level's states by the hops of the nodes above and its own committed ones: as
    the last of them left it and, after an event wait, with the payload too.
    """

    plan: Plan
    visits: set[str] = field(default_factory=set[str])
    optional: set[str] = field(default_factory=set[str])
    states: dict[tuple[int, ...], list[State]] = field(default_factory=dict[tuple[int, ...], "list[State]"])
    end: State = field(init=False)

    def __post_init__(self) -> None:
        self.end = _Level(self, "", (), {"n": 0}).run(self.plan)


@dataclass
class _Level:
    """One level of the model's run; only one that `writes` rows tells of its states."""

    model: Model
    prefix: str
    above: tuple[int, ...]
    state: State
    writes: bool = True
    hops: int = 0

    def run(self, plan: Plan) -> State:
        self._committed()
        self._plan(plan, "s")
        return self.state

    def _plan(self, plan: Plan, prefix: str) -> None:
        for number, step in enumerate(plan):
            name = f"{prefix}{number}"
            for _ in range(step.times if isinstance(step, Loop) else 1):
                if isinstance(step, Loop):
                    self._plan(step.body, f"{name}_")
                self._step(name, step)
                self.hops += 1
                self._committed()
                if isinstance(step, Event):
                    self.state[f"e:{name}"] = PAYLOAD
                    self._committed()

    def _committed(self) -> None:
        if self.writes:
            self.model.states.setdefault((*self.above, self.hops), []).append(dict(self.state))

    def _step(self, name: str, step: Step) -> None:
        match step:
            case Boundary() | Event() | Timer():
                pass
            case Branches():
                self._group(name, step)
            case Items(count=count, body=body):
                items = [
                    self._child(f"{name}/k{index}", {"n": self.state["n"] + index}, writes=False).run(body)
                    for index in range(count)
                ]
                folded(self.state, name, items, is_all=True)
            case Child(body=body):
                child = self._child(name, {"n": self.state["n"]}, writes=self.writes).run(body)
                folded(self.state, name, [child], is_all=True)
            case _:
                self._work(self.state, name, name, step.count if isinstance(step, Question) else 0)

    def _group(self, name: str, step: Branches) -> None:
        branches = [dict(self.state) for _ in range(step.count)]
        for number, branch in enumerate(branches):
            self._work(branch, f"{name}/b{number}", f"{name}/b{number}", 1 if number < step.asking else 0)
            if step.join != "all":
                self.model.optional.add(self._key(f"{name}/b{number}"))
        folded(self.state, name, branches, is_all=step.join == "all")

    def _work(self, state: State, path: str, name: str, asks: int) -> None:
        self.model.visits.add(self._key(path))
        for position in range(asks):
            state[f"{name}?{position}"] = replied(f"{name}?{position}", state.get(name, 0))
        mixed(state, name)

    def _child(self, name: str, state: State, *, writes: bool) -> _Level:
        return _Level(self.model, f"{self.prefix}{name}/", (*self.above, self.hops + 1), state, writes)

    def _key(self, path: str) -> str:
        return f"t/{self.prefix}{path}#{'.'.join(map(str, (*self.above, self.hops + 1)))}"
