"""Twins of the peer's graphs, node for node (see interop/peer/README.md)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from outcrop.engine import CheckpointPolicy, CompiledGraph, Fatal, Graph, NodeContext, Retry, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

State: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """How the peer's command line can vary a graph."""

    graph_id: str | None = None
    graph_version: str | None = None
    every_node: bool = False
    timeout: timedelta | None = None
    timeout_route: bool = True
    max_hops: int | None = None

    @property
    def policy(self) -> CheckpointPolicy:
        """When the graph writes rows; a child's is its parent's."""
        return CheckpointPolicy.EVERY_NODE if self.every_node else CheckpointPolicy.BOUNDARIES

    def child(self, name: str) -> Graph[State]:
        """A child graph, to be built, with the identity that the peer gives it."""
        id_ = None if self.graph_id is None else f"{self.graph_id}.{name}"
        return Graph(State, id=id_, version=self.graph_version if id_ else None)


def _visit(state: State, name: str) -> None:
    state.setdefault("visited", []).append(name)


def _visiting(graph: Graph[State], name: str, **values: Any) -> None:
    @graph.node(name=name)
    async def visiting(state: State) -> None:
        _visit(state, name)
        state.update(values)


def _deciding(graph: Graph[State], name: str, status: str) -> None:
    @graph.node(name=name)
    async def deciding(state: State, ctx: NodeContext) -> None:
        _visit(state, name)
        state["status"] = status
        state["decision"] = _told(ctx)


def _told(ctx: NodeContext) -> State | None:
    """The decision in effect, without its time."""
    decision = ctx.decision
    if decision is None:
        return None
    return {
        "boundary": decision.boundary,
        "is_approved": decision.is_approved,
        "reviewer": decision.reviewer,
        "overrides": dict(decision.overrides),
    }


def _line(graph: Graph[State], *names: str) -> None:
    for name, following in itertools.pairwise(names):
        graph.edge(name, following)


def _line3(graph: Graph[State], _: Variant) -> None:
    for name in "abc":
        _visiting(graph, name)
    _line(graph, "a", "b", "c")


def _ten(graph: Graph[State], _: Variant) -> None:
    names = [f"n{number}" for number in range(1, 11)]
    for name in names:

        @graph.node(name=name)
        async def counting(state: State, ctx: NodeContext) -> None:
            _visit(state, ctx.node)
            state["n"] = state.get("n", 0) + 1

    _line(graph, *names)


def _approval(graph: Graph[State], variant: Variant) -> None:
    _visiting(graph, "prepare", status="prepared")
    _visiting(graph, "approve", status="awaiting_approval")
    _deciding(graph, "execute", "executed")
    _deciding(graph, "reject", "rejected")
    _line(graph, "prepare", "approve", "execute")
    timed_out = "expire" if variant.timeout and variant.timeout_route else None
    if timed_out:
        _visiting(graph, "expire", status="expired")
    graph.interrupt("approve", on_reject="reject", timeout=variant.timeout, on_timeout=timed_out)


def _event(graph: Graph[State], variant: Variant) -> None:
    _visiting(graph, "request", status="requested")
    timed_out = "expire" if variant.timeout and variant.timeout_route else None
    graph.wait_for_event(
        "await_payment", event="payment.received", timeout=variant.timeout, on_timeout=timed_out
    )
    _deciding(graph, "settle", "settled")
    if timed_out:
        _visiting(graph, "expire", status="expired")
    _line(graph, "request", "await_payment", "settle")


def _timer(graph: Graph[State], _: Variant) -> None:
    _visiting(graph, "start", status="scheduled")

    def due(state: State) -> datetime:
        if "due_at" in state:
            return datetime.fromisoformat(state["due_at"])
        return datetime.now().astimezone() + timedelta(milliseconds=state.get("delay_ms", 3_600_000))

    graph.timer("cool_off", until=due)
    _visiting(graph, "finish", status="finished")
    _line(graph, "start", "cool_off", "finish")


def _loop(graph: Graph[State], _: Variant) -> None:
    _visiting(graph, "start")

    @graph.node
    async def work(state: State, ctx: NodeContext) -> None:
        _visit(state, "work")
        state["count"] = state.get("count", 0) + 1
        state.setdefault("keys", []).append(ctx.idempotency_key)
        state.setdefault("recovered", []).append(ctx.is_recovery)

    _visiting(graph, "done")
    graph.edge("start", "work")
    graph.edge("work", "work", when=lambda state: bool(state["count"] < state.get("limit", 3)))
    graph.edge("work", "done")


def _flaky(graph: Graph[State], _: Variant) -> None:
    _visiting(graph, "start")

    @graph.node(retry=Retry(max_retries=3))
    async def call(state: State, ctx: NodeContext) -> None:
        if ctx.attempt <= state.get("failures", 2):
            raise Transient(f"attempt {ctx.attempt} found the service busy")
        _visit(state, "call")
        state["attempts"] = ctx.attempt
        state["key"] = ctx.idempotency_key.partition("@")[0]

    _visiting(graph, "finish")
    _line(graph, "start", "call", "finish")


