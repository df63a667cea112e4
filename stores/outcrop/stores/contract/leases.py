"""Leases: one live holder a thread, and tokens that only ever count up."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from outcrop.stores.errors import InvalidRequest
from outcrop.stores.port import EMPTY_LOG, Acquired, Held, NotLatest

from .case import Capability
from .refusal import refused
from .samples import sample

if TYPE_CHECKING:
    from outcrop.stores.port import LeaseStore, Store
    from outcrop.stores.record import Lease

    from .case import PassTime

capability = Capability("leases")

TTL = timedelta(minutes=5)
SHORT = timedelta(milliseconds=200)


async def acquired(
    store: LeaseStore, owner: str = "worker-1", *, thread_id: str = "t", ttl: timedelta = TTL
) -> Lease:
    """The thread's lease, which must be free."""
    answer = await store.acquire_lease(thread_id, owner, ttl)
    assert isinstance(answer, Acquired)
    return answer.lease


@capability.case
async def the_first_token_is_one(store: Store) -> None:
    """C1."""
    assert await store.get_lease("t") is None
    lease = await acquired(store)
    assert (lease.thread_id, lease.owner, lease.token) == ("t", "worker-1", 1)
    assert lease.expires_at.utcoffset() == timedelta(0)
    assert await store.get_lease("t") == lease


@capability.case
async def a_held_thread_refuses_everyone(store: Store) -> None:
    """C2: the holder's own name included, and nothing changes."""
    lease = await acquired(store)
    for owner in ("worker-2", "worker-1"):
        answer = await store.acquire_lease("t", owner, TTL)
        assert answer == Held(lease)
    assert await store.get_lease("t") == lease


@capability.case
async def renewing_extends_from_now(store: Store) -> None:
    """C4: the same token, a later expiry."""
    lease = await acquired(store, ttl=timedelta(seconds=30))
    renewed = await store.renew_lease(lease, TTL)
    assert renewed is not None
    assert (renewed.owner, renewed.token) == (lease.owner, lease.token)
    assert renewed.expires_at > lease.expires_at
    assert await store.get_lease("t") == renewed


@capability.case
async def releasing_frees_at_once_and_keeps_the_token(store: Store) -> None:
    """C5: a repeat is true again."""
    lease = await acquired(store)
    assert await store.release_lease(lease)
    assert await store.get_lease("t") is None
    assert await store.release_lease(lease)
    assert (await acquired(store, "worker-2")).token == 2


@capability.case
async def a_previous_owner_changes_nothing(store: Store) -> None:
    """C6."""
    old = await acquired(store)
    await store.release_lease(old)
    new = await acquired(store, "worker-2")
    assert await store.renew_lease(old, TTL) is None
    assert not await store.release_lease(old)
    assert await store.get_lease("t") == new


@capability.timed_case
async def an_expired_lease_is_free_and_renewable(store: Store, pass_time: PassTime) -> None:
    """C7: until somebody takes it, its owner may have it back."""
    lease = await acquired(store, ttl=SHORT)
    await pass_time(SHORT)  # expired at exactly now is expired
    assert await store.get_lease("t") is None
    renewed = await store.renew_lease(lease, TTL)
    assert renewed is not None
    assert await store.get_lease("t") == renewed


@capability.timed_case
async def an_expired_lease_taken_over_is_lost(store: Store, pass_time: PassTime) -> None:
    """C8."""
    old = await acquired(store, ttl=SHORT)
    await pass_time(SHORT)
    new = await acquired(store, "worker-2")
    assert new.token == old.token + 1
    assert await store.renew_lease(old, TTL) is None
    assert not await store.release_lease(old)
    assert await store.get_lease("t") == new


@capability.case
async def renewing_a_released_lease_takes_it_again(store: Store) -> None:
    lease = await acquired(store)
    await store.release_lease(lease)
    renewed = await store.renew_lease(lease, TTL)
    assert renewed is not None
    assert await store.get_lease("t") == renewed


@capability.case
async def leases_are_per_thread(store: Store) -> None:
    """C10: and a thread needs no row to have one."""
    one = await acquired(store, thread_id="a")
    other = await acquired(store, "worker-2", thread_id="b")
    assert (one.token, other.token) == (1, 1)
    assert await store.release_lease(one)
    assert await store.get_lease("b") == other


