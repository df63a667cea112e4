"""The Postgres store: the port over one database, with the rows that every engine of the format shares.

Several processes use the database at once; the threads' advisory locks order them, the same
ones that the other engines take. Rows are decoded out of deltas and blobs whatever wrote them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from outcrop.stores.blobs import FileBlobStore
from outcrop.stores.columns import listed
from outcrop.stores.encoding import Encoder
from outcrop.stores.group_commit import GroupCommit
from outcrop.stores.instants import instant_text
from outcrop.stores.leases import check_lease_of
from outcrop.stores.notes import check_notes
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.options import DEFAULT_RETRIES
from outcrop.stores.query import check_limit, check_query, page_of_threads
from outcrop.stores.save import Save

from .database import ANSWER_TIMEOUT, Access, Database
from .leases import SQL, PostgresLeases
from .listing import listing
from .migrate import CHECKPOINTS, OURS, check_readable, migrate
from .reading import Reading
from .saving import Saving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime, timedelta

    from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions
    from outcrop.stores.port import SaveResult, Store
    from outcrop.stores.query import LogPage, ThreadPage, ThreadQuery
    from outcrop.stores.record import Checkpoint, Lease, Note, Row, ThreadState

_COMPONENTS = (CHECKPOINTS, OURS)


class PostgresStore(PostgresLeases):
    """A checkpoint store in a Postgres database (14 or later); see `open` and `open_read_only`."""

    def __init__(
        self,
        access: Access,
        *,
        deltas: DeltaOptions | None = None,
        offload: OffloadOptions | None = None,
        group_commit: GroupCommitOptions | None = None,
    ) -> None:
        super().__init__(Database(access))
        folder = None if offload is None else offload.folder
        self._blobs = None if folder is None else FileBlobStore(folder)
        self._encoder = Encoder(deltas, offload)
        self._rows = Reading(self._database, self._encoder, self._blobs)
        self._saving = Saving(self._database, self._rows, self._encoder, self._blobs)
        # Without the option saves go alone, and still in a thread's order: one whose caller gave
        # up must not overtake the next.
        self._saves = GroupCommit(
            self._saving.flush,
            max_batch=1 if group_commit is None else group_commit.max_batch,
            concurrent=access.pool_size if group_commit is None else group_commit.max_concurrent_flushes,
        )

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        auto_migrate: bool = True,
        pool_size: int = 16,
        prepared: bool = True,
        retries: RetryOptions = DEFAULT_RETRIES,
        answer_timeout: timedelta = ANSWER_TIMEOUT,
        deltas: DeltaOptions | None = None,
        offload: OffloadOptions | None = None,
        group_commit: GroupCommitOptions | None = None,
    ) -> Self:
        """Open a database, creating or upgrading its tables.

        The URL is asyncpg's, TLS options and all. `prepared` must be off behind PgBouncer in
        transaction mode. With `auto_migrate` off a database that is behind is refused, and one
        that is as it should be needs no right to create anything. A call that gets no answer
        within `answer_timeout` is in doubt, and its connection given up. Raises `NewerSchema`
        for a database of a newer build, `Unavailable` for a server that can't be reached.
        """
        access = Access(
            url=url, prepared=prepared, pool_size=pool_size, retries=retries, answer_timeout=answer_timeout
        )
        store = cls(access, deltas=deltas, offload=offload, group_commit=group_commit)
        async with closed_on_failure(store):
            await store._database.run_patiently(
                lambda session: migrate(session, _COMPONENTS, allowed=auto_migrate)
            )
        return store

    @classmethod
    async def open_read_only(
        cls,
        url: str,
        *,
        pool_size: int = 16,
        prepared: bool = True,
        retries: RetryOptions = DEFAULT_RETRIES,
        answer_timeout: timedelta = ANSWER_TIMEOUT,
        offload: OffloadOptions | None = None,
    ) -> Self:
        """Open a database in read-only transactions, without upgrading it.

        `offload` tells where blobs are, when they aren't in the database. Raises `StoreError`
        when there are no checkpoints of this build's version.
        """
        access = Access(
            url=url,
            prepared=prepared,
            pool_size=pool_size,
            read_only=True,
            retries=retries,
            answer_timeout=answer_timeout,
        )
        store = cls(access, offload=offload)
        async with closed_on_failure(store):
            await store._database.run(check_readable)
        return store

    @classmethod
    async def migrate(cls, url: str, *, prepared: bool = True) -> None:
        """Create or upgrade the tables of a database, and do nothing else."""
        await (await cls.open(url, pool_size=1, prepared=prepared)).close()

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
        self._database.check_writable()
        return await self._saves.save(Save(checkpoint, expected, lease, release, notes))

    async def add_notes(
        self, beside: Row, notes: Sequence[Note], *, lease: Lease | None = None
    ) -> SaveResult:
        check_lease_of(beside.checkpoint, lease, release=False)
        check_notes(beside.checkpoint.thread_id, notes)
        self._database.check_writable()
        return await self._saving.add_notes(beside, notes, lease)

    async def get_notes(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        return await self._rows.get_notes(rows)

    async def load(self, thread_id: str) -> Row | None:
        return await self._rows.load(thread_id)

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        check_query(query)
        statement, parameters = listing(SQL, query)
        records = await self._database.run(lambda session: session.fetch(statement, *parameters))
        summaries = [listed(tuple(record)) for record in records]
        return page_of_threads(summaries, query.limit)

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        return await self._rows.get_log(thread_id, after=after, limit=limit)

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        check_limit(limit)
        self._database.check_writable()
        names = sorted(state.value for state in states)
        return await self._database.whole(self._purge(instant_text(older_than), names, limit))

    async def close(self) -> None:
        """Disconnect after the calls before; idempotent."""
        await self._saves.close()
        await self._database.close()

    async def _purge(self, cutoff: str, states: list[str], limit: int) -> int:
        run, once = self._database.retries.run, self._database.once
        pick = (SQL["purgeable"], states, cutoff, limit)
        picked = await run(lambda: once(lambda session: session.fetch(*pick)))
        purged = 0
        for thread_id, sequence in picked:
            # A transaction a thread: a long one would keep the locks of all of them.
            arguments = (thread_id, sequence, states, cutoff)
            if await run(lambda: once(lambda session: session.value(SQL["purge"], *arguments))):  # noqa: B023 - awaited here
                purged += 1
                self._encoder.forget(thread_id)
            # Also where an answer was lost: then it isn't this attempt that found the thread there.
            if self._blobs is not None and not await run(
                lambda: once(lambda session: session.fetch(SQL["head"], thread_id))  # noqa: B023 - the same
            ):
                await self._blobs.delete_thread(thread_id)
        for (thread_id,) in await run(lambda: once(lambda session: session.fetch(SQL["left_notes"], limit))):
            await run(lambda: once(lambda session: session.fetch(SQL["purge_left_notes"], thread_id)))  # noqa: B023 - the same
        return purged


if TYPE_CHECKING:
    _conforms: type[Store] = PostgresStore
