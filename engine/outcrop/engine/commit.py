"""A thread's log as one run writes it: builds rows and appends them, each after the last.

Owns the commit rule's writing side: every save names the sequence it follows once that is
known, is fenced by the lease if there is one, and under a lease a store that can't answer
is asked again until the lease could have expired. Knows no graph and runs no node.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from outcrop.stores.codec import same_as, schema_version_for
from outcrop.stores.errors import Unavailable
from outcrop.stores.instants import instant_text
from outcrop.stores.port import NotLatest, Saved
from outcrop.stores.record import Checkpoint, Decision, GraphIdentity, Status, Wait, WaitKind

from .clock import sleep
from .failpoints import failpoint
from .metadata import HOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outcrop.stores.port import SaveResult, Store

    from .clock import Clock
    from .leases import Tenure
    from .options import RowMarks

FIRST_DELAY = 0.05
LONGEST_DELAY = 1.0


class LeaseGone(Exception):
    """The run's lease is lost: nothing may be written any more."""


class LogMoved(Exception):
    """The log isn't where this run left it; nothing was written."""


class Aborted(Exception):
    """The store failed, or a state can't be stored; `str()` says which."""


@dataclass(slots=True, kw_only=True)
class Journal:
    """One run's hand on one thread's log.

    `expected` is the sequence that the next row follows, None while unknown. `last` is the
    row last written. `caller` metadata goes on every row, `carried` marks too, with the
    call's own `marks` laid over them.
    """

    store: Store
    clock: Clock
    thread_id: str
    identity: GraphIdentity | None
    durable: bool
    caller: Mapping[str, str]
    carried: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: RowMarks | None = None
    expected: int | None = None
    tenure: Tenure | None = None
    last: Checkpoint | None = None

    def row(
        self,
        status: Status,
        suspended: str | None,
        following: str | None,
        state: str,
        *,
        hops: int,
        decision: Decision | None,
        wait: Wait | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """A row of the outermost level, as of now; `hops` shows under EveryNode only."""
        metadata = dict(self.caller)
        if self.durable:
            metadata[HOPS] = str(hops)
        if extra:
            metadata.update(extra)
        return Checkpoint(
            schema_version=_flat_version(
                status, wait is not None, decision is not None, self.identity is not None
            ),
            thread_id=self.thread_id,
            status=status,
            suspended_node=suspended,
            next_node=following,
            frozen_state=state,
            metadata=metadata or None,
            created_at=instant_text(self.clock.now()),
            decision=decision,
            wait=wait,
            graph=self.identity,
        )

    async def append(self, row: Checkpoint, *, stamp: bool = False) -> int:
        """Save the row after the last one and return its sequence.

        Raises `LeaseGone`, `LogMoved` or `Aborted`; only after the last one may the row
        have been written.
        """
        try:
            marked = self._marked(row, stamp=stamp)
        except Exception as error:
            raise Aborted(f"the marks of a row failed: {type(error).__name__}: {error}") from error
        failpoint("save.before")
        if self.tenure is None:
            result = await self._save_once(marked)
        else:
            # After any other row than a running one or a stamp, the call is over.
            is_last = row.status is not Status.RUNNING and not stamp
            result = await self._save_leased(marked, self.tenure, release=is_last)
        failpoint("save.after")
        if isinstance(result, Saved):
            self.expected = result.sequence
            self.last = row
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

    async def _save_once(self, row: Checkpoint) -> SaveResult:
        try:
            return await self.store.save(row, expected=self.expected)
        except Exception as error:
            raise Aborted(str(error)) from error

    async def _save_leased(self, row: Checkpoint, tenure: Tenure, *, release: bool) -> SaveResult:
        delay, is_doubtful, renewed_at = FIRST_DELAY, False, tenure.renewed_at
        while tenure.stands:
            try:
                result = await self.store.save(
                    row, expected=self.expected, lease=tenure.lease, release=release
                )
                if is_doubtful and not isinstance(result, Saved):
                    result = await self._find(row) or result
                if release and isinstance(result, Saved):
                    tenure.freed(renewed_at)
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


@cache
def _flat_version(status: Status, waits: bool, decided: bool, identified: bool) -> str:  # noqa: FBT001 - flags of a table
    """The schema version of a row with nothing nested; building the row twice would cost a save more."""
    return schema_version_for(
        Checkpoint(
            schema_version="",
            thread_id="",
            status=status,
            suspended_node=None,
            next_node=None,
            frozen_state="",
            metadata=None,
            created_at="",
            wait=Wait(WaitKind.TIMER) if waits else None,
            decision=Decision("", is_approved=True, reviewer="", overrides={}, decided_at="")
            if decided
            else None,
            graph=GraphIdentity("") if identified else None,
        )
    )


def versioned(row: Checkpoint) -> Checkpoint:
    """The row with the schema version that its content asks for."""
    version = schema_version_for(row)
    return row if row.schema_version == version else replace(row, schema_version=version)


def each_level(row: Checkpoint, change: Callable[[Checkpoint], Checkpoint]) -> Checkpoint:
    """The row with every level changed, innermost first, and its schema versions put right."""
    nested = None if row.nested is None else each_level(row.nested, change)
    return versioned(change(replace(row, nested=nested)))
