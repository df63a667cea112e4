"""Saving without a condition: a thread's log grows by one row, and the last one is the latest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.stores.port import Saved
from outcrop.stores.record import Status

from .case import Capability
from .samples import sample

if TYPE_CHECKING:
    from outcrop.stores.port import Store

capability = Capability("append")


@capability.case
async def an_unknown_thread_has_no_row(store: Store) -> None:
    """A1."""
    assert await store.load("nobody") is None


@capability.case
async def the_last_save_is_the_latest(store: Store) -> None:
    """A3, A12: sequences count from 0, and an older row never comes back."""
    rows = [
        sample(status=Status.INTERRUPTED),
        sample(status=Status.INTERRUPTED, resumed_at="2026-01-02T03:05:00Z", metadata={"by": "alice"}),
        sample(created_at="2026-01-01T00:00:00Z"),  # an older time, and still the latest
    ]
    for sequence, row in enumerate(rows):
        assert await store.save(row) == Saved(sequence)
        latest = await store.load("t")
        assert latest is not None
        assert (latest.sequence, latest.checkpoint) == (sequence, row)


@capability.case
async def threads_are_apart(store: Store) -> None:
    """A4: every thread has its own sequence, whatever its name."""
    names = ["a", "A", "a ", "a:b", "a/b", "é", "日本語", "a%", "a_", "'a'", 'a"', "a\\", "🚀"]
    for name in names:
        assert await store.save(sample(name, metadata={"name": name})) == Saved(0)
    for name in names:
        row = await store.load(name)
        assert row is not None
        assert row.checkpoint.metadata == {"name": name}
    assert await store.save(sample("a")) == Saved(1)


@capability.case
async def a_row_is_not_shared_with_its_caller(store: Store) -> None:
    """What was saved stays, whatever becomes of the caller's mappings or of a loaded row."""
    metadata = {"a": "1"}
    await store.save(sample(metadata=metadata))
    metadata["a"] = "changed"
    first = await store.load("t")
    assert first is not None
    assert first.checkpoint.metadata == {"a": "1"}
    assert isinstance(first.checkpoint.metadata, dict)
    first.checkpoint.metadata["a"] = "changed"
    again = await store.load("t")
    assert again is not None
    assert again.checkpoint.metadata == {"a": "1"}
