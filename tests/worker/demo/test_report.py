"""The report tells what happened, and finds every way in which the promise can be broken. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outcrop.stores import Checkpoint, Row, Status, ThreadState
from outcrop.worker.demo.orders import Order
from outcrop.worker.demo.plan import PlannedOrder, Verdict, plan_orders
from outcrop.worker.demo.report import (
    Facts,
    Payment,
    percentile,
    problems,
    recoveries_in,
    report_document,
    report_rows,
)

SHIPPED = PlannedOrder("order-1", Order(amount=10), Verdict.REJECT, 0.1)  # too cheap to be asked about
REJECTED = PlannedOrder("order-2", Order(amount=2000), Verdict.REJECT, 0.1)
ENDED = PlannedOrder("order-3", Order(amount=2000), Verdict.END, 0.1)

KEPT = Facts(
    orders=(SHIPPED, REJECTED, ENDED),
    states={"order-1": ThreadState.COMPLETED, "order-2": ThreadState.COMPLETED, "order-3": ThreadState.ENDED},
    results={"order-1": "shipped", "order-2": "released", "order-3": "open"},
    journal=(Payment("order-1/charge#2", applied=False), Payment("order-1/charge#2", applied=True)),
    recoveries=2,
    killed_in_flight=4,
    latencies=(0.1, 0.2, 0.3),
    outcomes=8,
    repeats=1,
    refusals=(),
    seconds=4.0,
)


def test_a_kept_promise_has_no_problems() -> None:
    assert problems(KEPT) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"journal": (*KEPT.journal, Payment("order-1/charge#2", applied=True))}, "was applied 2 times"),
        ({"journal": (Payment("order-1/charge#2", applied=False),)}, "never applied"),
        ({"journal": ()}, "order-1 was paid 0 times instead of 1"),
        ({"journal": (*KEPT.journal, Payment("order-2/charge#2", applied=True))}, "order-2 was paid 1 times"),
        ({"journal": (*KEPT.journal, Payment("order-1/charge#3", applied=True))}, "order-1 was paid 2 times"),
        ({"states": {**KEPT.states, "order-1": ThreadState.RUNNING}}, "order-1 is running"),
        ({"states": {"order-2": ThreadState.COMPLETED, "order-3": ThreadState.ENDED}}, "order-1 is missing"),
        ({"results": {**KEPT.results, "order-2": "shipped"}}, "order-2 is completed, shipped instead of"),
        ({"refusals": ("order-3: resume stale",)}, "refused: order-3"),
    ],
)
def test_each_broken_promise_is_told(change: dict[str, Any], told: str) -> None:
    assert any(told in problem for problem in problems(replace(KEPT, **change)))


def test_many_problems_are_cut() -> None:
    shown = problems(replace(KEPT, refusals=[f"order-{number}" for number in range(50)]))
    assert len(shown) == 11
    assert shown[-1] == "and 40 more"


def test_the_table() -> None:
    table = dict(report_rows(KEPT))
    assert table["threads completed"] == "2"
    assert table["payments asked for"] == "2"
    assert table["payments applied"] == "1, for 1 idempotency keys"
    assert table["recoveries"] == "2"
    assert table["throughput"] == "2.0 outcomes/s"
    assert table["latency p50 / p95 / p99, takeover included"] == "200 ms / 300 ms / 300 ms"


def test_the_document_tells_the_same() -> None:
    document = report_document(KEPT)
    assert (document["is_kept"], document["problems"]) == (True, [])
    assert (document["payments_asked"], document["payments_applied"]) == (2, 1)
    assert document["threads"] == {"completed": 2, "ended": 1}
    assert document["latency"] == {"p50": 0.2, "p95": 0.3, "p99": 0.3}
    assert report_document(replace(KEPT, journal=()))["is_kept"] is False


def test_percentiles_are_of_the_nearest_rank() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([], 0.5) == 0.0


def _row(sequence: int, recoveries: int) -> Row:
    return Row(
        sequence,
        Checkpoint(
            schema_version="1.7.0",
            thread_id="order-1",
            status=Status.RUNNING,
            suspended_node=None,
            next_node="charge",
            frozen_state="{}",
            metadata={"strata.recoveries": str(recoveries)} if recoveries else None,
            created_at="2026-01-02T03:04:05Z",
        ),
    )


def test_recoveries_are_counted_from_the_log() -> None:
    log = [_row(sequence, count) for sequence, count in enumerate((0, 1, 2, 0, 0, 1))]
    assert recoveries_in(log) == 3
    assert recoveries_in([]) == 0


def test_the_plan_repeats_with_its_seed_and_has_everything() -> None:
    plan = plan_orders(300, seed=1)
    assert plan == plan_orders(300, seed=1)
    assert plan != plan_orders(300, seed=2)
    assert {planned.verdict for planned in plan if planned.needs_approval} == set(Verdict)
    assert {planned.order.pay_by for planned in plan} == {"card", "invoice"}
    assert any(planned.order.new_customer for planned in plan)
    assert len({planned.thread_id for planned in plan}) == 300
