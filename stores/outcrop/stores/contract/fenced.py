"""Saving under a lease: only the holder of the thread's latest token gets a row in."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.port import LeaseLost, NotLatest, Saved

from .case import Capability
from .leases import SHORT, acquired
from .refusal import refused
from .samples import sample

if TYPE_CHECKING:
    from outcrop.stores.port import Store

    from .case import PassTime

capability = Capability("fenced")


@capability.case
async def the_holder_saves(store: Store) -> None:
    """C3."""
    lease = await acquired(store)
    assert await store.save(sample(), lease=lease) == Saved(0)
    assert await store.save(sample(), expected=5, lease=lease) == NotLatest()
    assert await store.save(sample(), expected=0, lease=lease) == Saved(1)


@capability.case
async def a_previous_owner_saves_nothing(store: Store) -> None:
    """C6, C8: a lost lease is reported before a moved log."""
    old = await acquired(store)
    await store.save(sample(metadata={"by": "old"}), lease=old)
    await store.release_lease(old)
    new = await acquired(store, "worker-2")
    for expected in (None, 0, 7):
        assert await store.save(sample(metadata={"by": "old"}), expected=expected, lease=old) == LeaseLost()
    assert await store.save(sample(metadata={"by": "new"}), expected=0, lease=new) == Saved(1)
    page = await store.get_log("t")
    assert [row.checkpoint.metadata for row in page.entries] == [{"by": "old"}, {"by": "new"}]


@capability.timed_case
async def only_the_token_decides(store: Store, pass_time: PassTime) -> None:
    """C7: an expired or released lease that nobody took still saves."""
    lease = await acquired(store, ttl=SHORT)
    await pass_time(SHORT + timedelta(milliseconds=1))
    assert await store.get_lease("t") is None
    assert await store.save(sample(), lease=lease) == Saved(0)
    await store.release_lease(lease)
    assert await store.save(sample(), expected=0, lease=lease) == Saved(1)
    assert await store.save(sample(), lease=replace(lease, owner="somebody else")) == Saved(2)


@capability.case
async def a_thread_without_a_lease_record_refuses(store: Store) -> None:
    lease = await acquired(store)
    assert await store.save(sample("other"), lease=replace(lease, thread_id="other")) == LeaseLost()
    assert await store.load("other") is None


@capability.case
async def saves_without_a_lease_go_through(store: Store) -> None:
    """C9: a lease fences leased saves only."""
    await acquired(store)
    assert await store.save(sample()) == Saved(0)
    assert await store.save(sample(), expected=0) == Saved(1)


@capability.case
async def another_threads_lease_is_a_callers_bug(store: Store) -> None:
    """C11."""
    lease = await acquired(store, thread_id="other")
    message = "the lease is for thread 'other', not the checkpoint's thread 't'"
    await refused(store.save(sample(), lease=lease), InvalidRequest, message)
    assert await store.load("t") is None


@capability.case
async def the_last_save_frees_the_thread(store: Store) -> None:
    """`release` frees it with the row; the token goes on counting."""
    lease = await acquired(store)
    assert await store.save(sample(), lease=lease) == Saved(0)
    assert await store.get_lease("t") == lease
    assert await store.save(sample(), expected=0, lease=lease, release=True) == Saved(1)
    assert await store.get_lease("t") is None
    assert await store.save(sample(), lease=lease) == Saved(2)  # only the token decides, as after any release
    again = await acquired(store, "worker-2")
    assert again.token == lease.token + 1
    assert await store.save(sample(), lease=lease, release=True) == LeaseLost()
    assert await store.get_lease("t") == again


@capability.case
async def a_refused_save_frees_nothing(store: Store) -> None:
    lease = await acquired(store)
    assert await store.save(sample(), expected=3, lease=lease, release=True) == NotLatest()
    assert await store.get_lease("t") == lease
    assert await store.load("t") is None


@capability.case
async def without_a_lease_there_is_nothing_to_release(store: Store) -> None:
    message = "a save of thread 't' has no lease to release"
    await refused(store.save(sample(), release=True), InvalidRequest, message)
    assert await store.load("t") is None