@capability.case
async def one_of_many_at_once_acquires(store: Store) -> None:
    for token in range(1, 6):
        answers = await asyncio.gather(*(store.acquire_lease("t", f"worker-{at}", TTL) for at in range(8)))
        taken = [answer.lease for answer in answers if isinstance(answer, Acquired)]
        assert [lease.token for lease in taken] == [token]
        assert all(answer.lease == taken[0] for answer in answers if isinstance(answer, Held))
        await store.release_lease(taken[0])


@capability.case
async def bad_arguments_are_a_callers_bug(store: Store) -> None:
    """C11: refused before anything is read or written."""
    for owner in ("", " \t\n"):
        await refused(store.acquire_lease("t", owner, TTL), InvalidRequest, "a lease needs an owner")
    message = "a lease's ttl must be at least 1 millisecond"
    lease = await acquired(store)
    for ttl in (timedelta(0), timedelta(microseconds=999), timedelta(seconds=-1)):
        await refused(store.acquire_lease("u", "worker-1", ttl), InvalidRequest, message)
        await refused(store.renew_lease(lease, ttl), InvalidRequest, message)
    message = "a lease's ttl must be at most 36500 days"
    for ttl in (timedelta(days=3_650_000), timedelta.max):  # their ends are no dates
        await refused(store.acquire_lease("u", "worker-1", ttl), InvalidRequest, message)
        await refused(store.renew_lease(lease, ttl), InvalidRequest, message)
    assert await store.get_lease("u") is None
    assert await store.get_lease("t") == lease


@capability.case
async def acquiring_at_the_end_of_the_log(store: Store) -> None:
    """With `expected`, a lease goes only to who has seen the whole log."""
    at_the_start = await store.acquire_lease("t", "worker-1", TTL, expected=EMPTY_LOG)
    assert isinstance(at_the_start, Acquired)
    assert at_the_start.lease.token == 1
    await store.save(sample(), lease=at_the_start.lease, release=True)
    at_a_row = await store.acquire_lease("t", "worker-2", TTL, expected=0)
    assert isinstance(at_a_row, Acquired)
    assert at_a_row.lease.token == 2
    assert await store.get_lease("t") == at_a_row.lease


@capability.case
async def acquiring_with_the_log_moved_takes_nothing(store: Store) -> None:
    """Not even a token, and an expired or released lease stays its last owner's."""
    assert await store.acquire_lease("t", "worker-1", TTL, expected=0) == NotLatest()
    await store.save(sample())
    for expected in (EMPTY_LOG, 1):
        assert await store.acquire_lease("t", "worker-1", TTL, expected=expected) == NotLatest()
    assert await store.get_lease("t") is None
    first = await acquired(store)
    assert first.token == 1
    await store.release_lease(first)
    assert await store.acquire_lease("t", "worker-2", TTL, expected=7) == NotLatest()
    assert await store.release_lease(first)  # its token is still the latest
    assert (await acquired(store, "worker-2")).token == 2


@capability.case
async def a_held_thread_is_reported_before_a_moved_log(store: Store) -> None:
    lease = await acquired(store)
    await store.save(sample())
    for expected in (EMPTY_LOG, 0, 5):
        assert await store.acquire_lease("t", "worker-2", TTL, expected=expected) == Held(lease)
    assert await store.get_lease("t") == lease


@capability.timed_case
async def acquiring_an_expired_lease_looks_at_the_log_as_well(store: Store, pass_time: PassTime) -> None:
    await acquired(store, ttl=SHORT)
    await store.save(sample())
    await pass_time(SHORT)
    assert await store.acquire_lease("t", "worker-2", TTL, expected=EMPTY_LOG) == NotLatest()
    answer = await store.acquire_lease("t", "worker-2", TTL, expected=0)
    assert isinstance(answer, Acquired)
    assert answer.lease.token == 2


@capability.case
async def renewals_work_from_another_threads_loop(store: Store) -> None:
    """A renewer's leases are the store's own, on a loop that a blocked main loop can't stop."""
    lease = await acquired(store, ttl=timedelta(seconds=30))
    renewed: list[Lease | None] = []

    async def renew() -> None:
        async with store.renewals() as leases:
            renewed.append(await leases.renew_lease(lease, TTL))
            renewed.append(await leases.get_lease("t"))

    thread = threading.Thread(target=lambda: asyncio.run(renew()))
    thread.start()
    thread.join()  # blocks this loop all the while
    assert renewed[0] is not None
    assert renewed[0] == renewed[1] == await store.get_lease("t")
