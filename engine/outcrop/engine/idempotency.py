"""The idempotency key of one execution of one node.

The same on every retry and recovery of that execution, and of no other of its run, however often
that waits, fails, forks or is run again from an earlier row: hops count the nodes run so far at
each level, and survive a crash in the rows of a durable run. Without those rows (Boundaries)
only the run's ID keeps two runs' keys apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def idempotency_key(thread_id: str, node_path: str, hops: Sequence[int], *, run_id: str | None) -> str:
    """The key, like `order-1042/charge#2` or `order-1042/work/charge#2.1@run-7`.

    `hops` has the node's hop at each level from the outermost in, counted from 1; `run_id`
    is None for a durable run.
    """
    visit = f"{thread_id}/{node_path}#{'.'.join(map(str, hops))}"
    return visit if run_id is None else f"{visit}@{run_id}"
