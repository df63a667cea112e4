"""The end of the demonstration: what happened, in numbers, and whether it is what was promised. Pure.

The promise: every thread at its planned end, and every payment applied exactly once, told by
the journal that the payment service kept and not by the workers.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outcrop.engine.metadata import RECOVERIES
from outcrop.stores import ThreadState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outcrop.stores import Row

    from .plan import PlannedOrder

_SHOWN_PROBLEMS = 10
_SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Payment:
    """One request in the payment service's journal."""

    key: str
    applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was measured."""

    orders: Sequence[PlannedOrder]
    states: Mapping[str, ThreadState]
    results: Mapping[str, str]
    journal: Sequence[Payment]
    recoveries: int
    killed_in_flight: int
    latencies: Sequence[float]
    outcomes: int
    repeats: int
    refusals: Sequence[str]
    seconds: float


def report_rows(facts: Facts) -> list[tuple[str, str]]:
    """The table at the end."""
    by_state = Counter(state.value for state in facts.states.values())
    by_result = Counter(facts.results.values())
    applied = sum(payment.applied for payment in facts.journal)
    return [
        *((f"threads {state}", str(number)) for state, number in sorted(by_state.items())),
        *((f"orders {result}", str(number)) for result, number in sorted(by_result.items())),
        ("runs in flight when a worker was killed", str(facts.killed_in_flight)),
        ("recoveries", str(facts.recoveries)),
        ("payments asked for", str(len(facts.journal))),
        ("payments applied", f"{applied}, for {len(_keys(facts.journal))} idempotency keys"),
        ("outcomes", f"{facts.outcomes} (and {facts.repeats} repeated)"),
        ("time", f"{facts.seconds:.1f} s"),
        ("throughput", f"{facts.outcomes / facts.seconds:.1f} outcomes/s" if facts.seconds else "-"),
        ("latency p50 / p95 / p99, takeover included", " / ".join(_milliseconds(facts.latencies))),
    ]


def report_document(facts: Facts) -> dict[str, object]:
    """The same for programs; times in seconds."""
    return {
        "is_kept": not problems(facts),
        "problems": problems(facts),
        "threads": dict(Counter(state.value for state in facts.states.values())),
        "orders": dict(Counter(facts.results.values())),
        "killed_in_flight": facts.killed_in_flight,
        "recoveries": facts.recoveries,
        "payments_asked": len(facts.journal),
        "payments_applied": sum(payment.applied for payment in facts.journal),
        "outcomes": facts.outcomes,
        "repeats": facts.repeats,
        "seconds": facts.seconds,
        "latency": {f"p{share * 100:.0f}": percentile(facts.latencies, share) for share in _SHARES},
    }


def problems(facts: Facts) -> list[str]:
    """Where the promise was broken; empty when it was kept."""
    found = [*_unplanned_ends(facts), *_payment_faults(facts)]
    found += [f"refused: {refusal}" for refusal in facts.refusals]
    if len(found) > _SHOWN_PROBLEMS:
        return [*found[:_SHOWN_PROBLEMS], f"and {len(found) - _SHOWN_PROBLEMS} more"]
    return found


def recoveries_in(log: Sequence[Row]) -> int:
    """How often the thread of this log was recovered: each claim counts one up from the row before."""
    counts = [int((row.checkpoint.metadata or {}).get(RECOVERIES, "0")) for row in log]
    return sum(later > earlier for earlier, later in zip([0, *counts], counts, strict=False))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them doesn't exceed (nearest rank); 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0


def _milliseconds(latencies: Sequence[float]) -> list[str]:
    return [f"{percentile(latencies, share) * 1000:.0f} ms" for share in _SHARES]


def _unplanned_ends(facts: Facts) -> list[str]:
    found: list[str] = []
    for planned in facts.orders:
        state = facts.states.get(planned.thread_id)
        result = facts.results.get(planned.thread_id)
        if planned.is_paid:
            wanted: tuple[ThreadState, str | None] = (ThreadState.COMPLETED, "shipped")
        elif planned.verdict == "reject":
            wanted = (ThreadState.COMPLETED, "released")
        else:
            wanted = (ThreadState.ENDED, "open")
        if (state, result) != wanted:
            told = "missing" if state is None else f"{state.value}, {result}"
            found.append(f"{planned.thread_id} is {told} instead of {wanted[0].value}, {wanted[1]}")
    return found


def _payment_faults(facts: Facts) -> list[str]:
    applied = Counter(payment.key for payment in facts.journal if payment.applied)
    found = [f"{key} was applied {times} times" for key, times in applied.items() if times > 1]
    found += [f"{key} was asked for and never applied" for key in _keys(facts.journal) if key not in applied]
    paid = Counter(key.partition("/")[0] for key in applied)
    for planned in facts.orders:
        wanted = 1 if planned.is_paid else 0
        if paid[planned.thread_id] != wanted:
            found.append(f"{planned.thread_id} was paid {paid[planned.thread_id]} times instead of {wanted}")
    return found


def _keys(journal: Sequence[Payment]) -> set[str]:
    return {payment.key for payment in journal}
