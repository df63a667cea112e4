"""The Redis store: the port over one prefix of keys, with what every engine of the format keeps there.

A save is one script: its conditions, its row and its place in the index are one atomic step.
Elements of a thread's list are whole rows, so a sequence is a place in it. Plain Redis 7, one
server (or a primary with replicas), no Cluster: a thread's keys may be anywhere in that.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Self

from outcrop.stores.blobs import FileBlobStore
from outcrop.stores.calls import all_of
from outcrop.stores.codec import encode
from outcrop.stores.deltas import with_states
from outcrop.stores.encoded_saves import Answer, BaseMoved, EncodedSaves
from outcrop.stores.encoding import Encoder
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.leases import check_lease_of
from outcrop.stores.notes import check_notes
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.options import DEFAULT_RETRIES
from outcrop.stores.port import LeaseLost, NotLatest, Saved, SaveResult
from outcrop.stores.query import check_limit, check_query
from outcrop.stores.record import ThreadState
from outcrop.stores.retries import InDoubt, Retries, settled
from outcrop.stores.save import Save

from .index import Index
from .keys import PLACES, Keys, digits_of, score_of, wake_score_of
from .leases import RedisLeases
from .listing import Listing
from .notes import RedisNotes, named_values
from .pipeline import Replication
from .rows import RedisRows, token_of
from .scripts import PURGE, PURGEABLE, SAVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from outcrop.stores.blobs import BlobStore
    from outcrop.stores.encoding import Stored
    from outcrop.stores.options import DeltaOptions, OffloadOptions, RetryOptions
    from outcrop.stores.port import Store
    from outcrop.stores.query import LogPage, ThreadPage, ThreadQuery
    from outcrop.stores.record import Checkpoint, Lease, Note, Row

_LARGE: Final = 2048  # characters of an element from which on its head is kept for listings
_MILLISECOND: Final = timedelta(milliseconds=1)


class RedisStore(RedisLeases):
    """A checkpoint store under one prefix of a Redis database; see `open` and `open_read_only`.

    It belongs to the event loop that opened it.
    """

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        prefix: str = "strata",
        finished_thread_ttl: timedelta | None = None,
        wait_replicas: int = 0,
        wait_timeout: timedelta = timedelta(seconds=1),
        retries: RetryOptions = DEFAULT_RETRIES,
        deltas: DeltaOptions | None = None,
        offload: OffloadOptions | None = None,
    ) -> Self:
        """Open the prefix for reading and writing, indexing what other writers left there unindexed.

        `url` is redis-py's: `redis://` or, for TLS, `rediss://`, with user, password and database.
        A thread expires `finished_thread_ttl` after it completed or ended, if that is set (but not its
        blobs in a folder). With `wait_replicas` a save or an acquisition is only answered once that
        many replicas have it, and is `Unavailable` when they haven't within `wait_timeout`.
        Raises `Unavailable` when the server can't be reached, `InvalidRequest` for a bad option.
        """
        replication = _replication(wait_replicas, wait_timeout)
        store = cls(
            url,
            Keys(prefix),
            Retries(options=retries),
            encoder=Encoder(deltas, offload),
            offload=offload,
            expiry=_expiry(finished_thread_ttl),
            replication=replication,
        )
        async with closed_on_failure(store):
            await store._retries.run(store._index.ensure)
        return store

    @classmethod
    async def open_read_only(
        cls,
        url: str,
        *,
        prefix: str = "strata",
        retries: RetryOptions = DEFAULT_RETRIES,
        offload: OffloadOptions | None = None,
    ) -> Self:
        """Open a prefix without changing anything there, not even its index.

        `offload` only says where blobs are. Raises `StoreError` when the prefix was never indexed.
        """
        repeated = Retries(options=retries)
        store = cls(url, Keys(prefix), repeated, encoder=Encoder(), offload=offload, read_only=True)
        async with closed_on_failure(store):
            await store._retries.run(store._index.check)
        return store

    def __init__(
        self,
        url: str,
        keys: Keys,
        retries: Retries,
        *,
        encoder: Encoder,
        offload: OffloadOptions | None = None,
        expiry: int = 0,
        replication: Replication | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(url, keys, retries, replication=replication, read_only=read_only)
        folder = None if offload is None else offload.folder
        blobs: BlobStore | None = None if folder is None else FileBlobStore(folder)
        self._blobs = blobs
        self._encoder = encoder
        self._saves = EncodedSaves(encoder, self._append_all, blobs=blobs, token_of=_token_of)
        self._expiry = expiry
        self._rows = RedisRows(self._pipeline, keys, blobs=blobs, encoder=encoder)
        self._rows_again = RedisRows(self._pipeline, keys, blobs=blobs)
        self._listing = Listing(self._pipeline, keys, read_only=read_only)
        self._index = Index(self._pipeline, keys)
        self._notes = RedisNotes(self._pipeline, keys, replication)

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
        return await self._retries.save(lambda: self._saves.save(save), lambda: self._settled(save))

    async def add_notes(
        self, beside: Row, notes: Sequence[Note], *, lease: Lease | None = None
    ) -> SaveResult:
        check_lease_of(beside.checkpoint, lease, release=False)
        check_notes(beside.checkpoint.thread_id, notes)
        return await self._retries.run(lambda: self._notes.add(beside, notes, lease))

    async def get_notes(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        return await self._retries.run(lambda: self._notes.get(rows))

    async def load(self, thread_id: str) -> Row | None:
        return await self._retries.run(lambda: self._rows.load(thread_id))

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        check_query(query)
        return await self._retries.run(lambda: self._listing.list_threads(query))

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        check_limit(limit)
        return await self._retries.run(lambda: self._rows.get_log(thread_id, after=after, limit=limit))

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        check_limit(limit)
        return await self._calls.whole(self._purge(digits_of(older_than), states, limit))

    async def rebuild_index(self) -> int:
        """Index every thread anew by its latest row, and return how many there are.

        For rows that a writer pushed without indexing them. Raises `StoreError`.
        """
        self._pipeline.check_writable()
        return await self._calls.whole(self._retries.run(self._index.rebuild))

    async def close(self) -> None:
        """Disconnect after the calls before; idempotent."""
        await self._close()

    async def _append_all(self, saves: Sequence[Save], forms: Sequence[Stored]) -> Sequence[Answer]:
        return [await self._append(save, form) for save, form in zip(saves, forms, strict=True)]

    async def _append(self, save: Save, form: Stored) -> Answer:
        """Append one row in one step; the index says what the engine's row says."""
        row, base = save.checkpoint, form.base
        wait, state = row.innermost.wait, row.state
        wake_at = wait.wake_at if wait is not None and state is ThreadState.INTERRUPTED else None
        keys = self._keys.everything_of(row.thread_id)
        element = encode(form.checkpoint)
        noted = (row.created_at, *named_values(save.notes)) if save.notes else ()
        arguments = (
            element,
            row.thread_id,
            score_of(row.updated_at),
            PLACES[state],
            "" if wake_at is None else wake_score_of(wake_at),
            self._expiry,
            "" if save.expected is None else save.expected,
            "" if save.token is None else save.token,
            int(save.release),
            *(("", "") if base is None else (base.sequence, base.token)),
            encode(_head(row)) if len(element) > _LARGE else "",
            len(noted),
            *noted,
            *(part for blob in form.blobs.items() for part in blob),
        )
        if self._replication is None:
            answer: int = await self._pipeline.run(SAVE, keys, *arguments)
        else:
            answer, acknowledged = await self._pipeline.run_replicated(SAVE, keys, *arguments)
            if answer > 0:
                self._confirm(row.thread_id, acknowledged)
        if answer > 0:
            return Saved(answer - 1)
        return _REFUSALS[answer]

    async def _settled(self, save: Save) -> SaveResult | None:
        found = await settled(self._rows_again, save.checkpoint, save.expected)
        if isinstance(found, Saved) and self._replication is not None:
            # WAIT covers what its own connection wrote, and the row may be another's: so write, and wait.
            written = await self._pipeline.call_replicated("SET", self._keys.indexed, "1", "XX")
            self._confirm(save.checkpoint.thread_id, written[1] if written[0] else 0)
        if found is None and save.expected is None and not self._pipeline.is_all_known:
            raise InDoubt(
                f"the row of thread '{save.checkpoint.thread_id}' isn't saved so far, and may come late: "
                "it isn't sent again (for a Redis user with the right to CLIENT KILL it would be)"
            )
        return found

    def _confirm(self, thread_id: str, acknowledged: int) -> None:
        wanted = 0 if self._replication is None else self._replication.replicas
        if acknowledged < wanted:
            raise InDoubt(
                f"the row of thread '{thread_id}' is saved, but on {acknowledged} of {wanted} replicas"
            )

    async def _purgeable(
        self, cutoff: str, states: AbstractSet[ThreadState], count: int, kept: AbstractSet[str]
    ) -> list[str]:
        """The oldest threads that may go, but those known to stay; then by ID."""
        sets = tuple(self._keys.states[state] for state in sorted(states))
        found = await self._retries.run(
            lambda: self._pipeline.run(PURGEABLE, sets, cutoff, count + len(kept))
        )
        oldest = sorted((float(score), thread) for thread, score in found)
        threads = (thread.decode(errors="replace") for _, thread in oldest)
        return [thread for thread in threads if thread not in kept][:count]

    async def _purge(self, cutoff: str, states: AbstractSet[ThreadState], limit: int) -> int:
        purged, kept = 0, set[str]()
        while states and purged < limit:
            threads = await self._purgeable(cutoff, states, limit - purged, kept)
            if not threads:
                break
            gone = await all_of(self._purge_thread(thread, cutoff, states) for thread in threads)
            kept.update(thread for thread, went in zip(threads, gone, strict=True) if not went)
            purged += sum(gone)
        await self._retries.run(self._notes.purge_left)
        return purged

    async def _purge_thread(self, thread_id: str, cutoff: str, states: AbstractSet[ThreadState]) -> bool:
        keys = self._keys.everything_of(thread_id)
        places = [PLACES[state] for state in states]
        went = await self._retries.run(lambda: self._pipeline.run(PURGE, keys, thread_id, cutoff, *places))
        if went:
            self._encoder.forget(thread_id)
        # Also where an answer was lost: then it isn't this call that found the thread there.
        if self._blobs is not None and not await self._retries.run(
            lambda: self._pipeline.call("EXISTS", self._keys.list(thread_id))
        ):
            await self._blobs.delete_thread(thread_id)
        return bool(went)


_REFUSALS: Final[Mapping[int, Answer]] = {0: NotLatest(), -1: LeaseLost(), -2: BaseMoved()}


def _head(row: Checkpoint) -> Checkpoint:
    """The row without its states."""
    return with_states(row, ["null" for _ in row.levels()])


def _token_of(checkpoint: Checkpoint) -> str:
    return token_of(encode(checkpoint).encode())


def _expiry(ttl: timedelta | None) -> int:
    if ttl is None:
        return 0
    if ttl < _MILLISECOND:
        raise InvalidRequest("a finished-thread ttl must be at least a millisecond")
    return -(-ttl // _MILLISECOND)


def _replication(replicas: int, timeout: timedelta) -> Replication | None:
    if replicas < 0:
        raise InvalidRequest(f"a store can't wait for {replicas} replicas")
    if timeout < _MILLISECOND:  # to the server, 0 is for ever
        raise InvalidRequest("a wait for replicas must be at least a millisecond")
    return Replication(replicas, timeout.total_seconds()) if replicas else None


if TYPE_CHECKING:
    _conforms: type[Store] = RedisStore
