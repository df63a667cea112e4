"""Answers out of candidates: the ranking of a search and the cut of a page, as every store gives them.

IDs are ordered by code point, which is also the byte order of their UTF-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checks import encode_cursor
from .record import RecordPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .record import Match, Record, Search


def rank(matches: Iterable[Match], search: Search) -> tuple[Match, ...]:
    """The search's answer out of all that it might be: alike enough, best first, ties by ID, cut."""
    least = -1.0 if search.min_similarity is None else search.min_similarity
    alike = [match for match in matches if match.similarity >= least]
    alike.sort(key=lambda match: (-match.similarity, match.record.id))
    return tuple(alike[: search.limit])


def page_of_records(records: Sequence[Record], limit: int) -> RecordPage:
    """A page out of up to one record more than its limit: one more means there is a next page."""
    if len(records) <= limit:
        return RecordPage(tuple(records), None)
    return RecordPage(tuple(records[:limit]), encode_cursor(records[limit - 1].id))
