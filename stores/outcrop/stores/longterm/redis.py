"""The long-term memory in Redis with its Query Engine (Redis 8 or Redis Stack).

A record is a hash, which the index follows. Each is written in one atomic step; a batch is
not. The index ranks in float32, so its candidates are ranked again here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from outcrop.stores.calls import Calls, all_of
from outcrop.stores.errors import CorruptRow
from outcrop.stores.instants import instant_text
from outcrop.stores.leases import system_now
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.options import DEFAULT_RETRIES
from outcrop.stores.redis.pipeline import Pipeline
from outcrop.stores.retries import Retries

from .answers import page_of_records, rank
from .checks import check_dimensions, check_key, check_listing, check_purge, check_record, check_search
from .columns import Columns, from_columns, to_parameters
from .record import Match, RecordKey
from .redis_index import DELETE, PURGE, UPSERT, Index
from .redis_layout import Keys, filters, scope, tagged_id, tagged_pairs
from .vectors import cosine_similarity, from_bytes, to_bytes, to_float32

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from outcrop.stores.options import RetryOptions
    from outcrop.stores.redis.pipeline import Argument
    from outcrop.stores.redis.scripts import Script

    from .hnsw import Hnsw
    from .port import LongTermStore
    from .record import Listing, Purge, Record, RecordPage, Search

_PAGE: Final = 1000


class RedisLongTermStore:
    """A long-term memory under one prefix; see `open`. Belongs to the event loop that opened it."""

    def __init__(
        self, pipeline: Pipeline, index: Index, retries: Retries, clock: Callable[[], datetime]
    ) -> None:
        self._pipeline = pipeline
        self._index = index
        self._keys = index.keys
        self._retries = retries
        self._calls = Calls()
        self._clock = clock

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        dimensions: int,
        prefix: str = "strata",
        hnsw: Hnsw | None = None,
        retries: RetryOptions = DEFAULT_RETRIES,
        clock: Callable[[], datetime] = system_now,
    ) -> Self:
        """Connect, creating the index when missing; `clock` dates the records.

        Raises `InvalidRequest` for bad options, `NewerSchema` for a prefix of a newer build, and
        `StoreError` when the server has no Query Engine or the prefix has other dimensions.
        """
        check_dimensions(dimensions)
        pipeline = Pipeline(url)
        repeated = Retries(options=retries)
        index = Index(pipeline, repeated, Keys(prefix), dimensions, hnsw)
        async with closed_on_failure(pipeline):
            await index.prepare()
        return cls(pipeline, index, repeated, clock)

    async def upsert(self, record: Record) -> None:
        await self.upsert_many([record])

    async def upsert_many(self, records: Sequence[Record]) -> None:
        for record in records:
            check_record(record, self._index.dimensions)
        now = instant_text(self._clock())
        last = {record.key: (record, _fields(record)) for record in records}
        await self._calls.whole(self._upsert(list(last.values()), now))

    async def get(self, key: RecordKey) -> Record | None:
        check_key(key)
        return await self._read(key)

    async def delete(self, key: RecordKey) -> bool:
        check_key(key)
        return await self._calls.whole(self._run(DELETE, self._keys.of(key), key.id)) > 0

    async def search(self, search: Search) -> tuple[Match, ...]:
        check_search(search, self._index.dimensions)
        wanted = to_float32(search.embedding.vector)
        found = await self._index.nearest(filters(search), to_bytes(wanted), search.limit)
        records = [_record(fields) for fields in found]
        return rank(
            [Match(each, cosine_similarity(wanted, each.embedding.vector)) for each in records], search
        )

    async def list_records(self, listing: Listing) -> RecordPage:
        after = check_listing(listing)
        pairs = listing.metadata.items()
        ids = self._keys.ids(listing.namespace, listing.tenant)
        found: list[Record] = []
        more = True
        while more and len(found) <= listing.limit:
            page = await self._ids_after(ids, after)
            keys = [RecordKey(namespace=listing.namespace, tenant=listing.tenant, id=each) for each in page]
            read = await all_of(self._read(key) for key in keys)
            found += [each for each in read if each is not None and pairs <= each.metadata.items()]
            more = len(page) == _PAGE
            after = page[-1] if page else after
        return page_of_records(found[: listing.limit + 1], listing.limit)

    async def purge(self, purge: Purge) -> int:
        check_purge(purge)
        return await self._calls.whole(self._purge(purge))

    async def close(self) -> None:
        """Disconnect after the calls before; idempotent."""
        await self._calls.close()
        await self._pipeline.close()

    async def _upsert(self, records: Sequence[tuple[Record, Sequence[Argument]]], now: str) -> None:
        await all_of(self._write(*each, now) for each in records)  # pipelined
        await self._index.wait_for([record for record, _ in records])

    async def _purge(self, purge: Purge) -> int:
        cutoff = _score(instant_text(purge.older_than))
        purged = 0
        for _, namespace, tenant, record_id in await self._older(cutoff, purge):
            keys = self._keys.of(RecordKey(namespace=namespace, tenant=tenant, id=record_id))
            purged += await self._run(PURGE, keys, record_id, cutoff)
        return purged

    async def _run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> int:
        answer: int = await self._retries.run(lambda: self._pipeline.run(script, keys, *arguments))
        return answer

    async def _write(self, record: Record, fields: Sequence[Argument], now: str) -> None:
        await self._run(UPSERT, self._keys.of(record.key), record.id, _score(now), now, *fields)

    async def _read(self, key: RecordKey) -> Record | None:
        of_key = self._keys.record(key.namespace, key.tenant, key.id)
        reply: list[bytes] = await self._retries.run(lambda: self._pipeline.call("HGETALL", of_key))
        return _record(reply) if reply else None

    async def _ids_after(self, ids: str, after: str) -> Sequence[str]:
        first = f"({after}" if after else "-"
        page: list[bytes] = await self._retries.run(
            lambda: self._pipeline.call("ZRANGEBYLEX", ids, first, "+", "LIMIT", 0, _PAGE)
        )
        return [each.decode() for each in page]

    async def _older(self, cutoff: int, purge: Purge) -> Sequence[tuple[int, str, str, str]]:
        """What a purge names, by score, namespace, tenant and ID, cut at its limit."""
        found: list[tuple[int, str, str, str]] = []
        offset = 0
        while True:
            entries = await self._scored(cutoff, offset)
            found += [
                entry
                for entry in entries
                if purge.namespace in {None, entry[1]} and purge.tenant in {None, entry[2]}
            ]
            # The set orders records of one second by their escaped keys: all of that second are needed.
            enough = len(found) >= purge.limit and entries[-1][0] > found[purge.limit - 1][0]
            if enough or len(entries) < _PAGE:
                return sorted(found)[: purge.limit]
            offset += _PAGE

    async def _scored(self, cutoff: int, offset: int) -> Sequence[tuple[int, str, str, str]]:
        """A page of the set by time, oldest first."""
        command = (
            "ZRANGEBYSCORE",
            self._keys.updated,
            "-inf",
            f"({cutoff}",
            "WITHSCORES",
            "LIMIT",
            offset,
            _PAGE,
        )
        page: list[bytes] = await self._retries.run(lambda: self._pipeline.call(*command))
        return [
            (int(score), *self._keys.parts(key.decode()))
            for key, score in zip(page[::2], page[1::2], strict=True)
        ]


def _fields(record: Record) -> Sequence[Argument]:
    """The record's hash as fields and values, less the times."""
    fields: dict[str, Argument | None] = {
        **to_parameters(record),
        "embedding": to_bytes(record.embedding.vector),
        "_scope": scope(record.namespace, record.tenant, record.embedding.model),
        "_id": tagged_id(record.id),
        "_meta": tagged_pairs(record.metadata) or None,
    }
    return [part for name, value in fields.items() if value is not None for part in (name, value)]


def _record(flat: Sequence[bytes]) -> Record:
    """The record of a hash's fields and values."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    texts = [fields.get(name.encode()) for name in Columns._fields]
    try:
        columns = Columns._make(None if text is None else text.decode() for text in texts)
        return from_columns(columns, from_bytes(fields[b"embedding"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptRow(f"a record of the memory is broken: {error}") from error


def _score(instant: str) -> int:
    """The fourteen digits of an instant's text."""
    return int("".join(filter(str.isdigit, instant)))


if TYPE_CHECKING:
    _conforms: type[LongTermStore] = RedisLongTermStore
