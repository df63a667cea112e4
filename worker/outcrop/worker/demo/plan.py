"""Which orders the demonstration makes and how each will be answered. Pure: the seed decides."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from .orders import APPROVAL_FROM, Order


class Verdict(StrEnum):
    """What the shop does with an order that waits for a person."""

    APPROVE = "approve"
    REJECT = "reject"
    END = "end"


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """One thread to come: its first state, its answer, and how long answers take."""

    thread_id: str
    order: Order
    verdict: Verdict
    answer_after: float

    @property
    def needs_approval(self) -> bool:
        """Whether the graph will ask a person."""
        return self.order.amount >= APPROVAL_FROM

    @property
    def is_paid(self) -> bool:
        """Whether the order gets as far as paying, and is shipped."""
        return not self.needs_approval or self.verdict is Verdict.APPROVE


def plan_orders(threads: int, seed: int) -> tuple[PlannedOrder, ...]:
    """So many orders: a third needs approval, a fifth waits for its invoice, a fifth cools off."""
    draw = random.Random(seed)  # noqa: S311 - a demonstration that repeats, not a secret
    return tuple(_plan_order(f"order-{1000 + number}", draw) for number in range(threads))


def _plan_order(thread_id: str, draw: random.Random) -> PlannedOrder:
    dear = draw.random() < 1 / 3
    way = draw.random()
    order = Order(
        amount=draw.randrange(APPROVAL_FROM, 5000) if dear else draw.randrange(10, APPROVAL_FROM),
        pay_by="invoice" if way < 1 / 5 else "card",
        new_customer=way > 4 / 5,
    )
    verdict = draw.choices([Verdict.APPROVE, Verdict.REJECT, Verdict.END], weights=[14, 5, 1])[0]
    return PlannedOrder(thread_id, order, verdict, draw.uniform(0.2, 1.5))