def _failing(graph: Graph[State], _: Variant) -> None:
    _visiting(graph, "start")

    @graph.node
    async def charge(state: State) -> None:
        if state.get("card") != "ok":
            raise Fatal("card declined")
        _visit(state, "charge")
        state["charged"] = True

    _visiting(graph, "ship")
    _line(graph, "start", "charge", "ship")


def _fanout(graph: Graph[State], _: Variant) -> None:
    _visiting(graph, "split")

    def reduce(state: State, branches: Sequence[State]) -> None:
        _visit(state, "gather")
        named = dict(zip(("red", "green", "blue"), branches, strict=True))
        state["results"] = {name: branch["result"] for name, branch in named.items()}
        if state.get("record_keys") is True:
            state["keys"] = [branch["key"] for branch in branches]

    gather = graph.group("gather", reduce=reduce)
    for color, result in (("red", lambda n: n + 1), ("green", lambda n: n + 2), ("blue", lambda n: n * 2)):

        @gather.branch(name=color)
        async def branch(state: State, ctx: NodeContext, result: Callable[[int], int] = result) -> None:
            if state.get("fail_branch") == ctx.node:
                raise Fatal(f"branch {ctx.node} was told to fail")
            state["result"] = result(state.get("base", 1))
            state["key"] = ctx.idempotency_key

    @graph.node
    async def join(state: State) -> None:
        _visit(state, "join")
        state["sum"] = sum(state["results"].values())

    _line(graph, "split", "gather", "join")


def _mapped(graph: Graph[State], variant: Variant) -> None:
    child = variant.child("item")

    @child.node
    async def measure(state: State) -> None:
        fail = state["item"].get("fail")
        if fail == "fatal":
            raise Fatal("item cannot be measured")
        if fail == "transient":
            raise Transient("the scale is busy")
        _visit(state, "measure")
        state["value"] = state["item"].get("n", 0)

    @child.node
    async def double(state: State) -> None:
        _visit(state, "double")
        state["value"] *= 2

    child.edge("measure", "double")
    _visiting(graph, "plan")

    def reduce(state: State, items: Sequence[State]) -> None:
        _visit(state, "each")
        state["results"] = [
            {"id": item["item"]["id"], "value": item["value"], "visited": item["visited"]} for item in items
        ]

    graph.map(
        "each",
        child.compile(checkpoints=variant.policy),
        items=lambda state: list[State](state["items"]),
        key=lambda item: str(item["id"]),
        input=lambda _state, item: {"item": item, "visited": []},
        reduce=reduce,
    )

    @graph.node
    async def summary(state: State) -> None:
        _visit(state, "summary")
        state["sum"] = sum(result["value"] for result in state["results"])

    _line(graph, "plan", "each", "summary")


def _nested(graph: Graph[State], variant: Variant) -> None:
    child = variant.child("review")
    _visiting(child, "draft", status="drafted")
    _visiting(child, "approve", status="awaiting_approval")

    @child.node
    async def publish(state: State, ctx: NodeContext) -> None:
        if state.get("fail_publish") is True:
            raise Fatal("the press is broken")
        _visit(state, "publish")
        state |= {"status": "published", "decision": _told(ctx), "key": ctx.idempotency_key.partition("@")[0]}

    _deciding(child, "decline", "declined")
    _line(child, "draft", "approve", "publish")
    child.interrupt("approve", on_reject="decline")

    def output(state: State, review: State) -> None:
        _visit(state, "review")
        state["review"] = review

    _visiting(graph, "open", status="open")
    graph.subgraph(
        "review",
        child.compile(checkpoints=variant.policy),
        input=lambda state: {
            "document": state.get("document"),
            "fail_publish": state.get("fail_publish") is True,
            "visited": [],
        },
        output=output,
    )
    _deciding(graph, "close", "closed")
    _line(graph, "open", "review", "close")


_BUILDERS = {
    "line3": _line3,
    "ten": _ten,
    "approval": _approval,
    "event": _event,
    "timer": _timer,
    "loop": _loop,
    "flaky": _flaky,
    "failing": _failing,
    "fanout": _fanout,
    "mapped": _mapped,
    "nested": _nested,
}

NAMES = tuple(_BUILDERS)


def twin(name: str, variant: Variant = Variant()) -> CompiledGraph[State]:
    """The peer's graph of that name, compiled."""
    graph = Graph(State, id=variant.graph_id, version=variant.graph_version)
    _BUILDERS[name](graph, variant)
    return graph.compile(checkpoints=variant.policy, max_node_hops=variant.max_hops)
