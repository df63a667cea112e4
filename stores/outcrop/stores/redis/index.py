"""The index of a prefix: nine sets of threads that every save keeps up, and building them from the lists.

A prefix whose rows were written before there was an index, or by a writer that only pushes them,
is indexed when it is first opened for writing; a mark says that this was done.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from outcrop.stores.calls import all_of
from outcrop.stores.errors import StoreError

from .listing import reindex

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .keys import Keys
    from .pipeline import Pipeline

_log = logging.getLogger(__name__)
_KEYS_A_SCAN: Final = 500


class Index:
    """The sets under one prefix."""

    def __init__(self, pipeline: Pipeline, keys: Keys) -> None:
        self._pipeline = pipeline
        self._keys = keys

    async def ensure(self) -> None:
        """Build the sets unless that was done; raises `StoreError`."""
        if not await self._pipeline.call("EXISTS", self._keys.indexed):
            await self.rebuild()

    async def check(self) -> None:
        """Raise `StoreError` when the sets were never built."""
        if (missing := await self.missing()) is not None:
            raise StoreError(missing)

    async def missing(self) -> str | None:
        """A sentence when the sets were never built."""
        if await self._pipeline.call("EXISTS", self._keys.indexed):
            return None
        return (
            f"nothing is indexed under the prefix '{self._keys.prefix}': "
            "check the prefix, or open the store once for writing"
        )

    async def rebuild(self) -> int:
        """Index every thread by its latest row, take out those without one; returns how many are in."""
        indexed = 0
        async for threads in self._listed():
            for answer in await self._reindexed(threads):
                indexed += answer == 1
        async for threads in self._indexed():
            await self._reindexed(threads)
        await self._pipeline.call("SET", self._keys.indexed, "1")
        return indexed

    async def _reindexed(self, threads: set[str]) -> list[int]:
        found = sorted(threads)
        answers = await all_of(reindex(self._pipeline, self._keys, thread) for thread in found)
        for thread_id, answer in zip(found, answers, strict=True):
            if answer < 0:
                _log.warning("thread '%s' isn't listed: its latest row can't be read", thread_id)
        return answers

    async def _listed(self) -> AsyncGenerator[set[str]]:
        """The threads that have lists; a scan may show one twice, so they are counted once."""
        seen, cursor = set[str](), "0"
        begins = len(self._keys.lists)
        while True:
            following, keys = await self._pipeline.call(
                "SCAN", cursor, "MATCH", self._keys.every_list, "COUNT", _KEYS_A_SCAN
            )
            threads = {key.decode(errors="replace")[begins:] for key in keys} - seen
            seen |= threads
            yield threads
            cursor = following.decode()
            if cursor == "0":
                return

    async def _indexed(self) -> AsyncGenerator[set[str]]:
        """The threads that any of the sets, or a head, names."""
        scans = [("ZSCAN", key) for key in (*self._keys.index, self._keys.due)]
        scans.append(("HSCAN", self._keys.heads))
        for command, key in scans:
            cursor = "0"
            while True:
                following, entries = await self._pipeline.call(command, key, cursor, "COUNT", _KEYS_A_SCAN)
                yield {thread.decode(errors="replace") for thread in entries[::2]}
                cursor = following.decode()
                if cursor == "0":
                    break
