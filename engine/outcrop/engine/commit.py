"""A thread's log as one run writes it: appends rows, each after the last, and notes beside them.

Owns the commit rule's writing side: every save names the sequence it follows once that is
known, is fenced by the lease if there is one, and under a lease a store that can't answer
is asked again until the lease could have expired. Knows no graph and runs no node.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from outcrop.stores.codec import same_as
from outcrop.stores.errors import Unavailable
from outcrop.stores.port import NotLatest, Saved
from outcrop.stores.record import Checkpoint, Row, Status

from .clock import sleep
from .events import CheckpointSaved
from .failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from outcrop.stores.port import SaveResult, Store
    from outcrop.stores.record import Note

    from .clock import Clock
    from .leases import Tenure
    from .options import RowMarks
    from .recorder import Recorder

FIRST_DELAY = 0.05
LONGEST_DELAY = 1.0


class Overtaken(Exception):
    """The thread isn't this run's to write any more, which is no failure of what it was running."""


class LeaseGone(Overtaken):
    """The run's lease is lost: nothing may be written any more."""


class LogMoved(Overtaken):
    """The log isn't where this run left it; nothing was written."""


class Aborted(Exception):
    """The store failed, or a state can't be stored; `str()` says which."""


@dataclass(slots=True, kw_only=True)
class Journal:
    """One run's hand on one thread's log.

    `expected` is the sequence that the next row follows, None while unknown. `last` is the
    row last written. `caller` metadata is on every row, `carried` marks are put there, with
    the call's own `marks` laid over them.
    """

    store: Store
    clock: Clock
    thread_id: str
    durable: bool
    caller: Mapping[str, str]
    carried: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: RowMarks | None = None
    expected: int | None = None
    tenure: Tenure | None = None
    last: Checkpoint | None = None
    recorder: Recorder | None = None

    async def append(self, row: Checkpoint, *, stamp: bool = False, notes: Sequence[Note] = ()) -> int:
        """Save the row after the last one, with its notes, and return its sequence.

        Raises `LeaseGone`, `LogMoved` or `Aborted`; only after the last one may the row
        have been written.
        """
        try:
            marked = self._marked(row, stamp=stamp)
        except Exception as error:
            raise Aborted(f"the marks of a row failed: {type(error).__name__}: {error}") from error
        started = self.clock.monotonic()
        failpoint("save.before")
        # After any other row than a running one or a stamp, the call is over.
        release = self.tenure is not None and row.status is not Status.RUNNING and not stamp
        result = await self._save(marked, notes, release=release)
        failpoint("save.after")
        sequence = self._settled(result)
        self.expected = sequence
        self.last = row
        if self.recorder is not None:
            took = self.clock.monotonic() - started
            self.recorder.emit(CheckpointSaved(row.status, row.waiting_at, stamp, took))
        return sequence

    async def add_notes(self, notes: Sequence[Note]) -> None:
        """Put notes beside the row last written; raises as `append` does."""
        if self.last is None or self.expected is None:
            raise Aborted("notes were to be kept before the run had written a row")
        beside = Row(self.expected, self.last)

        def add() -> Awaitable[SaveResult]:
            lease = None if self.tenure is None else self.tenure.lease
            return self.store.add_notes(beside, notes, lease=lease)

        failpoint("notes.before")
        if self.tenure is None:
            result = await _once(add)
        else:
            result = await self._insist(add, self.tenure)
        failpoint("notes.after")
        self._settled(result)

    def check_lease(self) -> None:
        """Raise `LeaseGone` unless the run may still work."""
        if self.tenure is not None and not self.tenure.stands:
            raise LeaseGone

    def _settled(self, result: SaveResult) -> int:
        if isinstance(result, Saved):
            return result.sequence
        if isinstance(result, NotLatest):
            raise LogMoved
        if self.tenure is not None:
            self.tenure.lost = True
        raise LeaseGone

    def _marked(self, row: Checkpoint, *, stamp: bool) -> Checkpoint:
        if self.marks is None and (stamp or not self.carried):
            return row
        metadata = dict(row.metadata or {})
        if not stamp:
            metadata.update(self.carried)
        if self.marks is not None:
            lease = None if self.tenure is None else self.tenure.lease
            metadata.update(self.marks(row, stamp=stamp, lease=lease))
        return replace(row, metadata=metadata or None)

    async def _save(self, row: Checkpoint, notes: Sequence[Note], *, release: bool) -> SaveResult:
        tenure = self.tenure
        if tenure is None:
            return await _once(lambda: self.store.save(row, expected=self.expected, notes=notes))
        renewed_at = tenure.renewed_at
        result = await self._insist(
            lambda: self.store.save(
                row, expected=self.expected, lease=tenure.lease, release=release, notes=notes
            ),
            tenure,
            find=None if self.expected is None else lambda: self._find(row),
        )
        if release and isinstance(result, Saved):
            tenure.freed(renewed_at)
        return result

    async def _insist(
        self,
        write: Callable[[], Awaitable[SaveResult]],
        tenure: Tenure,
        *,
        find: Callable[[], Awaitable[Saved | None]] | None = None,
    ) -> SaveResult:
        """Ask again until the store answers or the lease could have expired.

        After an answer that was lost, `find` tells whether the write had happened; a write
        that must not happen twice and can't be found is asked for once.
        """
        delay, is_doubtful = FIRST_DELAY, False
        while tenure.stands:
            try:
                result = await write()
                if is_doubtful and find is not None and not isinstance(result, Saved):
                    result = await find() or result
                return result
            except Unavailable as error:
                if self.expected is None:
                    raise Aborted(str(error)) from error
                is_doubtful = True
            except Exception as error:
                raise Aborted(str(error)) from error
            await sleep(self.clock, min(delay, tenure.remaining))
            delay = min(delay * 2, LONGEST_DELAY)
        raise LeaseGone

    async def _find(self, row: Checkpoint) -> Saved | None:
        """The row that follows the expected one, if it is ours after all.

        The lost answer may have been that of the last save: the thread is free since, and
        who took it meanwhile has a newer token.
        """
        page = await self.store.get_log(self.thread_id, after=self.expected, limit=1)
        if page.entries and same_as(page.entries[0].checkpoint, row):
            return Saved(page.entries[0].sequence)
        return None


async def _once(write: Callable[[], Awaitable[SaveResult]]) -> SaveResult:
    try:
        return await write()
    except Exception as error:
        raise Aborted(str(error)) from error
