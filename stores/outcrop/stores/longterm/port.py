"""The port of a long-term memory store: records found by what their vectors mean.

The docstrings here are the contract; adapters don't repeat them. One store has one number of
dimensions. Every method raises `InvalidRequest` for arguments that break a record's or a
query's rules, before anything is read or written, and may raise `StoreError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .record import Listing, Match, Purge, Record, RecordKey, RecordPage, Search


class LongTermRetention(Protocol):
    """Deleting old records."""

    async def purge(self, purge: Purge) -> int:
        """Delete what `purge` names, oldest first, then by namespace, tenant and ID; return how many."""
        ...


class LongTermStore(LongTermRetention, Protocol):
    """Records by namespace, tenant and ID, searched by vector."""

    async def upsert(self, record: Record) -> None:
        """Write the record in place of the one of its key, if there is one."""
        ...

    async def upsert_many(self, records: Sequence[Record]) -> None:
        """Write all the records: in one atomic step in SQL and in memory, one by one in Redis.

        All are checked before any is written. Of two with one key the later is kept.
        """
        ...

    async def get(self, key: RecordKey) -> Record | None:
        """The record of this key, or None."""
        ...

    async def delete(self, key: RecordKey) -> bool:
        """Delete the record of this key; whether there was one."""
        ...

    async def search(self, search: Search) -> tuple[Match, ...]:
        """The records most like the search's vector, most alike first, ties by ID."""
        ...

    async def list_records(self, listing: Listing) -> RecordPage:
        """One page of records, by ID in byte order."""
        ...

    async def close(self) -> None:
        """Release connections and threads; idempotent."""
        ...
