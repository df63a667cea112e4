"""The order graph of the demonstration and the documentation.

A dear order waits for a person, an invoice for the event that it was settled, a new
customer's order for a cooling-off time. Paying is the effect that must happen once: it
carries the node's idempotency key to a service that honours it.

Run it on your own broker with `outcrop worker outcrop.worker.demo.orders:graph`.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from outcrop.engine import Backoff, CheckpointPolicy, Graph, NodeContext, Retry

from .payments import PAYMENTS_ENV, charge_at

APPROVAL_FROM = 1000
COOLING_OFF = timedelta(seconds=2)
_WORK_SECONDS = 0.1  # what a node here does besides, so that runs are in flight when a worker dies


class Order(BaseModel):
    """One order on its way from the cart to the customer."""

    amount: int
    pay_by: Literal["card", "invoice"] = "card"
    new_customer: bool = False
    reserved: bool = False
    receipt: str | None = None
    settled: bool = False
    result: Literal["open", "shipped", "released"] = "open"


orders = Graph(Order, id="orders", version="1")


@orders.node
async def reserve(order: Order) -> None:
    """Put the goods aside."""
    await asyncio.sleep(_WORK_SECONDS)
    order.reserved = True


orders.interrupt("approve", on_reject="release", timeout=timedelta(days=2), on_timeout="release")


@orders.node(retry=Retry(max_retries=5, backoff=Backoff(initial=0.1, max=2.0)), timeout=20.0)
async def charge(order: Order, ctx: NodeContext) -> None:
    """Take the money: asked for once or more, applied once, because the key is the same."""
    address = os.environ.get(PAYMENTS_ENV)
    if address is None:  # outside the demonstration there is no service to ask
        order.receipt = f"receipt-{ctx.idempotency_key}"
    else:
        order.receipt = await charge_at(address, key=ctx.idempotency_key, amount=order.amount)


orders.wait_for_event("settlement", event="payment.settled", timeout=timedelta(hours=1), on_timeout="release")
orders.timer("cooling_off", delay=COOLING_OFF)


@orders.node
async def ship(order: Order) -> None:
    """Hand the goods over; the end of a good order."""
    await asyncio.sleep(_WORK_SECONDS)
    order.result = "shipped"


@orders.node
async def release(order: Order) -> None:
    """Put the goods back; the end of an order that was rejected or never paid."""
    order.reserved = False
    order.result = "released"


orders.edge("reserve", "approve", when=lambda order: order.amount >= APPROVAL_FROM)
orders.edge("reserve", "charge")
orders.edge("approve", "charge")
orders.edge("charge", "settlement", when=lambda order: order.pay_by == "invoice")
orders.edge("charge", "cooling_off", when=lambda order: order.new_customer)
orders.edge("charge", "ship")
orders.edge("settlement", "ship")
orders.edge("cooling_off", "ship")

graph = orders.compile(checkpoints=CheckpointPolicy.EVERY_NODE)
