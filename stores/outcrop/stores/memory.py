"""The in-memory store: the port's contract in its plainest form, and the store of tests.

Logs are lists, a sequence is an index. Rows are copied in and out, so no caller can change
what another one reads. One lock covers every call, because a renewer uses the same leases
from another thread.
"""

from __future__ import annotations

import copy
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from .codec import check_metadata
from .instants import instant_text
from .leases import (
    check_lease_of,
    check_owner,
    from_milliseconds,
    system_now,
    to_milliseconds,
    ttl_milliseconds,
)
from .matching import matcher
from .notes import by_sequence, check_notes
from .port import EMPTY_LOG, Acquired, AcquireResult, Held, LeaseLost, NotLatest, Saved, SaveResult
from .query import check_limit, check_query, page_of_log, page_of_threads, summary_of
from .record import Checkpoint, Lease, Row

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime, timedelta

    from .port import LeaseStore, Store
    from .query import LogPage, ThreadPage, ThreadQuery
    from .record import Note, NoteKind, ThreadState


_Entry: TypeAlias = "tuple[Checkpoint, Mapping[str, str] | None]"
"""A row and its metadata, the latter the store's own copy."""


@dataclass(slots=True)
class _LeaseRecord:
    token: int
    owner: str | None
    expires_at: int


