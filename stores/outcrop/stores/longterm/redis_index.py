"""The index of a Redis memory: having it, asking it, and waiting until it has seen a write."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from outcrop.stores.errors import StoreError, Unavailable
from outcrop.stores.redis.scripts import script_of
from outcrop.stores.statements import named_statements

from .redis_layout import named, scope
from .schema import SCHEMA_VERSION, check_pinned, refuse_newer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.stores.redis.pipeline import Argument, Pipeline
    from outcrop.stores.retries import Retries

    from .hnsw import Hnsw
    from .record import Record
    from .redis_layout import Keys

_TEXTS = named_statements(__package__, "redis.lua")
_MOST_NEIGHBOURS: Final = 10_000
_TIE: Final = 1e-5
"""Distances closer than this may be in another order in float32."""

_LOOK_AGAIN: Final = (0.001, 0.05)  # seconds: the first wait, and the longest
_PATIENCE: Final = 5.0
_CHUNK: Final = 100


SCHEMA: Final = script_of(_TEXTS["schema"])
UPSERT: Final = script_of(_TEXTS["upsert"])
DELETE: Final = script_of(_TEXTS["delete"])
PURGE: Final = script_of(_TEXTS["purge"])


class Index:
    """The index under one prefix."""

    def __init__(
        self, pipeline: Pipeline, retries: Retries, keys: Keys, dimensions: int, hnsw: Hnsw | None
    ) -> None:
        self._pipeline = pipeline
        self._retries = retries
        self.keys = keys
        self.dimensions = dimensions
        self._hnsw = hnsw

    async def prepare(self) -> None:
        """Claim the prefix and have the index there; raises `StoreError` for other dimensions."""
        try:
            present: list[bytes] = await self._call("FT._LIST")
        except Unavailable:
            raise
        except StoreError as error:
            if "unknown command" not in str(error).lower():
                raise
            raise StoreError(
                "memory on Redis needs the Query Engine (Redis 8 or Redis Stack): FT.CREATE is unknown"
            ) from None
        claim = (SCHEMA_VERSION, self.dimensions)
        found: list[bytes] = await self._retries.run(
            lambda: self._pipeline.run(SCHEMA, [self.keys.schema], *claim)
        )
        version, dimensions = map(int, found)
        refuse_newer(version)
        check_pinned(dimensions, self.dimensions)
        if self.keys.index.encode() not in present:
            await self._create()

    async def nearest(self, query: str, vector: bytes, limit: int) -> Sequence[Sequence[bytes]]:
        """The hashes, as fields and values, that may be among the `limit` nearest; more than those."""
        neighbours = min(2 * limit, _MOST_NEIGHBOURS)
        while True:
            reply: list[list[bytes]] = await self._call(
                *("FT.SEARCH", self.keys.index),
                f"({query})=>[KNN {neighbours} @embedding $vector AS distance]",
                *("PARAMS", 2, "vector", vector, "SORTBY", "distance", "LIMIT", 0, neighbours),
                *("TIMEOUT", 0, "DIALECT", 2),  # at a timeout the engine would answer with less
            )
            hashes = reply[2::2]
            full = len(hashes) == neighbours < _MOST_NEIGHBOURS
            if not full or _distance(hashes[-1]) - _distance(hashes[limit - 1]) > _TIE:
                return hashes
            neighbours = min(2 * neighbours, _MOST_NEIGHBOURS)

    async def wait_for(self, records: Sequence[Record]) -> None:
        """Return once the index has all the records; raises `Unavailable` after 5 s."""
        by_scope = sorted((scope(r.namespace, r.tenant, r.embedding.model), r.id) for r in records)
        for of_scope, pairs in groupby(by_scope, key=lambda pair: pair[0]):
            ids = [record_id for _, record_id in pairs]
            for first in range(0, len(ids), _CHUNK):
                await self._wait_for(of_scope, ids[first : first + _CHUNK])

    async def _wait_for(self, of_scope: str, ids: Sequence[str]) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + _PATIENCE
        wait, longest = _LOOK_AGAIN
        while True:
            reply: list[int] = await self._call(
                *("FT.SEARCH", self.keys.index, named(of_scope, ids)),
                *("NOCONTENT", "LIMIT", 0, 0, "TIMEOUT", 0, "DIALECT", 2),
            )
            if reply[0] >= len(ids):
                return
            if clock() >= deadline:
                raise Unavailable(f"memory on Redis didn't index record '{ids[0]}' within 5 s of writing it")
            await asyncio.sleep(wait)
            wait = min(2 * wait, longest)

    async def _call(self, *command: Argument) -> Any:  # noqa: ANN401 - the command's type
        return await self._retries.run(lambda: self._pipeline.call(*command))

    async def _create(self) -> None:
        kind: tuple[Argument, ...] = ("FLAT", 6)
        graph: tuple[Argument, ...] = ()
        if self._hnsw is not None:
            kind = ("HNSW", 10)
            graph = ("M", self._hnsw.m, "EF_CONSTRUCTION", self._hnsw.ef_construction)
        try:
            await self._call(
                *("FT.CREATE", self.keys.index, "ON", "HASH", "PREFIX", 1, self.keys.records, "SCHEMA"),
                *("_scope", "TAG", "_id", "TAG", "_meta", "TAG", "embedding", "VECTOR", *kind),
                *("TYPE", "FLOAT32", "DIM", self.dimensions, "DISTANCE_METRIC", "COSINE", *graph),
            )
        except StoreError as error:
            if "already exists" not in str(error).lower():  # another opener was faster
                raise


def _distance(fields: Sequence[bytes]) -> float:
    return float(fields[fields.index(b"distance") + 1])
