"""Purging whole threads, oldest first, and never one that somebody holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.port import Saved
from outcrop.stores.query import ThreadQuery
from outcrop.stores.record import Status, ThreadState

from .case import Capability
from .leases import SHORT, acquired
from .refusal import refused
from .samples import sample

if TYPE_CHECKING:
    from outcrop.stores.port import Store

    from .case import PassTime

capability = Capability("retention")

_CUTOFF: Final = datetime(2026, 1, 10, tzinfo=UTC)
_FINISHED: Final = frozenset({ThreadState.COMPLETED, ThreadState.ENDED})
_OLD = "2026-01-01T00:00:00Z"


async def _threads(store: Store) -> set[str]:
    return {summary.thread_id for summary in (await store.list_threads(ThreadQuery())).threads}


@capability.case
async def old_finished_threads_go_completely(store: Store) -> None:
    """I1: newer ones, one exactly at the cutoff, and other states stay."""
    await store.save(sample("old", Status.INTERRUPTED, created_at=_OLD))
    await store.save(sample("old", created_at="2026-01-09T23:59:59Z"))
    await store.save(sample("ended", Status.ENDED, created_at=_OLD))
    await store.save(sample("cutoff", created_at="2026-01-10T00:00:00Z"))
    await store.save(sample("new", created_at="2026-01-11T00:00:00Z"))
    await store.save(sample("failed", Status.FAILED, created_at=_OLD))
    await store.save(sample("waiting", Status.INTERRUPTED, created_at=_OLD))
    await store.save(sample("revived", created_at=_OLD))
    await store.save(sample("revived", Status.RUNNING, next_node="N", created_at=_OLD))
    assert await store.purge(_CUTOFF, states=_FINISHED) == 2
    assert await _threads(store) == {"cutoff", "new", "failed", "waiting", "revived"}
    for thread_id in ("old", "ended"):
        assert await store.load(thread_id) is None
        assert (await store.get_log(thread_id)).entries == ()
    assert await store.purge(_CUTOFF, states=_FINISHED) == 0


@capability.case
async def only_named_states_go(store: Store) -> None:
    """I2: a resumed thread is `resumed`, whatever its status; no state names nothing."""
    await store.save(sample("failed", Status.FAILED, created_at=_OLD))
    await store.save(sample("resumed", Status.FAILED, created_at=_OLD, resumed_at=_OLD))
    await store.save(sample("completed", created_at=_OLD))
    assert await store.purge(_CUTOFF, states=frozenset()) == 0
    assert await store.purge(_CUTOFF, states={ThreadState.FAILED}) == 1
    assert await _threads(store) == {"resumed", "completed"}
    assert await store.purge(_CUTOFF, states={ThreadState.RESUMED, ThreadState.RUNNING}) == 1
    assert await _threads(store) == {"completed"}


@capability.case
async def the_limit_takes_the_oldest_first(store: Store) -> None:
    """I3: then by thread ID; a held thread takes no place."""
    for thread_id, day in (("b", 2), ("a", 2), ("c", 1), ("d", 3), ("held", 1)):
        await store.save(sample(thread_id, created_at=f"2026-01-0{day}T00:00:00Z"))
    await acquired(store, thread_id="held")
    left = {"a", "b", "c", "d", "held"}
    for gone in ("c", "a", "b"):
        assert await store.purge(_CUTOFF, states=_FINISHED, limit=1) == 1
        left.remove(gone)
        assert await _threads(store) == left
    assert await store.purge(_CUTOFF, states=_FINISHED, limit=10) == 1
    assert await _threads(store) == {"held"}


@capability.case
async def limits_are_checked(store: Store) -> None:
    """I3."""
    for limit in (0, 1001):
        message = f"a page size must be between 1 and 1000, not {limit}"
        await refused(store.purge(_CUTOFF, states=_FINISHED, limit=limit), InvalidRequest, message)


@capability.case
async def a_time_without_a_zone_is_a_callers_bug(store: Store) -> None:
    """Read as local time, it would purge what finished just now."""
    await store.save(sample())
    naive = (_CUTOFF + timedelta(days=36_500)).replace(tzinfo=None)
    await refused(store.purge(naive, states=_FINISHED), InvalidRequest, "a time needs a time zone")
    for query in (
        ThreadQuery(updated_after=naive),
        ThreadQuery(updated_before=naive),
        ThreadQuery(due_by=naive),
    ):
        await refused(store.list_threads(query), InvalidRequest, "a time needs a time zone")
    assert await store.load("t") is not None


@capability.timed_case
async def a_purged_thread_starts_anew(store: Store, pass_time: PassTime) -> None:
    """I4, I5: sequences from 0, tokens from 1."""
    await store.save(sample(created_at=_OLD))
    first = await acquired(store)
    assert await store.purge(_CUTOFF, states=_FINISHED) == 0
    await store.release_lease(first)
    second = await acquired(store, ttl=SHORT)
    assert second.token == 2
    await pass_time(SHORT)
    assert await store.purge(_CUTOFF, states=_FINISHED) == 1
    assert await store.save(sample(), expected=-1) == Saved(0)
    assert (await acquired(store)).token == 1
