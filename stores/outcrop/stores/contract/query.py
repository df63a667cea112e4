"""Listing threads: filters, order, summaries and pages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.query import ThreadQuery
from outcrop.stores.record import GraphIdentity, Status, ThreadState, Wait, WaitKind

from .case import Capability
from .refusal import refused
from .samples import SHAPES, sample

if TYPE_CHECKING:
    from outcrop.stores.port import Store
    from outcrop.stores.query import ThreadSummary
    from outcrop.stores.record import Checkpoint

capability = Capability("query")

_ORDERS = GraphIdentity("orders", "1")
_SEEDS: Final = (
    sample("a", metadata={"tenant": "acme", "region": "eu"}, created_at="2026-01-01T00:00:00Z"),
    sample("b", Status.FAILED, metadata={"tenant": "acme"}, created_at="2026-01-02T00:00:00Z"),
    sample("c", Status.RUNNING, next_node="N", created_at="2026-01-03T00:00:00Z", graph=_ORDERS),
    sample("d", Status.INTERRUPTED, created_at="2026-01-04T00:00:00Z", graph=GraphIdentity("orders", "2"),
           wait=Wait(WaitKind.TIMER, wake_at="2026-02-01T00:00:00Z")),
    sample("e", Status.INTERRUPTED, created_at="2026-01-05T00:00:00Z", metadata={"tenant": "ACME"},
           nested=sample("Work", Status.INTERRUPTED, graph=_ORDERS,
                         wait=Wait(WaitKind.HUMAN, wake_at="2026-03-01T00:00:00Z"))),
    sample("f", Status.INTERRUPTED, created_at="2026-01-05T00:00:00Z", graph=GraphIdentity("orders"),
           wait=Wait(WaitKind.EVENT, event_type="paid")),
    sample("g", Status.INTERRUPTED, created_at="2026-01-01T00:00:00Z", resumed_at="2026-01-06T00:00:00Z",
           wait=Wait(WaitKind.TIMER, wake_at="2026-02-01T00:00:00Z"), metadata={"a.b": 'x"y', "$": "'"}),
    sample("h", Status.CANCELLED, created_at="2026-01-07T00:00:00Z", metadata={"n": "1"}),
    sample("i", Status.ENDED, created_at="2026-01-08T00:00:00Z", metadata={}),
)  # fmt: skip
_FILTERS: Final = {
    "ihgfedcba": ThreadQuery(),
    "a": ThreadQuery(states={ThreadState.COMPLETED}),
    "hb": ThreadQuery(states={ThreadState.FAILED, ThreadState.CANCELLED}),
    "fed": ThreadQuery(states={ThreadState.INTERRUPTED}),
    "g": ThreadQuery(states={ThreadState.RESUMED}),
    "c": ThreadQuery(states={ThreadState.RUNNING}),
    "i": ThreadQuery(states={ThreadState.ENDED}),
    "ba": ThreadQuery(metadata={"tenant": "acme"}),
    "a ": ThreadQuery(metadata={"tenant": "acme", "region": "eu"}),
    "b": ThreadQuery(metadata={"tenant": "acme"}, states={ThreadState.FAILED}),
    "g ": ThreadQuery(metadata={"a.b": 'x"y', "$": "'"}),
    "h": ThreadQuery(metadata={"n": "1"}),
    "": ThreadQuery(metadata={"a": "b"}),
    "ihg": ThreadQuery(updated_after=datetime(2026, 1, 5, tzinfo=UTC)),
    "ihg ": ThreadQuery(updated_after=datetime(2026, 1, 5, 0, 0, 0, 999999, tzinfo=UTC)),
    "dcba": ThreadQuery(updated_before=datetime(2026, 1, 5, tzinfo=UTC)),
    "cb": ThreadQuery(
        updated_after=datetime(2026, 1, 1, tzinfo=UTC), updated_before=datetime(2026, 1, 4, tzinfo=UTC)
    ),
    "d": ThreadQuery(due_by=datetime(2026, 2, 1, tzinfo=UTC)),
    "ed": ThreadQuery(due_by=datetime(2026, 12, 1, tzinfo=UTC)),
    " ": ThreadQuery(due_by=datetime(2026, 1, 31, tzinfo=UTC)),
    "fdc": ThreadQuery(graph_id="orders"),
    "d ": ThreadQuery(graph_id="orders", graph_version="2"),
    "  ": ThreadQuery(graph_id="orders", graph_version="3"),
    "d  ": ThreadQuery(graph_id="orders", states={ThreadState.INTERRUPTED}, graph_version="2",
                       due_by=datetime(2026, 12, 1, tzinfo=UTC)),
}  # fmt: skip


async def _seed(store: Store) -> None:
    for row in _SEEDS:
        await store.save(sample(row.thread_id, created_at="2025-01-01T00:00:00Z", metadata={"old": "row"}))
        await store.save(row)


async def _all(store: Store, query: ThreadQuery) -> list[ThreadSummary]:
    threads: list[ThreadSummary] = []
    for _ in range(len(_SEEDS) * 12):
        page = await store.list_threads(query)
        assert len(page.threads) <= query.limit
        threads.extend(page.threads)
        if page.next_cursor is None:
            return threads
        query = replace(query, cursor=page.next_cursor)
    raise AssertionError("the cursor never ended")


@capability.case
async def filters_look_at_latest_rows_newest_first(store: Store) -> None:
    """B1: ties go by thread ID, downwards too."""
    await _seed(store)
    for expected, query in _FILTERS.items():
        found = [summary.thread_id for summary in await _all(store, query)]
        assert "".join(found) == expected.strip(), query


@capability.case
async def pages_follow_each_other_without_gaps(store: Store) -> None:
    """B1, B5: the same threads in the same order, whatever the limit."""
    await _seed(store)
    for expected, query in _FILTERS.items():
        for limit in (1, 2, 3):
            found = [summary.thread_id for summary in await _all(store, replace(query, limit=limit))]
            assert "".join(found) == expected.strip(), (query, limit)


@capability.case
async def a_thread_saved_again_moves_up(store: Store) -> None:
    await _seed(store)
    await store.save(sample("a", created_at="2026-06-01T00:00:00Z"))
    assert [summary.thread_id for summary in await _all(store, ThreadQuery(limit=2))][:2] == ["a", "i"]
    assert await _all(store, ThreadQuery(metadata={"region": "eu"})) == []


@capability.case
async def summaries_say_what_the_row_says(store: Store) -> None:
    """B2: of every shape."""
    rows = {name: replace(row, thread_id=name) for name, row in SHAPES.items()}
    for row in rows.values():
        await store.save(sample(row.thread_id))
        await store.save(row)
    found = {summary.thread_id: summary for summary in await _all(store, ThreadQuery())}
    assert found.keys() == rows.keys()
    for name, row in rows.items():
        _same(found[name], row)


def _same(summary: ThreadSummary, row: Checkpoint) -> None:
    assert (summary.sequence, summary.state, summary.status) == (1, row.state, row.status)
    assert (summary.suspended_node, summary.next_node) == (row.suspended_node, row.next_node)
    assert summary.waiting_at == row.waiting_at
    assert summary.metadata == (row.metadata or {})
    assert summary.updated_at == row.updated_at
    assert summary.schema_version == row.schema_version
    assert (summary.wait, summary.graph) == (row.innermost.wait, row.graph)


@capability.case
async def bad_queries_are_a_callers_bug(store: Store) -> None:
    """B4."""
    for limit in (0, 1001):
        message = f"a page size must be between 1 and 1000, not {limit}"
        await refused(store.list_threads(ThreadQuery(limit=limit)), InvalidRequest, message)
    for cursor in ("", "x", "not a cursor", "WyJhIl0", "e30", "WzEsMl0", "é"):
        message = f"'{cursor}' is not a thread listing cursor"
        await refused(store.list_threads(ThreadQuery(cursor=cursor)), InvalidRequest, message)
    message = "a thread query's graph_version needs a graph_id"
    await refused(store.list_threads(ThreadQuery(graph_version="1")), InvalidRequest, message)
