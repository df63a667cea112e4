"""Reading rows back: out of deltas and blobs, whatever wrote them.

Rows that need more than themselves (rows before them, blobs) are read anew in one snapshot
with what they need, so that a purge in between can't take it away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from outcrop.stores.blobs import filled
from outcrop.stores.columns import from_columns
from outcrop.stores.deltas import blob_hashes, depth_of, fill, unfold
from outcrop.stores.notes import by_sequence
from outcrop.stores.port import EMPTY_LOG
from outcrop.stores.query import check_limit, page_of_log

from .leases import SQL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from outcrop.stores.blobs import BlobStore
    from outcrop.stores.deltas import Unfolded
    from outcrop.stores.encoding import Encoder
    from outcrop.stores.query import LogPage
    from outcrop.stores.record import Note, Row

    from .database import Database
    from .session import Session


class Reading:
    """The rows of one database; those with `blobs` given have them there."""

    def __init__(self, database: Database, encoder: Encoder, blobs: BlobStore | None) -> None:
        self._database = database
        self._encoder = encoder
        self._blobs = blobs

    async def load(self, thread_id: str) -> Row | None:
        """The thread's latest row."""
        read = await self._database.run(
            lambda session: self._read(session, SQL["load"], thread_id, latest=True)
        )
        if not read:
            return None
        unfolded, row = read[0]
        self._encoder.loaded(unfolded, row.checkpoint.created_at)
        return row

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        """A page of the thread's rows."""
        check_limit(limit)
        start = EMPTY_LOG if after is None else after
        read = await self._database.run(
            lambda session: self._read(session, SQL["log"], thread_id, start, limit)
        )
        return page_of_log(tuple(row for _, row in read), limit)

    async def get_notes(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        """The notes beside these rows of one thread."""
        if not rows:
            return {}
        sequences = [row.sequence for row in rows]
        created = [row.checkpoint.created_at for row in rows]
        thread_id = rows[0].checkpoint.thread_id

        async def read(session: Session) -> Sequence[asyncpg.Record]:
            # A database that is only read may be another engine's.
            if self._database.access.read_only and not await session.value(SQL["has_notes"]):
                return ()
            return await session.fetch(SQL["notes"], thread_id, sequences, created)

        return by_sequence(tuple(record) for record in await self._database.run(read))

    async def tail(self, thread_id: str, count: int) -> list[Row]:
        """The thread's last rows, oldest first; one attempt."""
        read = await self._database.once(lambda session: self._read(session, SQL["tail"], thread_id, count))
        return [row for _, row in read]

    async def _read(
        self,
        session: Session,
        statement: str,
        *arguments: str | int,
        latest: bool = False,
    ) -> list[tuple[Unfolded, Row]]:
        """The rows of a statement, or, where the others are only there for it, the latest."""
        rows = _rows(await session.fetch(statement, *arguments))
        if rows and not depth_of(rows[0]):
            wanted = unfold(rows)[-1 if latest else 0 :]
            if not blob_hashes(wanted):
                return [(entry, fill(entry, {})) for entry in wanted]
        elif not rows:
            return []
        async with session.snapshot():
            rows = _rows(await session.fetch(statement, *arguments))
            before: list[Row] = []
            if rows and (depth := depth_of(rows[0])):
                thread_id, sequence = rows[0].checkpoint.thread_id, rows[0].sequence
                before = _rows(await session.fetch(SQL["log"], thread_id, sequence - depth - 1, depth))
            wanted = unfold([*before, *rows])[len(before) :][-1 if latest else 0 :]
            return list(zip(wanted, await self._filled(session, wanted), strict=True))

    async def _filled(self, session: Session, wanted: Sequence[Unfolded]) -> list[Row]:
        hashes, contents = sorted(blob_hashes(wanted)), dict[str, bytes]()
        if hashes:
            thread_id = wanted[0].row.checkpoint.thread_id
            records = await session.fetch(SQL["blobs"], thread_id, hashes)
            contents = {record["hash"]: record["content"] for record in records}
        return await filled(wanted, contents, self._blobs)


def _rows(records: Sequence[asyncpg.Record]) -> list[Row]:
    return [from_columns((*record[:6], _compact(record[6]), *record[7:])) for record in records]


def _compact(state: str) -> str:
    """JSONB's text without its spaces, as every engine hands states out."""
    return orjson.dumps(orjson.loads(state)).decode()
