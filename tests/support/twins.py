"""Twins of the peer's graphs that this engine can run, node for node (see interop/peer/README.md)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from outcrop.engine import CheckpointPolicy, CompiledGraph, Fatal, Graph, NodeContext, Retry, Transient

State: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """How the peer's command line can vary a graph."""

    graph_id: str | None = None
    graph_version: str | None = None
    every_node: bool = False
    timeout: timedelta | None = None
    timeout_route: bool = True


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
        decision = ctx.decision
        state["status"] = status
        state["decision"] = decision and {
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


_BUILDERS = {
    "line3": _line3,
    "ten": _ten,
    "approval": _approval,
    "event": _event,
    "timer": _timer,
    "loop": _loop,
    "flaky": _flaky,
    "failing": _failing,
}

NAMES = tuple(_BUILDERS)


def twin(name: str, variant: Variant = Variant()) -> CompiledGraph[State]:
    """The peer's graph of that name, compiled."""
    graph = Graph(State, id=variant.graph_id, version=variant.graph_version)
    _BUILDERS[name](graph, variant)
    policy = CheckpointPolicy.EVERY_NODE if variant.every_node else CheckpointPolicy.BOUNDARIES
    return graph.compile(checkpoints=policy)
