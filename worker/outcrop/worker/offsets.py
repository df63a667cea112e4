"""Which messages of one assigned partition are done, and how a commit says so.

Pure: no clock, no client. The committed offset is the lowest unfinished one; the finished
ones above it travel in the commit's metadata string, so that the next owner skips them.
Offsets have gaps (transaction markers, compaction): what lies between two delivered
offsets and never came is finished.

The string is `1.` and base64url of varint pairs (unfinished run, finished run), counted
from the committed offset, up to the last finished one. It always fits the broker's limit
(`offset.metadata.max.bytes`, 4,096 by default, of which Kafka 4.3 takes 4,095): at most
MAX_UNFINISHED = 512 offsets are unfinished, so there are at most 512 pairs. Their unfinished
runs add up to 512: one byte each, and a second for at most 512/128 = 4. Their finished runs
add up to less than MAX_SPAN = 2^35: four bytes each, and a fifth for at most 2^35/2^28 = 128.
512 + 4 + 2,048 + 128 = 2,692 bytes, 3,590 as base64, 3,592 with the prefix.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from .ports import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_UNFINISHED = 512
MAX_SPAN = 2**35
LONGEST_METADATA = 3592
_PREFIX = "1."
_MORE = 0x80
_LOW = 0x7F
_MAX_SHIFT = 63


class Admission(Enum):
    """What to do with a delivered message."""

    HANDLE = "handle"
    SKIP = "skip"  # finished by an earlier owner, or delivered before
    HOLD = "hold"  # the partition is full: ask again after something finished


class OffsetTracker:
    """The finished and unfinished offsets of one assignment of a partition."""

    def __init__(self, committed: Position | None) -> None:
        unfinished, end = ([], None) if committed is None else _decode(committed)
        self._unfinished: dict[int, None] = dict.fromkeys(unfinished)  # in offset order
        self._inherited = deque(unfinished)  # unfinished, not delivered to this assignment yet
        self._end = end  # everything below is unfinished or done; None before anything is known
        self._delivered = -1

    @property
    def unfinished(self) -> int:
        """How many delivered offsets are unfinished; those that an earlier owner left are yet to come."""
        return len(self._unfinished) - len(self._inherited)

    @property
    def full(self) -> bool:
        """Whether one more unfinished offset might not fit in the metadata."""
        first = next(iter(self._unfinished), None)
        if first is None or self._end is None:
            return False
        return len(self._unfinished) >= MAX_UNFINISHED or self._end - first >= MAX_SPAN - 1

    def admit(self, offset: int) -> Admission:
        """Take a delivered message in, in offset order; HANDLE makes it unfinished."""
        if offset <= self._delivered:
            return Admission.SKIP
        while self._inherited and self._inherited[0] < offset:
            self.finish(self._inherited.popleft())  # it didn't come: it isn't in the log
        if self._end is not None and offset < self._end:
            return self._admit_inherited(offset)
        first = next(iter(self._unfinished), offset)
        if self.full or offset + 1 - first >= MAX_SPAN:
            return Admission.HOLD
        self._unfinished[offset] = None
        self._delivered = offset
        self._end = offset + 1
        return Admission.HANDLE

    def finish(self, offset: int) -> None:
        """The message at `offset` is done, and what it led to is published."""
        self._unfinished.pop(offset, None)

    def position(self) -> Position | None:
        """What to commit now; None while nothing is known of the partition."""
        if self._end is None:
            return None
        first = next(iter(self._unfinished), self._end)
        return Position(first, _encode(tuple(self._unfinished), self._end))

    def _admit_inherited(self, offset: int) -> Admission:
        self._delivered = offset
        if self._inherited and self._inherited[0] == offset:
            self._inherited.popleft()
            return Admission.HANDLE
        return Admission.SKIP


def _encode(unfinished: Sequence[int], end: int) -> str:
    """The runs of `unfinished` and of what is finished between and after, up to `end`."""
    if not unfinished:
        return ""
    numbers = bytearray()
    run = 1
    for offset, following in pairwise((*unfinished, end)):
        finished = following - offset - 1
        if finished:
            numbers += _varint(run) + _varint(finished)
            run = 0
        run += 1
    if not numbers:
        return ""
    return _PREFIX + base64.urlsafe_b64encode(numbers).decode("ascii").rstrip("=")


def _decode(committed: Position) -> tuple[list[int], int]:
    """The unfinished offsets of a commit, and the end of what it tells about.

    Metadata that isn't ours, or is cut or garbled, tells nothing: all from the offset on is new.
    """
    nothing: tuple[list[int], int] = ([], committed.offset)
    if not committed.metadata.startswith(_PREFIX) or len(committed.metadata) > LONGEST_METADATA:
        return nothing
    runs = _runs(committed.metadata.removeprefix(_PREFIX))
    if runs is None or sum(runs[::2]) > MAX_UNFINISHED or sum(runs) > MAX_SPAN:
        return nothing
    unfinished: list[int] = []
    offset = committed.offset
    for pending, finished in zip(runs[::2], runs[1::2], strict=True):
        unfinished.extend(range(offset, offset + pending))
        offset += pending + finished
    return unfinished, offset


def _runs(text: str) -> list[int] | None:
    """The numbers in `text`: a positive, even count of positive ones, or None."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        numbers = list(_varints(raw))
    except (binascii.Error, ValueError):
        return None
    return numbers if numbers and len(numbers) % 2 == 0 and all(numbers) else None


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > _LOW:
        out.append(number & _LOW | _MORE)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varints(raw: Iterable[int]) -> Iterator[int]:
    number = shift = 0
    for byte in raw:
        number |= (byte & _LOW) << shift
        shift += 7
        if byte & _MORE:
            if shift >= _MAX_SHIFT:
                raise ValueError("a number too long")
            continue
        yield number
        number = shift = 0
    if shift:
        raise ValueError("a number cut short")
