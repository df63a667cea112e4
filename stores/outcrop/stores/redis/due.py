"""Which threads are due, without a look at every thread that waits.

The format's set of waiting threads is ordered by when they began to wait, so beside it there is one of
ours by wake time. Our saves keep it. Other engines don't know it: so a listing first compares the threads
that began to wait lately with what was noted of them, and notes what differs. Lately is from an hour
before the newest thread that the last comparison saw: writers' clocks may differ by that much, the time
of a save included. What isn't known to be whole isn't used.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from outcrop.stores.errors import CorruptRow
from outcrop.stores.instants import parse_instant

from .keys import digits_of, updated_at_of
from .scripts import CATCH_UP, DUE, DUE_ONLY, LOOK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .keys import Keys
    from .pipeline import Argument, Pipeline, Reply
    from .scripts import Script

LATELY: Final = timedelta(hours=1)
THREADS_A_SCRIPT: Final = 500
BYTES_A_SCRIPT: Final = 1_000_000  # of rows that another engine wrote, which the server has to parse
MOST_DUE: Final = 5000  # with more, a page isn't found faster than by a look at all that wait
EVERYTHING: Final = "0"


@dataclass(frozen=True, slots=True)
class Due:
    """The threads that are due at one time."""

    pipeline: Pipeline
    script: Script
    keys: Sequence[str]
    arguments: tuple[Argument, ...]

    async def page(self, *place: Argument) -> Reply:
        """What `PAGE` answers of waiting threads for these arguments; None where it has to be asked."""
        return await self.pipeline.run(self.script, self.keys, *place, *self.arguments)


class DueIndex:
    """The threads under one prefix by wake time; with `read_only` it is used, and left as it is."""

    def __init__(self, pipeline: Pipeline, keys: Keys, *, read_only: bool) -> None:
        self._pipeline = pipeline
        self._keys = (keys.waking, keys.heads, keys.due, keys.waits)
        self._lists = keys.lists
        self._read_only = read_only

    async def by(self, moment: datetime, *, compare: bool) -> Due | None:
        """The threads due by then, None where they can't be told; without `compare` as of an earlier one."""
        floor = await self._compared() if compare else ""
        if floor is None:
            return None
        script = DUE_ONLY if self._read_only else DUE
        arguments = (digits_of(moment), MOST_DUE, floor, int(not self._read_only))
        return Due(self._pipeline, script, self._keys, arguments)

    async def _compared(self) -> str | None:
        """How far back the next comparison must go, None where this one found what it may not note."""
        script, notes = (LOOK, 0) if self._read_only else (CATCH_UP, 1)
        score, thread, floor, following, done = "", "", "", "", 0
        while not done:
            arguments = (score, thread, THREADS_A_SCRIPT, self._lists, floor, notes, BYTES_A_SCRIPT)
            done, differed, newest, floor, score, thread, time = await self._pipeline.run(
                script, self._keys, *arguments
            )
            if self._read_only and (differed or floor == EVERYTHING.encode()):
                return None
            following = following or _floor(newest.decode(), int(time))
        return "" if self._read_only else following


def _floor(newest: str, now: int) -> str:
    """The score an hour before the newest thread's, or the server's now if that is earlier."""
    if not newest:
        return EVERYTHING
    clock = datetime.fromtimestamp(now, UTC)
    with suppress(CorruptRow):  # digits of another form, which are greater than any time's
        clock = min(clock, parse_instant(updated_at_of(newest)))
    return digits_of(clock - LATELY)
