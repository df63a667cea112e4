"""Where reading a partition starts when the group has, or hasn't, a place in it.

Pure. A committed place is where it goes on. Without one, a group that has none anywhere is
being made, and reads from the beginning; so does a partition that still has its first
message. Anything else would silently pass over commands, or replay them, so it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import OffsetLost
from .ports import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ports import Partition


@dataclass(frozen=True, slots=True)
class Place:
    """What the group has committed of a partition, and the lowest offset still in its log."""

    committed: Position | None
    low: int


def starting_point(partition: Partition, place: Place, *, new_group: bool) -> Position:
    """Where to read on; raises `OffsetLost` when that can't be known."""
    if place.committed is not None:
        return place.committed
    if new_group or place.low == 0:
        return Position(place.low)
    raise OffsetLost(partition, f"the group has committed nothing here, and the log starts at {place.low}")


def is_new_group(committed: Mapping[Partition, Position | None]) -> bool:
    """Whether the group has no place in any partition that it reads."""
    return all(position is None for position in committed.values())
