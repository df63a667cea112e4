"""A thread's rows out of its list: decoded out of deltas and blobs, whatever wrote them.

An element never changes and a sequence is its place, so rows may be read in several steps; only
a purge in between takes them away. Reads once: repeating is the store's to decide.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from outcrop.stores.blobs import filled
from outcrop.stores.codec import decode
from outcrop.stores.deltas import blob_hashes, depth_of, unfold
from outcrop.stores.errors import CorruptRow
from outcrop.stores.query import page_of_log
from outcrop.stores.record import Row

from .scripts import LATEST

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from outcrop.stores.blobs import BlobStore
    from outcrop.stores.deltas import Unfolded
    from outcrop.stores.encoding import Encoder
    from outcrop.stores.query import LogPage

    from .keys import Keys
    from .pipeline import Pipeline


def token_of(element: bytes) -> str:
    """What tells an element from another one at its place."""
    return hashlib.sha1(element, usedforsecurity=False).hexdigest()


class RedisRows:
    """The rows under one prefix; what is loaded is told to the `encoder`, if there is one."""

    def __init__(
        self, pipeline: Pipeline, keys: Keys, *, blobs: BlobStore | None, encoder: Encoder | None = None
    ) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._blobs = blobs
        self._encoder = encoder

    async def load(self, thread_id: str) -> Row | None:
        """The thread's latest row; raises `StoreError`."""
        key = self._keys.list(thread_id)
        while True:
            latest = await self._pipeline.run(LATEST, (key,))
            if latest is None:
                return None
            length, element = latest
            row = _row(thread_id, length - 1, element)
            elements: list[bytes] = [element]
            if depth := depth_of(row):
                first = max(length - 1 - depth, 0)
                elements = await self._pipeline.call("LRANGE", key, first, length - 1)
            if elements and elements[-1] == element:  # else purged, and begun anew, since
                break
        before = [_row(thread_id, at, it) for at, it in enumerate(elements[:-1], length - len(elements))]
        unfolded = unfold([*before, row])[-1]
        (loaded,) = await self._filled([unfolded])
        if self._encoder is not None:
            self._encoder.loaded(unfolded, token_of(element))
        return loaded

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        """One page of the thread's rows; raises `StoreError`."""
        first = 0 if after is None else max(after + 1, 0)
        page = await self._range(thread_id, first, limit)
        depth = min(depth_of(page[0]), first) if page else 0
        before = await self._range(thread_id, first - depth, depth) if depth else []
        unfolded = unfold([*before, *page])[len(before) :]
        return page_of_log(tuple(await self._filled(unfolded)) if unfolded else (), limit)

    async def _range(self, thread_id: str, first: int, count: int) -> list[Row]:
        key = self._keys.list(thread_id)
        elements: list[bytes] = await self._pipeline.call("LRANGE", key, first, first + count - 1)
        return [_row(thread_id, at, element) for at, element in enumerate(elements, first)]

    async def _filled(self, unfolded: Sequence[Unfolded]) -> list[Row]:
        hashes = sorted(blob_hashes(unfolded))
        contents: dict[str, bytes] = {}
        if hashes:
            key = self._keys.blobs(unfolded[0].row.checkpoint.thread_id)
            values: list[bytes | None] = await self._pipeline.call("HMGET", key, *hashes)
            contents = {name: it for name, it in zip(hashes, values, strict=True) if it is not None}
        return await filled(unfolded, contents, self._blobs)


def _row(thread_id: str, sequence: int, element: bytes) -> Row:
    with naming(thread_id, sequence):
        return Row(sequence, decode(element))


@contextmanager
def naming(thread_id: str, sequence: int) -> Generator[None]:
    """Say of which row a `CorruptRow` is; the message itself is the same in every engine."""
    try:
        yield
    except CorruptRow as error:
        error.add_note(f"in checkpoint '{thread_id}' #{sequence}")
        raise
