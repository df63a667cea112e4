"""The ports of a store: what the engine and the worker may ask of one.

The docstrings here are the contract; adapters don't repeat them and the shipped suite
(`outcrop.stores.contract`) checks them. Every method may raise `StoreError`; only
`Unavailable` is worth a retry, and after it the call may or may not have happened.
The engine always lets a store call finish: cancelling a run never cancels a save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime, timedelta

    from .query import LogPage, ThreadPage, ThreadQuery
    from .record import Checkpoint, Lease, Note, Row, ThreadState

EMPTY_LOG = -1
"""The sequence that a thread's first row follows."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The row was appended at `sequence`."""

    sequence: int


@dataclass(frozen=True, slots=True)
class NotLatest:
    """The log had moved past the expected sequence; nothing was written."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease's token is no longer the thread's latest; nothing was written."""


SaveResult: TypeAlias = Saved | NotLatest | LeaseLost


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lease is the caller's."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Held:
    """Another live lease holds the thread (the same owner's name too)."""

    lease: Lease


AcquireResult: TypeAlias = Acquired | Held | NotLatest


class CheckpointStore(Protocol):
    """Append-only logs of checkpoints, one a thread."""

    async def save(
        self,
        checkpoint: Checkpoint,
        *,
        expected: int | None = None,
        lease: Lease | None = None,
        release: bool = False,
        notes: Sequence[Note] = (),
    ) -> SaveResult:
        """Append `checkpoint` to its thread's log, in one atomic step.

        `expected` makes it conditional: the latest sequence must equal it (`EMPTY_LOG`
        for none). `lease` fences it: the lease's token must be the thread's latest;
        expiry doesn't matter. A lost lease is reported before a moved log. `release` frees
        the thread in the same step, if the row is appended, and `notes` are put beside the
        row in it. Raises `InvalidRequest` when the lease is for another thread, or `release`
        has none.
        """
        ...

    async def load(self, thread_id: str) -> Row | None:
        """The thread's latest row, or None for an unknown thread."""
        ...


class NoteStore(Protocol):
    """What stands beside rows, in tables or keys of our own; purged and copied with its thread."""

    async def add_notes(
        self, beside: Row, notes: Sequence[Note], *, lease: Lease | None = None
    ) -> SaveResult:
        """Put notes beside a thread's latest row, over those of the same kind and path.

        The last of equals counts.

        One atomic step, fenced and conditional like a save: nothing is written, and
        `LeaseLost` or `NotLatest` returned, when the lease's token isn't the thread's latest
        or `beside` isn't the latest row. `Saved` has the row's own sequence. A row is told from
        another at its place by its `created_at`. Raises `InvalidRequest` for a note that the
        store can't hold.
        """
        ...

    async def get_notes(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        """The notes beside these rows of one thread, by sequence; rows without any are left out.

        Sorted by kind and path. A note belongs to the very row that it was put beside: one of
        another log by the same thread ID (purged since by an engine that knows no notes) is
        never returned.
        """
        ...


class LeaseStore(Protocol):
    """Leases beside the logs. Tokens count up per thread and survive release and expiry."""

    async def acquire_lease(
        self, thread_id: str, owner: str, ttl: timedelta, *, expected: int | None = None
    ) -> AcquireResult:
        """Take the thread's lease unless a live one exists, with the next token.

        Live means: not released, and expiring strictly after the store's now. With
        `expected` only while the log ends there (`EMPTY_LOG` for none), in one atomic step:
        who is refused has taken nothing. A held thread is reported before a moved log.
        Raises `InvalidRequest` for a blank owner or a ttl under a millisecond; a ttl is
        rounded up to whole milliseconds.
        """
        ...

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
        """Extend the lease from now; None when its token isn't the thread's latest.

        An expired or released lease that nobody took since is live again.
        """
        ...

    async def release_lease(self, lease: Lease) -> bool:
        """Free the thread, keeping the token; False when the token isn't the latest."""
        ...

    async def get_lease(self, thread_id: str) -> Lease | None:
        """The thread's live lease, or None."""
        ...

    def renewals(self) -> AbstractAsyncContextManager[LeaseStore]:
        """The same leases, for use on another event loop than the store's own.

        A renewer enters it on its own thread's loop, so that a node that blocks the
        main loop can't lose a lease.
        """
        ...


class CheckpointQuery(Protocol):
    """Reading across threads and back in a log."""

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        """One page of threads, newest first by (updated_at, thread_id).

        A page may be short, even empty, and still have a cursor; only a missing cursor
        is the end. A row that breaks the format is told in the page's `unreadable`. Raises
        `InvalidRequest` for a bad limit, cursor or filter.
        """
        ...

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        """Rows with a sequence above `after`, oldest first, 1 to 1,000 a page.

        `next_after` is the last sequence of a full page, else None.
        """
        ...


class CheckpointRetention(Protocol):
    """Deleting whole threads."""

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        """Delete threads in `states` last updated before `older_than`; return how many.

        Oldest first, then by thread ID, at most `limit` (1 to 1,000). A thread under a
        live lease stays and takes no place in the limit. The log, the lease record and
        whatever else the store keeps of the thread go; its sequences and tokens start
        anew.
        """
        ...


class Store(CheckpointStore, NoteStore, LeaseStore, CheckpointQuery, CheckpointRetention, Protocol):
    """All that the worker needs of one store."""

    async def close(self) -> None:
        """Release connections and threads; idempotent."""
        ...
