"""The long-term memory of this process: a dictionary, gone with it. The port in its plainest form.

Content is kept as JSON text, so that no caller can change what another one reads, and so that
this store refuses what the others would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outcrop.stores.instants import instant_text, parse_instant
from outcrop.stores.leases import system_now

from .answers import page_of_records, rank
from .checks import (
    check_dimensions,
    check_key,
    check_listing,
    check_purge,
    check_record,
    check_search,
)
from .content import decode_content, encode_content
from .record import Embedding, Match
from .vectors import cosine_similarity, to_float32

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from .port import LongTermStore
    from .record import Listing, Purge, Record, RecordKey, RecordPage, Search


@dataclass(frozen=True, slots=True)
class _Kept:
    record: Record
    content: str | None
    updated_at: str


class InProcessLongTermStore:
    """Everything in this process; `clock` dates the records."""

    def __init__(self, *, dimensions: int, clock: Callable[[], datetime] = system_now) -> None:
        check_dimensions(dimensions)
        self._dimensions = dimensions
        self._clock = clock
        self._records: dict[tuple[str, str, str], _Kept] = {}

    async def upsert(self, record: Record) -> None:
        await self.upsert_many([record])

    async def upsert_many(self, records: Sequence[Record]) -> None:
        for record in records:
            check_record(record, self._dimensions)
        contents = [encode_content(record) for record in records]
        now = instant_text(self._clock())
        for record, content in zip(records, contents, strict=True):
            self._keep(record, content, now)

    async def get(self, key: RecordKey) -> Record | None:
        check_key(key)
        kept = self._records.get(_place(key))
        return None if kept is None else _given(kept)

    async def delete(self, key: RecordKey) -> bool:
        check_key(key)
        return self._records.pop(_place(key), None) is not None

    async def search(self, search: Search) -> tuple[Match, ...]:
        check_search(search, self._dimensions)
        wanted = to_float32(search.embedding.vector)
        found = [
            Match(_given(kept), cosine_similarity(wanted, kept.record.embedding.vector))
            for kept in self._of(search.namespace, search.tenant, search.metadata)
            if kept.record.embedding.model == search.embedding.model and kept.record.id not in search.exclude
        ]
        return rank(found, search)

    async def list_records(self, listing: Listing) -> RecordPage:
        after = check_listing(listing)
        found = [
            _given(kept)
            for kept in self._of(listing.namespace, listing.tenant, listing.metadata)
            if kept.record.id > after
        ]
        return page_of_records(sorted(found, key=lambda record: record.id), listing.limit)

    async def purge(self, purge: Purge) -> int:
        check_purge(purge)
        cutoff = instant_text(purge.older_than)
        old = sorted(
            (kept.updated_at, *place)
            for place, kept in self._records.items()
            if kept.updated_at < cutoff
            and purge.namespace in {None, place[0]}
            and purge.tenant in {None, place[1]}
        )[: purge.limit]
        for _, namespace, tenant, record_id in old:
            del self._records[namespace, tenant, record_id]
        return len(old)

    async def close(self) -> None:
        """Keep everything: another part of the process may still read it."""

    def _keep(self, record: Record, content: str | None, now: str) -> None:
        place = _place(record.key)
        before = self._records.get(place)
        moment = parse_instant(now)
        kept = replace(
            record,
            content=None,
            embedding=Embedding(record.embedding.model, tuple(to_float32(record.embedding.vector))),
            metadata=dict(record.metadata),
            created_at=moment if before is None else before.record.created_at,
            updated_at=moment,
        )
        self._records[place] = _Kept(kept, content, now)

    def _of(self, namespace: str, tenant: str, metadata: Mapping[str, str]) -> list[_Kept]:
        pairs = metadata.items()
        return [
            kept
            for place, kept in self._records.items()
            if place[:2] == (namespace, tenant) and pairs <= kept.record.metadata.items()
        ]


def _place(key: RecordKey) -> tuple[str, str, str]:
    return key.namespace, key.tenant, key.id


def _given(kept: _Kept) -> Record:
    return replace(kept.record, content=decode_content(kept.content), metadata=dict(kept.record.metadata))


if TYPE_CHECKING:
    _conforms: type[LongTermStore] = InProcessLongTermStore
