"""Reading back a thread's log in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.errors import InvalidRequest

from .case import Capability
from .refusal import refused
from .samples import SHAPES, sample

if TYPE_CHECKING:
    from outcrop.stores.port import Store

capability = Capability("log")


@capability.case
async def a_log_keeps_every_row_in_order(store: Store) -> None:
    """A11, B3: entries equal what was saved."""
    rows = [sample(metadata={"shape": name}, decision=row.decision) for name, row in SHAPES.items()]
    for row in rows:
        await store.save(row)
    await store.save(sample("u"))
    page = await store.get_log("t")
    assert [entry.sequence for entry in page.entries] == list(range(len(rows)))
    assert [entry.checkpoint for entry in page.entries] == rows
    assert page.next_after is None


@capability.case
async def pages_are_cut_at_the_limit(store: Store) -> None:
    """B3: a full page says where the next begins, even when nothing follows."""
    for _ in range(5):
        await store.save(sample())
    expected: dict[tuple[int | None, int], tuple[list[int], int | None]] = {
        (None, 2): ([0, 1], 1),
        (1, 2): ([2, 3], 3),
        (3, 2): ([4], None),
        (2, 2): ([3, 4], 4),
        (4, 2): ([], None),
        (None, 5): ([0, 1, 2, 3, 4], 4),
        (-1, 6): ([0, 1, 2, 3, 4], None),
        (99, 1): ([], None),
    }
    for (after, limit), (sequences, next_after) in expected.items():
        page = await store.get_log("t", after=after, limit=limit)
        assert ([entry.sequence for entry in page.entries], page.next_after) == (sequences, next_after)


@capability.case
async def an_unknown_thread_has_an_empty_page(store: Store) -> None:
    page = await store.get_log("nobody")
    assert (page.entries, page.next_after) == ((), None)


@capability.case
async def limits_are_checked(store: Store) -> None:
    """B4."""
    for limit in (0, 1001, -1):
        message = f"a page size must be between 1 and 1000, not {limit}"
        await refused(store.get_log("t", limit=limit), InvalidRequest, message)
    assert (await store.get_log("t", limit=1000)).entries == ()