class MemoryStore:
    """Everything in this process; gone with it. `clock` is the leases' time."""

    def __init__(self, *, clock: Callable[[], datetime] = system_now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logs: dict[str, list[_Entry]] = {}
        self._leases: dict[str, _LeaseRecord] = {}
        self._notes: dict[str, dict[int, dict[tuple[NoteKind, str], Note]]] = {}

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
        entry = _entry(checkpoint)
        with self._lock:
            record = None if lease is None else self._record_of(lease)
            if lease is not None and record is None:
                return LeaseLost()
            log = self._logs.get(checkpoint.thread_id)
            sequence = 0 if log is None else len(log)
            if expected is not None and expected != sequence - 1:
                return NotLatest()
            if log is None:
                self._logs[checkpoint.thread_id] = [entry]
            else:
                log.append(entry)
            if release and record is not None:
                record.owner = None
            if notes:
                self._put(checkpoint.thread_id, sequence, notes)
            return Saved(sequence)

    async def add_notes(
        self, beside: Row, notes: Sequence[Note], *, lease: Lease | None = None
    ) -> SaveResult:
        check_lease_of(beside.checkpoint, lease, release=False)
        thread_id = beside.checkpoint.thread_id
        check_notes(thread_id, notes)
        with self._lock:
            if lease is not None and self._record_of(lease) is None:
                return LeaseLost()
            if len(self._logs.get(thread_id, ())) != beside.sequence + 1 or not self._has(beside):
                return NotLatest()
            self._put(thread_id, beside.sequence, notes)
            return Saved(beside.sequence)

    async def get_notes(self, rows: Sequence[Row]) -> Mapping[int, tuple[Note, ...]]:
        found: list[tuple[int, str, str, str]] = []
        with self._lock:
            for row in rows:
                if not self._has(row):
                    continue
                beside = self._notes.get(row.checkpoint.thread_id, {}).get(row.sequence, {})
                found.extend((row.sequence, note.kind, note.path, note.value) for note in beside.values())
        return by_sequence(found)

    def _has(self, row: Row) -> bool:
        log = self._logs.get(row.checkpoint.thread_id, [])
        return 0 <= row.sequence < len(log) and log[row.sequence][0].created_at == row.checkpoint.created_at

    def _put(self, thread_id: str, sequence: int, notes: Sequence[Note]) -> None:
        beside = self._notes.setdefault(thread_id, {}).setdefault(sequence, {})
        beside.update({(note.kind, note.path): note for note in notes})

    async def load(self, thread_id: str) -> Row | None:
        with self._lock:
            log = self._logs.get(thread_id)
            return None if log is None else Row(len(log) - 1, _copied(*log[-1]))

    async def acquire_lease(
        self, thread_id: str, owner: str, ttl: timedelta, *, expected: int | None = None
    ) -> AcquireResult:
        check_owner(owner)
        milliseconds = ttl_milliseconds(ttl)
        with self._lock:
            held = self._live(thread_id)
            if held is not None:
                return Held(held)
            if expected is not None and expected != len(self._logs.get(thread_id, ())) - 1:
                return NotLatest()
            last = self._leases.get(thread_id)
            token = 1 if last is None else last.token + 1
            record = _LeaseRecord(token, owner, self._now() + milliseconds)
            self._leases[thread_id] = record
            return Acquired(Lease(thread_id, owner, token, from_milliseconds(record.expires_at)))

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease | None:
        milliseconds = ttl_milliseconds(ttl)
        with self._lock:
            record = self._record_of(lease)
            if record is None:
                return None
            record.owner, record.expires_at = lease.owner, self._now() + milliseconds
            return replace(lease, expires_at=from_milliseconds(record.expires_at))

    async def release_lease(self, lease: Lease) -> bool:
        with self._lock:
            record = self._record_of(lease)
            if record is None:
                return False
            record.owner = None
            return True

    async def get_lease(self, thread_id: str) -> Lease | None:
        with self._lock:
            return self._live(thread_id)

    @asynccontextmanager
    async def renewals(self) -> AsyncGenerator[LeaseStore]:
        yield self

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        check_query(query)
        matches = matcher(query)
        with self._lock:
            heads = [(len(log) - 1, *log[-1]) for log in self._logs.values()]
        if query.metadata:  # the store's own copy is what counts
            heads = [(at, replace(head, metadata=metadata), metadata) for at, head, metadata in heads]
        found = [head for head in heads if matches(head[1])]
        found.sort(key=lambda head: (head[1].updated_at, head[1].thread_id), reverse=True)
        page = found[: query.limit + 1]
        threads = [summary_of(Row(at, _copied(head, metadata))) for at, head, metadata in page]
        return page_of_threads(threads, query.limit)

    async def get_log(self, thread_id: str, *, after: int | None = None, limit: int = 100) -> LogPage:
        check_limit(limit)
        first = max(EMPTY_LOG if after is None else after, EMPTY_LOG) + 1
        with self._lock:
            rows = self._logs.get(thread_id, [])[first : first + limit]
        return page_of_log(tuple(Row(at, _copied(*entry)) for at, entry in enumerate(rows, first)), limit)

    async def purge(
        self, older_than: datetime, *, states: AbstractSet[ThreadState], limit: int = 1000
    ) -> int:
        check_limit(limit)
        cutoff = instant_text(older_than)
        with self._lock:
            old = sorted(
                (head.updated_at, thread_id)
                for thread_id, head in ((thread_id, log[-1][0]) for thread_id, log in self._logs.items())
                if head.state in states and head.updated_at < cutoff and self._live(thread_id) is None
            )[:limit]
            for _, thread_id in old:
                del self._logs[thread_id]
                self._leases.pop(thread_id, None)
                self._notes.pop(thread_id, None)
            return len(old)

    async def close(self) -> None:
        """Keep everything: another part of the process may still read it."""

    def _now(self) -> int:
        return to_milliseconds(self._clock())

    def _record_of(self, lease: Lease) -> _LeaseRecord | None:
        record = self._leases.get(lease.thread_id)
        return record if record is not None and record.token == lease.token else None

    def _live(self, thread_id: str) -> Lease | None:
        record = self._leases.get(thread_id)
        if record is None or record.owner is None or record.expires_at <= self._now():
            return None
        return Lease(thread_id, record.owner, record.token, from_milliseconds(record.expires_at))


def _entry(checkpoint: Checkpoint) -> _Entry:
    metadata = checkpoint.metadata
    if metadata is not None:
        check_metadata(metadata)
        metadata = dict(metadata)
    if checkpoint.nested is None and checkpoint.decision is None:
        return checkpoint, metadata  # nothing else is mutable, and a copy would double a save's cost
    return _copied(checkpoint, metadata), metadata


def _copied(checkpoint: Checkpoint, metadata: Mapping[str, str] | None) -> Checkpoint:
    decision, nested = checkpoint.decision, checkpoint.nested
    return replace(
        checkpoint,
        metadata=None if metadata is None else dict(metadata),
        decision=None if decision is None else copy.deepcopy(decision),
        nested=None if nested is None else _copied(nested, nested.metadata),
    )


if TYPE_CHECKING:
    _conforms: type[Store] = MemoryStore
