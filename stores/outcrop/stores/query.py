"""Questions about threads and their answers, as values.

Owns the checks, the cursor and the cut of pages that every store shares. Knows no store
and no time but what a query brings. A cursor names the last thread of a page, so a page
never depends on what a store remembers.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from .errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from .record import GraphIdentity, Row, Status, ThreadState, Wait

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQuery:
    """Filters on threads' latest rows, all of them AND-ed; times compare at whole seconds.

    `states` empty means any; `metadata` pairs must all match; `updated_after` and
    `updated_before` are strict; `due_by` keeps interrupted threads whose innermost wait
    is due by then; the graph filters look at the outermost level.
    """

    states: AbstractSet[ThreadState] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    due_by: datetime | None = None
    graph_id: str | None = None
    graph_version: str | None = None
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSummary:
    """A thread's latest row without its state."""

    thread_id: str
    sequence: int
    state: ThreadState
    status: Status
    suspended_node: str | None
    next_node: str | None
    waiting_at: tuple[str, ...]
    metadata: Mapping[str, str]
    updated_at: str
    schema_version: str
    wait: Wait | None
    graph: GraphIdentity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableThread:
    """A thread of a listing whose latest row breaks the format; `reason` says how."""

    thread_id: str
    sequence: int
    updated_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """One page of a listing; `next_cursor` None is the end.

    A row that can't be read keeps nobody from the others: its thread is in `unreadable`, though
    it may not be one that the query asked for.
    """

    threads: tuple[ThreadSummary, ...]
    next_cursor: str | None
    unreadable: tuple[UnreadableThread, ...] = ()


@dataclass(frozen=True, slots=True)
class LogPage:
    """One page of a thread's log, oldest first."""

    entries: tuple[Row, ...]
    next_after: int | None


def check_limit(limit: int) -> None:
    """Raise `InvalidRequest` unless a page or a purge takes 1 to 1,000."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(f"a page size must be between 1 and {MAX_PAGE}, not {limit}")


def check_query(query: ThreadQuery) -> None:
    """Raise `InvalidRequest` for a bad limit, cursor or filter."""
    check_limit(query.limit)
    if query.graph_version is not None and query.graph_id is None:
        raise InvalidRequest("a thread query's graph_version needs a graph_id")
    if query.cursor is not None:
        decode_cursor(query.cursor)


def encode_cursor(updated_at: str, thread_id: str) -> str:
    """The cursor that continues a listing below this thread."""
    return base64.urlsafe_b64encode(orjson.dumps([updated_at, thread_id])).rstrip(b"=").decode()


def decode_cursor(cursor: str) -> tuple[str, str]:
    """The (updated_at, thread_id) that a cursor continues below; raises `InvalidRequest`."""
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        place = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except ValueError:
        place = None
    match place:
        case [str(updated_at), str(thread_id)]:
            return updated_at, thread_id
        case _:
            raise InvalidRequest(f"'{cursor}' is not a thread listing cursor")


def summary_of(row: Row) -> ThreadSummary:
    """What a listing says of a thread whose latest row this is."""
    checkpoint = row.checkpoint
    return ThreadSummary(
        thread_id=checkpoint.thread_id,
        sequence=row.sequence,
        state=checkpoint.state,
        status=checkpoint.status,
        suspended_node=checkpoint.suspended_node,
        next_node=checkpoint.next_node,
        waiting_at=checkpoint.waiting_at,
        metadata=dict(checkpoint.metadata or {}),
        updated_at=checkpoint.updated_at,
        schema_version=checkpoint.schema_version,
        wait=checkpoint.innermost.wait,
        graph=checkpoint.graph,
    )


def page_of_log(entries: tuple[Row, ...], limit: int) -> LogPage:
    """A log page; a full one says where the next begins, even when nothing follows."""
    return LogPage(entries, entries[-1].sequence if len(entries) == limit else None)


def page_of_threads(found: Sequence[ThreadSummary | UnreadableThread], limit: int) -> ThreadPage:
    """A listing page out of up to `limit` + 1 threads: one more means there is a next page."""
    page, last = found[:limit], found[limit - 1] if len(found) > limit else None
    return ThreadPage(
        tuple(thread for thread in page if isinstance(thread, ThreadSummary)),
        None if last is None else encode_cursor(last.updated_at, last.thread_id),
        tuple(thread for thread in page if isinstance(thread, UnreadableThread)),
    )
