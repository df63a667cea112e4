"""The graph that the chaos tests run: waits, an approval, a timer, an effect, slow nodes.

Every node writes a line to a journal as it starts and ends; the effect honours idempotency
keys and keeps its own evidence. Both live in the folder named by CHAOS_FOLDER.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from outcrop.engine import Backoff, CheckpointPolicy, Graph, NodeContext, Retry, Transient

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(os.environ.get("CHAOS_FOLDER", os.devnull))  # without one, writing fails and litters nothing
APPROVAL_OVER = 500


class Order(BaseModel):
    """The state of one chaos thread."""

    number: int
    amount: int
    pause: float = 0.2
    visited: list[str] = Field(default_factory=list)
    receipt: str | None = None
    settled: bool = False


def journal_path() -> Path:
    """This process's journal."""
    return FOLDER / f"journal-{os.getpid()}.jsonl"


def _write(kind: str, ctx: NodeContext) -> None:
    line = json.dumps(
        {
            "at": time.monotonic(),
            "pid": os.getpid(),
            "kind": kind,
            "thread": ctx.thread_id,
            "key": ctx.idempotency_key,
        }
    )
    with journal_path().open("a") as journal:
        journal.write(line + "\n")


def journal() -> Iterator[dict[str, object]]:
    """Every line of every process; a line torn by a kill is left out."""
    for path in FOLDER.glob("journal-*.jsonl"):
        for line in path.read_text().splitlines():
            if line.endswith("}"):
                yield json.loads(line)


def apply_effect(key: str, amount: int) -> str:
    """Charge once per key: the first call of a key applies it, each later one gets its receipt."""
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    draft = FOLDER / f"draft-{os.getpid()}-{name}"  # whole before it counts: a kill may come at any time
    draft.write_text(json.dumps({"key": key, "amount": amount}))
    try:
        (FOLDER / "effects" / name).hardlink_to(draft)
    except FileExistsError:
        with (FOLDER / "repeats.jsonl").open("a") as repeats:
            repeats.write(json.dumps({"key": key}) + "\n")
    draft.unlink()
    return f"receipt-{name}"


async def _work(order: Order, ctx: NodeContext) -> None:
    _write("start", ctx)
    await asyncio.sleep(order.pause)
    order.visited.append(ctx.node)
    _write("end", ctx)


orders = Graph(Order, id="chaos-orders", version="1")


@orders.node
async def reserve(order: Order, ctx: NodeContext) -> None:
    await _work(order, ctx)


@orders.node(retry=Retry(max_retries=3, backoff=Backoff(initial=0.05, max=0.2)))
async def charge(order: Order, ctx: NodeContext) -> None:
    if ctx.attempt == 1 and order.number % 7 == 0:
        raise Transient("the bank is busy")
    await _work(order, ctx)
    order.receipt = apply_effect(ctx.idempotency_key, order.amount)


@orders.node
async def approve(order: Order, ctx: NodeContext) -> None:
    await _work(order, ctx)


@orders.node
async def reject(order: Order, ctx: NodeContext) -> None:
    await _work(order, ctx)


@orders.node
async def ship(order: Order, ctx: NodeContext) -> None:
    await _work(order, ctx)


orders.interrupt("approve", on_reject="reject")
orders.wait_for_event("settled", event="payment.settled", timeout=timedelta(hours=1))
orders.timer("cool_off", delay=timedelta(seconds=1))
orders.edge("reserve", "approve", when=lambda order: order.amount > APPROVAL_OVER)
orders.edge("reserve", "charge")
orders.edge("approve", "charge")
orders.edge("charge", "settled", when=lambda order: order.number % 3 == 0)
orders.edge("charge", "cool_off", when=lambda order: order.number % 3 == 1)
orders.edge("charge", "ship")
orders.edge("settled", "ship")
orders.edge("cool_off", "ship")

app = orders.compile(checkpoints=CheckpointPolicy.EVERY_NODE)
