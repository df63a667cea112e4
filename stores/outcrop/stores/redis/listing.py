"""Listing threads: candidates from the index sets, judged by their latest rows.

The sets are ordered by time and know states; everything else is read from the rows, or their heads
where those are large (see scripts.lua). So a page
may be short, or empty, and still have a cursor: it ends after ten candidates a place in it.
A thread whose list is gone is taken out of the sets when a listing meets it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from outcrop.stores.calls import all_of
from outcrop.stores.codec import decode, parse
from outcrop.stores.deltas import ENCODED_VERSIONS, stored_version
from outcrop.stores.errors import CorruptRow, InvalidRequest
from outcrop.stores.instants import parse_instant
from outcrop.stores.matching import matcher
from outcrop.stores.query import (
    MAX_PAGE,
    ThreadPage,
    UnreadableThread,
    decode_cursor,
    encode_cursor,
    page_of_threads,
    summary_of,
)
from outcrop.stores.record import Row

from .due import DueIndex
from .keys import digits_of, updated_at_of
from .rows import naming
from .scripts import INDEX, PAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from outcrop.stores.query import ThreadQuery, ThreadSummary
    from outcrop.stores.record import Checkpoint

    from .due import Due
    from .keys import Keys
    from .pipeline import Pipeline

_CANDIDATES_A_PLACE: Final = 10
_MOST_AT_ONCE: Final = 100  # a script reads that many rows and lets other clients in


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a listing goes on: below this thread of this score."""

    score: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A thread of the sets, with its latest row where there is one."""

    place: _Place
    length: int
    element: bytes


class Listing:
    """Listings under one prefix; with `read_only` nothing is taken out of the sets."""

    def __init__(self, pipeline: Pipeline, keys: Keys, *, read_only: bool) -> None:
        self._pipeline = pipeline
        self._keys = keys
        self._read_only = read_only
        self._due = DueIndex(pipeline, keys, read_only=read_only)

    async def list_threads(self, query: ThreadQuery) -> ThreadPage:
        """One page of a checked query; raises `StoreError`."""
        matches = matcher(replace(query, cursor=None))  # that one is by score: see `_start`
        floor = "" if query.updated_after is None else digits_of(query.updated_after)
        place, left = _start(query), _CANDIDATES_A_PLACE * query.limit
        due = None
        if query.due_by is not None:  # what began to wait since the first page belongs before it
            due = await self._due.by(query.due_by, compare=query.cursor is None)
        found: list[ThreadSummary | UnreadableThread] = []
        while left > 0:
            count = min(left, query.limit, _MOST_AT_ONCE)
            candidates = await self._candidates(query, place, count, floor, due)
            for candidate in candidates:
                place = candidate.place
                found.extend(_found(candidate, matches))
                if len(found) == query.limit:
                    return _page(found, place)
            if len(candidates) < count:
                return _page(found, None)
            left -= count
        return _page(found, place)

    async def _candidates(
        self, query: ThreadQuery, below: _Place | None, count: int, floor: str, due: Due | None
    ) -> list[_Candidate]:
        score, thread_id = ("", "") if below is None else (below.score, below.thread_id)
        arguments = (score, thread_id, count, floor, self._keys.lists)
        found = None if due is None else await due.page(*arguments)
        if found is None:
            found = await self._pipeline.run(PAGE, (self._keys.heads, *self._sets(query)), *arguments)
        candidates = [
            _Candidate(_Place(score.decode(), thread.decode(errors="replace")), length, element)
            for thread, score, length, element in found
        ]
        if not self._read_only:
            gone = [it.place.thread_id for it in candidates if not it.element]
            await all_of(reindex(self._pipeline, self._keys, thread_id) for thread_id in gone)
        return candidates

    def _sets(self, query: ThreadQuery) -> tuple[str, ...]:
        if query.due_by is not None:
            return (self._keys.waking,)
        if query.states:
            return tuple(self._keys.states[state] for state in sorted(query.states))
        return (self._keys.threads,)


async def reindex(pipeline: Pipeline, keys: Keys, thread_id: str) -> int:
    """Index the thread by its latest row: 1; 0 when it has none, and -1 when that can't be read."""
    answer: int = await pipeline.run(INDEX, (keys.list(thread_id), *keys.index, *keys.ours), thread_id)
    return answer


def _start(query: ThreadQuery) -> _Place | None:
    places: list[_Place] = []
    if query.cursor is not None:
        updated_at, thread_id = decode_cursor(query.cursor)
        try:
            places.append(_Place(digits_of(parse_instant(updated_at)), thread_id))
        except CorruptRow:
            raise InvalidRequest(f"'{query.cursor}' is not a thread listing cursor") from None
    if query.updated_before is not None:
        places.append(_Place(digits_of(query.updated_before), ""))
    return min(places, key=lambda place: (place.score, place.thread_id.encode()), default=None)


def _cursor(place: _Place) -> str:
    return encode_cursor(updated_at_of(place.score), place.thread_id)


def _page(found: Sequence[ThreadSummary | UnreadableThread], place: _Place | None) -> ThreadPage:
    return replace(page_of_threads(found, MAX_PAGE), next_cursor=None if place is None else _cursor(place))


def _found(
    candidate: _Candidate, matches: Callable[[Checkpoint], bool]
) -> Iterator[ThreadSummary | UnreadableThread]:
    """What the candidate adds to the listing, if anything."""
    if not candidate.element:
        return
    place = candidate.place
    try:
        row = _row(candidate)
    except CorruptRow as error:
        yield UnreadableThread(
            thread_id=place.thread_id,
            sequence=candidate.length - 1,
            updated_at=updated_at_of(place.score),
            reason=str(error),
        )
        return
    if matches(row.checkpoint):
        yield summary_of(row)


def _row(candidate: _Candidate) -> Row:
    sequence = candidate.length - 1
    with naming(candidate.place.thread_id, sequence):
        checkpoint = decode(candidate.element)
        version = checkpoint.schema_version
        if version in ENCODED_VERSIONS:
            match parse(checkpoint.frozen_state, "an envelope"):
                case {"checkpoint_version": inner}:
                    version = stored_version(checkpoint.thread_id, sequence, version, inner)
                case _:
                    version = stored_version(checkpoint.thread_id, sequence, version, None)
        return Row(sequence, replace(checkpoint, schema_version=version))
