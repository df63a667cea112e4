"""Appending rows so that each happens once, whatever answers are lost.

Owns what the verdicts of `outcrop_append` mean, and what is done about an answer that never
came: before a row is written again, nothing of the earlier attempt is left that could still
write it, and the log is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from outcrop.stores.codec import same_as
from outcrop.stores.encoded_saves import BaseMoved, EncodedSaves
from outcrop.stores.errors import StoreError, Unavailable
from outcrop.stores.group_commit import each_its_own
from outcrop.stores.port import LeaseLost, NotLatest, Saved
from outcrop.stores.retries import InDoubt, settled

from .arguments import to_arguments, to_arrays, to_note_arrays, to_placed_note_arrays, to_row
from .classify import Unanswered
from .leases import SQL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.stores.blobs import BlobStore
    from outcrop.stores.encoded_saves import Answer
    from outcrop.stores.encoding import Encoder, Stored
    from outcrop.stores.group_commit import Flushed
    from outcrop.stores.port import SaveResult
    from outcrop.stores.record import Lease, Note, Row
    from outcrop.stores.save import Save

    from .database import Database
    from .reading import Reading

_LEASE_LOST: Final = -2
_REFUSALS: Final[dict[int, Answer]] = {-1: NotLatest(), _LEASE_LOST: LeaseLost(), -3: BaseMoved()}


@dataclass(slots=True)
class _Flush:
    """Saves on their way; one without an answer is still to be done."""

    saves: Sequence[Save]
    answers: dict[int, Flushed] = field(default_factory=dict[int, "Flushed"])
    in_doubt: bool = False
    backends: list[int] = field(default_factory=list[int])

    def pending(self) -> list[int]:
        return [at for at in range(len(self.saves)) if at not in self.answers]

    def doubt(self, error: Unavailable) -> None:
        """Note that an attempt failed, which matters if it may have happened."""
        self.in_doubt = self.in_doubt or isinstance(error, InDoubt)
        if isinstance(error, Unanswered):
            self.backends.append(error.backend)


class Saving:
    """How a store appends."""

    def __init__(self, database: Database, rows: Reading, encoder: Encoder, blobs: BlobStore | None) -> None:
        self._database = database
        self._rows = rows
        self._encoded = EncodedSaves(encoder, self._append, blobs=blobs)

    async def flush(self, saves: Sequence[Save]) -> list[Flushed]:
        """Append in order, in one transaction (a `Flush`); each save gets its own answer."""
        flush = _Flush(saves)
        try:
            await self._database.retries.run(lambda: self._attempt(flush))
        except Unavailable as error:
            pending = flush.pending()
            flush.answers |= zip(pending, each_its_own(error, len(pending)), strict=True)
        except StoreError as error:
            pending = flush.pending()  # nothing of them was written
            flush.answers |= dict.fromkeys(pending, error if len(pending) == 1 else None)
        return [flush.answers[at] for at in range(len(saves))]

    async def add_notes(self, beside: Row, notes: Sequence[Note], lease: Lease | None) -> SaveResult:
        """Put notes beside a row; what was in doubt is done again, which changes nothing."""
        row = beside.checkpoint
        place = (row.thread_id, beside.sequence, row.created_at, None if lease is None else lease.token)
        arguments = (*place, *to_note_arrays(row.thread_id, notes))
        verdict = await self._database.run(lambda session: session.value(SQL["add_notes"], *arguments))
        return LeaseLost() if verdict == _LEASE_LOST else NotLatest() if verdict < 0 else Saved(verdict)

    async def _attempt(self, flush: _Flush) -> None:
        if flush.in_doubt:
            await self._settle(flush)
        pending = flush.pending()
        if not pending:
            return
        try:
            results = await self._encoded.flush([flush.saves[at] for at in pending])
        except Unavailable as error:
            flush.doubt(error)
            raise
        failed: Unavailable | None = None
        for at, result in zip(pending, results, strict=True):
            if isinstance(result, Unavailable):
                failed = result
                flush.doubt(result)
            else:
                flush.answers[at] = result
        if failed is not None:
            raise failed

    async def _append(self, saves: Sequence[Save], forms: Sequence[Stored]) -> Sequence[Answer]:
        rows = [to_row(save, form) for save, form in zip(saves, forms, strict=True)]
        blobs = [form.blobs for form in forms]
        verdicts: list[int]
        if any(save.notes for save in saves):
            noted = (*to_arrays(rows, blobs), *to_placed_note_arrays(saves))
            verdicts = await self._database.once(lambda session: session.value(SQL["save_noted"], *noted))
        elif len(rows) == 1:  # as plain values it takes half the time to pack
            one = to_arguments(rows[0], blobs[0])
            verdicts = [await self._database.once(lambda session: session.value(SQL["append"], *one))]
        else:
            many = to_arrays(rows, blobs)
            verdicts = await self._database.once(lambda session: session.value(SQL["save"], *many))
        return [_answer(verdict) for verdict in verdicts]

    async def _settle(self, flush: _Flush) -> None:
        """Answer those saves of an attempt whose answer was lost that were committed after all."""
        threads: defaultdict[str, list[int]] = defaultdict(list)
        for at in flush.pending():
            threads[flush.saves[at].checkpoint.thread_id].append(at)
        await self._end(flush.backends, list(threads))
        for thread_id, places in threads.items():
            plain = [at for at in places if flush.saves[at].expected is None]
            newest = await self._rows.tail(thread_id, len(plain)) if plain else []
            for at, row in zip(plain, _found([flush.saves[at] for at in plain], newest), strict=True):
                if row is not None:
                    flush.answers[at] = Saved(row.sequence)
            for at in places:
                save = flush.saves[at]
                if save.expected is not None:
                    answer = await settled(self._rows, save.checkpoint, save.expected)
                    if isinstance(answer, Saved):  # a moved log is for the store to tell, lost lease first
                        flush.answers[at] = answer

    async def _end(self, backends: Sequence[int], threads: Sequence[str]) -> None:
        """See to it that an attempt that nobody waits for any more writes nothing from now on.

        A stalled network may deliver its statement yet, so its server process is ended. Behind
        PgBouncer processes have no name that is worth anything; PgBouncer itself drops what a
        lost client sent, and a statement that is running has the threads' locks.
        """
        if not self._database.access.prepared:
            await self._database.once(lambda session: session.fetch(SQL["wait_for_saves"], list(threads)))
        elif backends and not await self._database.once(
            lambda session: session.value(SQL["end_backends"], list(backends))
        ):
            raise Unavailable("an earlier attempt's Postgres process doesn't end")


def _answer(verdict: int) -> Answer:
    return _REFUSALS[verdict] if verdict < 0 else Saved(verdict)


def _found(saves: Sequence[Save], rows: Sequence[Row]) -> list[Row | None]:
    """Each save's own row among a log's last ones, which are in the order of the saves."""
    left = list(rows)
    found: list[Row | None] = []
    for save in saves:
        at = next((at for at, row in enumerate(left) if same_as(row.checkpoint, save.checkpoint)), None)
        found.append(None if at is None else left[at])
        if at is not None:
            del left[: at + 1]
    return found
