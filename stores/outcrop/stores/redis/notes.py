"""What stands beside rows, in a hash a thread: notes put there later, and reading them back.

Those that come with a row are part of its own script. Does each call once: repeating is the
store's to decide, and repeated it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.stores.notes import by_sequence
from outcrop.stores.port import LeaseLost, NotLatest, Saved
from outcrop.stores.retries import InDoubt

from .scripts import ADD_NOTES, GET_NOTES, PURGE_LEFT_NOTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from outcrop.stores.port import SaveResult
    from outcrop.stores.record import Lease, Note, Row

    from .keys import Keys
    from .pipeline import Pipeline, Replication

_LEASE_LOST: Final = -1
_THREADS_A_SCAN: Final = 500


class RedisNotes:
    """The notes under one prefix."""

    def __init__(self, pipeline: Pipeline, keys: Keys, replication: Replication | None) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._replication = replication

    async def add(self, beside: Row, notes: Sequence[Note], lease: Lease | None) -> SaveResult:
        """Put notes beside a row; raises `StoreError`."""
        thread_id = beside.checkpoint.thread_id
        of = self._keys
        keys = (of.list(thread_id), of.threads, of.token(thread_id), of.heads, of.notes(thread_id), of.noted)
        token = "" if lease is None else lease.token
        row = (thread_id, of.lists, token, beside.sequence, beside.checkpoint.created_at)
        arguments = (*row, *named_values(notes))
        if self._replication is None:
            answer: int = await self._pipeline.run(ADD_NOTES, keys, *arguments)
        else:
            answer, acknowledged = await self._pipeline.run_replicated(ADD_NOTES, keys, *arguments)
            if answer > 0 and acknowledged < (wanted := self._replication.replicas):
                raise InDoubt(
                    f"the notes of thread '{thread_id}' are kept, but on {acknowledged} of {wanted} replicas"
                )
        if answer > 0:
            return Saved(beside.sequence)
        return LeaseLost() if answer == _LEASE_LOST else NotLatest()

    async def get(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        """The notes beside rows of one thread; raises `StoreError`."""
        if not rows:
            return {}
        keys = (self._keys.notes(rows[0].checkpoint.thread_id),)
        wanted: list[str | int] = []
        for row in rows:
            wanted += (row.sequence, row.checkpoint.created_at)
        return by_sequence(_read(*found) for found in await self._pipeline.run(GET_NOTES, keys, *wanted))

    async def purge_left(self) -> None:
        """Drop the notes of threads that are gone; may be repeated."""
        cursor = "0"
        while True:
            following, threads = await self._pipeline.call(
                "SSCAN", self._keys.noted, cursor, "COUNT", _THREADS_A_SCAN
            )
            for thread in threads:
                thread_id = thread.decode(errors="replace")
                keys = (self._keys.list(thread_id), self._keys.notes(thread_id), self._keys.noted)
                await self._pipeline.run(PURGE_LEFT_NOTES, keys, thread_id)
            cursor = following.decode()
            if cursor == "0":
                return


def named_values(notes: Sequence[Note]) -> Iterator[str]:
    """Notes as the scripts take them: a name and a value each."""
    for note in notes:
        yield f"{note.kind.value}/{note.path}"
        yield note.value


def _read(sequence: bytes, name: bytes, value: bytes) -> tuple[int, str, str, str]:
    kind, _, path = name.decode().partition("/")
    return int(sequence), kind, path, value.decode()
