"""The SQLite store: the port over one file, with the rows that every engine of the format shares.

Several processes use the file at once; SQLite's own lock orders them. Rows are decoded out of
deltas and blobs whatever wrote them; they are written whole, one commit each, unless options
say otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import orjson

from outcrop.stores.blobs import FileBlobStore, filled
from outcrop.stores.columns import from_texts, listed
from outcrop.stores.deltas import blob_hashes, depth_of, unfold
from outcrop.stores.encoded_saves import EncodedSaves
from outcrop.stores.encoding import Encoder
from outcrop.stores.errors import InvalidRequest, StoreError
from outcrop.stores.group_commit import GroupCommit
from outcrop.stores.instants import instant_text
from outcrop.stores.leases import check_lease_of, system_now
from outcrop.stores.notes import by_sequence, check_notes
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.port import EMPTY_LOG
from outcrop.stores.query import check_limit, check_query, page_of_log, page_of_threads
from outcrop.stores.save import Save

from .database import Database, transaction
from .leases import SQL, SqliteLeases
from .listing import listing
from .migrate import check_readable, migrate
from .saving import add_notes, append_all, append_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime
    from pathlib import Path

    from outcrop.stores.deltas import Unfolded
    from outcrop.stores.encoded_saves import Answer
    from outcrop.stores.encoding import Stored
    from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions
    from outcrop.stores.port import SaveResult, Store
    from outcrop.stores.query import LogPage, ThreadPage, ThreadQuery
    from outcrop.stores.record import Checkpoint, Lease, Note, Row, ThreadState


class SqliteStore(SqliteLeases):
    """A checkpoint store in one SQLite file; see `open` and `open_read_only`."""

    def __init__(
        self,
        path: str | Path,
        database: Database,
        clock: Callable[[], datetime],
        *,
        deltas: DeltaOptions | None = None,
        offload: OffloadOptions | None = None,
        group_commit: GroupCommitOptions | None = None,
    ) -> None:
        super().__init__(path, database, clock)
        folder = None if offload is None else offload.folder
        self._blobs = None if folder is None else FileBlobStore(folder)
        self._encoder = Encoder(deltas, offload)
        self._saves = EncodedSaves(self._encoder, self._append, blobs=self._blobs)
        self._group = (
            None
            if group_commit is None
            else GroupCommit(self._saves.flush, max_batch=group_commit.max_batch, concurrent=1)
        )

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Callable[[], datetime] = system_now,
        deltas: DeltaOptions | None = None,
        offload: OffloadOptions | None = None,
        group_commit: GroupCommitOptions | None = None,
    ) -> Self:
        """Open the file for reading and writing, creating or upgrading its tables.

        `clock` is the leases' time. With any of the options, saves and loads are for one event
        loop. Takes the file's write lock for a moment. Raises `NewerSchema` for a file of a
        newer build, `Unavailable` when the lock stays taken.
        """
        database = await _opened(path, read_only=False)
        return cls(path, database, clock, deltas=deltas, offload=offload, group_commit=group_commit)

    @classmethod
    async def open_read_only(
        cls,
        path: str | Path,
        *,
        clock: Callable[[], datetime] = system_now,
        offload: OffloadOptions | None = None,
    ) -> Self:
        """Open an existing file without writing to it, not even to upgrade it.

        `offload` says where blobs are. Raises `StoreError` when there is no checkpoint database
        of this build's version.
        """
        return cls(path, await _opened(path, read_only=True), clock, offload=offload)

    async def save(
        self,
        checkpoint: Checkpoint,
        *,
        expected: int | None = None,
        lease: Lease | None = None,
        release: bool = False,
        notes: Sequence[Note] = (),
    ) -> SaveResult:
        check_lease_of(checkpoint, lease, release=release)
        check_notes(checkpoint.thread_id, notes)
        save = Save(checkpoint, expected, lease, release, notes)
        return await (self._saves if self._group is None else self._group).save(save)

    async def add_notes(
        self, beside: Row, notes: Sequence[Note], *, lease: Lease | None = None
    ) -> SaveResult:
        check_lease_of(beside.checkpoint, lease, release=False)
        check_notes(beside.checkpoint.thread_id, notes)
        token = None if lease is None else lease.token
        return await self._database.call(lambda connection: add_notes(connection, beside, token, notes))

    async def get_notes(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        if not rows:
            return {}
        places = [(row.sequence, row.checkpoint.created_at) for row in rows]
        parameters = {
            "thread_id": rows[0].checkpoint.thread_id,
            "rows": orjson.dumps(places).decode(),
        }

        def read(connection: sqlite3.Connection) -> list[tuple[int, str, str, str]]:
            # A file that is only read may be another engine's.
            if self._database.read_only and not connection.execute(SQL["has_notes"]).fetchone()[0]:
                return []
            return connection.execute(SQL["notes"], parameters).fetchall()

        return by_sequence(await self._database.call(read))

    async def load(self, thread_id: str) -> Row | None:
        def read(connection: sqlite3.Connection) -> list[Unfolded]:
            rows = connection.execute(SQL["load"], {"thread_id": thread_id}).fetchall()
            return unfold(from_texts(columns) for columns in rows)[-1:]

        unfolded, rows = await self._read(read)
        if not rows:
            return None
        self._encoder.loaded(unfolded[0], rows[0].checkpoint.created_at)
        return rows[0]

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        check_query(query)
        statement, parameters = listing(SQL["list"], query)
        rows = await self._database.call(
            lambda connection: connection.execute(statement, parameters).fetchall()
        )
        return page_of_threads([listed(columns) for columns in rows], query.limit)

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        check_limit(limit)
        start = EMPTY_LOG if after is None else after
        _, entries = await self._read(lambda connection: _log(connection, thread_id, start, limit))
        return page_of_log(tuple(entries), limit)

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        check_limit(limit)
        names = orjson.dumps(sorted(state.value for state in states)).decode()
        cutoff = instant_text(older_than)

        def purge(connection: sqlite3.Connection) -> list[tuple[str]]:
            with transaction(connection, "IMMEDIATE"):
                parameters = {"states": names, "older_than": cutoff, "now": self._now(), "limit": limit}
                threads = connection.execute(SQL["purgeable"], parameters).fetchall()
                for table in ("checkpoints", "heads", "leases", "blobs", "notes"):
                    connection.executemany(SQL[f"purge_{table}"], threads)
                connection.execute(SQL["purge_left_notes"])
                return threads

        purged = [thread_id for (thread_id,) in await self._database.call(purge)]
        for thread_id in purged:
            self._encoder.forget(thread_id)
        if self._blobs is not None:
            await _delete_all(self._blobs, purged)
        return len(purged)

    async def close(self) -> None:
        """Close the connection after the calls before; idempotent."""
        if self._group is not None:
            await self._group.close()
        await self._database.close()

    async def _append(self, saves: Sequence[Save], stored: Sequence[Stored]) -> list[Answer]:
        appends = [append_of(*form) for form in zip(saves, stored, strict=True)]
        return await self._database.call(lambda connection: append_all(connection, appends))

    async def _read(
        self, read: Callable[[sqlite3.Connection], list[Unfolded]]
    ) -> tuple[list[Unfolded], list[Row]]:
        """Rows of a thread, out of their envelopes and plain, with what they build on of one moment."""

        def read_in_one_moment(
            connection: sqlite3.Connection,
        ) -> tuple[list[Unfolded], Mapping[str, bytes]]:
            with transaction(connection, "DEFERRED"):
                unfolded = read(connection)
                return unfolded, _own_blobs(connection, unfolded)

        unfolded, own = await self._database.call(read_in_one_moment)
        return unfolded, await filled(unfolded, own, self._blobs)


async def _opened(path: str | Path, *, read_only: bool) -> Database:
    if str(path) in {"", ":memory:"}:
        raise InvalidRequest("a SQLite store needs a file: use MemoryStore for one without")
    database = await Database.open(path, read_only=read_only)
    async with closed_on_failure(database):
        await database.call(check_readable if read_only else migrate)
    return database


async def _delete_all(blobs: FileBlobStore, threads: Sequence[str]) -> None:
    """Delete the blobs of threads that are gone; one that can't be doesn't keep the others."""
    failure: StoreError | None = None
    for thread_id in threads:
        try:
            await blobs.delete_thread(thread_id)
        except StoreError as error:
            failure = error
    if failure is not None:
        raise failure


def _log(connection: sqlite3.Connection, thread_id: str, after: int, limit: int) -> list[Unfolded]:
    page = _rows(connection, thread_id, after, limit)
    depth = depth_of(page[0]) if page else 0
    before = _rows(connection, thread_id, page[0].sequence - depth - 1, depth) if depth else []
    return unfold([*before, *page])[len(before) :]


def _rows(connection: sqlite3.Connection, thread_id: str, after: int, limit: int) -> list[Row]:
    parameters = {"thread_id": thread_id, "after": after, "limit": limit}
    return [from_texts(columns) for columns in connection.execute(SQL["log"], parameters)]


def _own_blobs(connection: sqlite3.Connection, unfolded: Sequence[Unfolded]) -> Mapping[str, bytes]:
    hashes = blob_hashes(unfolded)
    if not hashes:
        return {}
    parameters = {
        "thread_id": unfolded[0].row.checkpoint.thread_id,
        "hashes": orjson.dumps(sorted(hashes)).decode(),
    }
    return dict(connection.execute(SQL["blobs"], parameters).fetchall())


if TYPE_CHECKING:
    _conforms: type[Store] = SqliteStore
