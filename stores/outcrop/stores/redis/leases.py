"""The leases of a Redis prefix, on the server's clock.

A lease is a hash that exists while the thread is held; the tokens come from a counter beside it.
An acquisition whose answer was lost isn't asked for again: it may stand, until its ttl ends.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from outcrop.stores.calls import Calls
from outcrop.stores.errors import CorruptRow, Unavailable
from outcrop.stores.leases import check_owner, from_milliseconds, ttl_milliseconds
from outcrop.stores.port import Acquired, AcquireResult, Held, NotLatest
from outcrop.stores.record import Lease
from outcrop.stores.retries import InDoubt

from .pipeline import Pipeline
from .scripts import ACQUIRE, HOLDER, RELEASE, RENEW

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import timedelta

    from outcrop.stores.port import LeaseStore
    from outcrop.stores.retries import Retries

    from .keys import Keys
    from .pipeline import Replication


class RedisLeases:
    """The leases alone; a renewer has one to itself, on a connection of its own."""

    def __init__(
        self,
        url: str,
        keys: Keys,
        retries: Retries,
        *,
        replication: Replication | None = None,
        read_only: bool = False,
    ) -> None:
        self._url = url
        self._keys = keys
        self._retries = retries
        self._replication = replication
        self._read_only = read_only
        self._pipeline = Pipeline(url, replication, read_only=read_only)
        self._calls = Calls()

    async def acquire_lease(
        self, thread_id: str, owner: str, ttl: timedelta, *, expected: int | None = None
    ) -> AcquireResult:
        check_owner(owner)
        milliseconds = ttl_milliseconds(ttl)
        return await self._calls.whole(
            self._retries.run_at_most_once(lambda: self._acquire(thread_id, owner, milliseconds, expected))
        )

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
        milliseconds = ttl_milliseconds(ttl)
        keys = self._lease_keys(lease.thread_id)
        expiry: int = await self._calls.whole(
            self._retries.run(lambda: self._pipeline.run(RENEW, keys, lease.owner, milliseconds, lease.token))
        )
        return replace(lease, expires_at=from_milliseconds(expiry)) if expiry else None

    async def release_lease(self, lease: Lease) -> bool:
        return await self._calls.whole(self._release(lease))

    async def get_lease(self, thread_id: str) -> Lease | None:
        keys = (self._keys.lease(thread_id),)
        held = await self._retries.run(lambda: self._pipeline.run(HOLDER, keys))
        return None if held is None else _lease(thread_id, *held)

    @asynccontextmanager
    async def renewals(self) -> AsyncGenerator[LeaseStore]:
        # A connection of its own: what is queued on the store's must not delay a renewal.
        leases = RedisLeases(
            self._url,
            self._keys,
            self._retries,
            replication=self._replication,
            read_only=self._read_only,
        )
        try:
            yield leases
        finally:
            await leases._close()

    async def _acquire(
        self, thread_id: str, owner: str, milliseconds: int, expected: int | None
    ) -> AcquireResult:
        keys = (*self._lease_keys(thread_id), self._keys.list(thread_id))
        arguments = (owner, milliseconds, "" if expected is None else expected)
        acknowledged = 0
        if self._replication is None:
            reply = await self._pipeline.run(ACQUIRE, keys, *arguments)
        else:
            reply, acknowledged = await self._pipeline.run_replicated(ACQUIRE, keys, *arguments)
        taken, *lease = reply
        if taken == _MOVED:
            return NotLatest()
        if taken == _HELD:
            return Held(_lease(thread_id, *lease))
        acquired = _lease(thread_id, *lease)
        if self._replication is not None and acknowledged < self._replication.replicas:
            # A failover could give the same token to somebody else: as long as that may be, nobody has it.
            raise await self._given_back(acquired, acknowledged, self._replication.replicas)
        return Acquired(acquired)

    async def _given_back(self, lease: Lease, acknowledged: int, wanted: int) -> InDoubt:
        """Release a lease that too few replicas have; returns the error that says so."""
        reached = f"the lease of thread '{lease.thread_id}' reached {acknowledged} of {wanted} replicas"
        try:
            await self._release(lease)
        except Unavailable:
            return InDoubt(f"{reached}, and couldn't be given back: it ends with its ttl")
        return InDoubt(f"{reached}, and was given back")

    async def _release(self, lease: Lease) -> bool:
        keys = self._lease_keys(lease.thread_id)
        return bool(await self._retries.run(lambda: self._pipeline.run(RELEASE, keys, lease.token)))

    async def _close(self) -> None:
        await self._calls.close()
        await self._pipeline.close()

    def _lease_keys(self, thread_id: str) -> tuple[str, str]:
        return self._keys.lease(thread_id), self._keys.token(thread_id)


_HELD: Final = 0
_MOVED: Final = 2
_NEVER: Final = 253_402_300_799_000  # the end of the year 9999: somebody set a lease without a ttl


def _lease(thread_id: str, token: bytes | None, owner: bytes | None, expires_at: int) -> Lease:
    if token is None or not token.isdigit():
        raise CorruptRow(f"the lease of thread '{thread_id}' has no token")
    name = (owner or b"").decode(errors="replace")
    return Lease(thread_id, name, int(token), from_milliseconds(_NEVER if expires_at < 0 else expires_at))


if TYPE_CHECKING:
    _conforms: type[LeaseStore] = RedisLeases
