"""Read by type checkers, never run: what must be accepted, and what must be refused.

A refused line ignores its error, and strict checkers refuse an ignore without an error.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from pydantic import BaseModel
from typing_extensions import TypedDict

from outcrop.engine import Backoff, CompiledGraph, Graph, NodeContext, Retry


class Order(BaseModel):
    amount: int
    due: datetime = datetime(2026, 1, 2, tzinfo=UTC)


class Refund(BaseModel):
    reason: str


class Shape(TypedDict):
    amount: int


orders = Graph(Order, id="orders", version="1")
assert_type(orders, Graph[Order])
assert_type(orders.compile(), CompiledGraph[Order])
Graph(Order, identity="orders")  # type: ignore[call-arg]  # must be refused


@orders.node
async def reserve(order: Order, ctx: NodeContext) -> None: ...


@orders.node(
    retry=Retry(max_retries=3, backoff=Backoff(initial=1.0, max=30.0)), timeout=20.0, fallback="refund"
)
async def charge(order: Order) -> Order:
    return order


@orders.node(inline=True, timeout=timedelta(seconds=1))
def refund(order: Order) -> None: ...


@orders.node()
def cancel(order: Order, ctx: NodeContext) -> Order | None:
    return None if ctx.is_recovery else order


@orders.node  # type: ignore[arg-type]  # must be refused
async def other_state(refund: Refund) -> None: ...


@orders.node  # type: ignore[arg-type]  # must be refused
def other_result(order: Order) -> Refund:
    return Refund(reason=str(order.amount))


@orders.node(retry=Retry())  # type: ignore[arg-type]  # must be refused
async def other_context(order: Order, ctx: int) -> None: ...


@orders.node(name="x")  # type: ignore[arg-type]  # must be refused
async def no_state() -> None: ...


@orders.node(retries=3)  # type: ignore[call-overload, untyped-decorator]  # must be refused
def wrong_option(order: Order) -> None: ...


async def call_nodes(order: Order, ctx: NodeContext) -> None:
    """Decorated functions can still be called, as in a test of their own."""
    await reserve(order, ctx)
    assert_type(await charge(order), Order | None)
    assert_type(cancel(order, ctx), Order | None)
    await reserve(order)  # type: ignore[call-arg]  # must be refused
    refund(Refund(reason=""))  # type: ignore[arg-type]  # must be refused


orders.edge("reserve", "charge", when=lambda order: order.amount > 1000)
orders.edge(reserve, charge)
orders.edge("reserve", "charge", when=lambda order: order.amuont > 1000)  # type: ignore[attr-defined]  # must be refused
orders.edge("reserve", 5)  # type: ignore[arg-type]  # must be refused


def is_due(refund: Refund) -> bool:
    return bool(refund.reason)


async def asks_elsewhere(order: Order) -> bool:
    return order.amount > 1


orders.edge("reserve", "charge", when=is_due)  # type: ignore[arg-type]  # must be refused
orders.edge("reserve", "charge", when=asks_elsewhere)  # type: ignore[arg-type]  # must be refused

orders.interrupt("approve", on_reject=cancel, timeout=timedelta(days=2), on_timeout="cancel")
orders.interrupt("approve", timeout="2 days")  # type: ignore[arg-type]  # must be refused
orders.wait_for_event("settled", event="payment.settled", timeout=timedelta(hours=1), on_timeout="refund")
orders.wait_for_event("settled")  # type: ignore[call-arg]  # must be refused
orders.timer("cool_off", delay=timedelta(minutes=5))
orders.timer("cool_off", until=lambda order: order.due)
orders.timer("cool_off", until=lambda order: order.amount)  # type: ignore[arg-type, return-value]  # must be refused
orders.timer("cool_off", delay=timedelta(minutes=5), until=lambda order: order.due)  # type: ignore[call-overload]  # must be refused
orders.timer("cool_off")  # type: ignore[call-overload]  # must be refused

shapes = Graph(Shape)
assert_type(shapes, Graph[Shape])
anything = Graph(dict[str, Any])
assert_type(anything, Graph[dict[str, Any]])
anything.edge("a", "b", when=lambda state: bool(state["x"]))
assert_type(Graph(dict), Graph[dict[Any, Any]])


@shapes.node
def measure(shape: Shape) -> None:
    shape["amount"] += 1


@anything.node
def note(state: dict[str, Any]) -> None:
    state["x"] = 1


@shapes.node  # type: ignore[arg-type]  # must be refused
def measure_order(order: Order) -> None: ...
