"""An order's graph with a bit of everything, and what can be wrong with it: the testing kit's example."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import uuid4

from pydantic import BaseModel

from outcrop.engine import CheckpointPolicy, CompiledGraph, Graph, NodeContext, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine.testing import Effects


class Charging(StrEnum):
    """How the order is charged."""

    BY_KEY = "under the idempotency key"
    IN_PARTS = "in two parts, by the key and a suffix"
    BY_UUID = "under a key made up at each try"
    WITHOUT_KEY = "without a key"


class Order(BaseModel):
    """An order on its way."""

    amount: int = 5
    address: str = ""
    checks: list[str] = []
    paid: bool = False
    packed: list[str] = []
    shipped: bool = False


class Line(BaseModel):
    """One thing to pack."""

    article: str
    box: str = ""


def orders(
    effects: Effects,
    charging: Charging = Charging.BY_KEY,
    *,
    keep_finished: bool = True,
    policy: CheckpointPolicy = CheckpointPolicy.EVERY_NODE,
) -> CompiledGraph[Order]:
    """Ask for the address, check in parallel, wait for a person, charge, pack each line, cool off, ship."""
    graph = Graph(Order, id="orders", version="1")

    @graph.node
    async def ask(order: Order, ctx: NodeContext) -> None:
        order.address = str(await ctx.interrupt({"text": "Where to?"}))

    checks = graph.group("checks", reduce=merge_checks, keep_finished=keep_finished)

    @checks.branch
    async def score(order: Order, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "score")
        order.checks.append("score")

    @checks.branch
    def stock(order: Order, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "reserve")
        order.checks.append("stock")

    @graph.node(retry=Retry(max_retries=3), timeout=60)
    async def charge(order: Order, ctx: NodeContext) -> None:
        pay(effects, charging, ctx.idempotency_key, order.amount)
        order.paid = True

    graph.map(
        "lines",
        packing(effects),
        items=lambda _order: ["apple", "pear"],
        key=str,
        input=lambda _order, article: Line(article=article),
        reduce=merge_lines,
        keep_finished=keep_finished,
    )
    graph.timer("cool", delay=3600)

    @graph.node(timeout=60)
    def ship(order: Order, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "ship", order.address)
        order.shipped = True

    graph.interrupt("approve")
    for start, end in (
        ("ask", "checks"),
        ("checks", "approve"),
        ("approve", "charge"),
        ("charge", "lines"),
        ("lines", "cool"),
        ("cool", "ship"),
    ):
        graph.edge(start, end)
    return graph.compile(checkpoints=policy)


def pay(effects: Effects, charging: Charging, key: str, amount: int) -> None:
    """Charge the amount, well or badly."""
    match charging:
        case Charging.BY_KEY:
            effects.record(key, "charge", amount)
        case Charging.IN_PARTS:
            effects.record(f"{key}:first", "charge", 1)
            effects.record(f"{key}:rest", "charge", amount - 1)
        case Charging.BY_UUID:
            effects.record(str(uuid4()), "charge", amount)
        case Charging.WITHOUT_KEY:
            effects.record(None, "charge", amount)


def packing(effects: Effects) -> CompiledGraph[Line]:
    """Pack one line."""
    graph = Graph(Line)

    @graph.node
    async def pack(line: Line, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "pack", line.article)
        line.box = f"box of {line.article}"

    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


def merge_checks(order: Order, branches: Sequence[Order]) -> None:
    """What each branch added."""
    order.checks = [branch.checks[-1] for branch in branches]


def merge_lines(order: Order, lines: Sequence[Line]) -> None:
    """The boxes, in the order of the lines."""
    order.packed = [line.box for line in lines]
