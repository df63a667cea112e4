"""One call's run: what all of its levels share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outcrop.stores.record import Note, NoteKind

from .cancellation import CancelReason
from .chunks import Chunk
from .errors import ChannelClosed
from .metadata import hops_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from .cancellation import CancelToken
    from .chunks import ChunkStream, ChunkType
    from .clock import Clock
    from .commit import Journal
    from .events import EventKind
    from .open_notes import OpenNotes
    from .recorder import Recorder


@dataclass(slots=True, kw_only=True)
class Run:
    """Built once for a call. `token` is the run's own; `asked` is the caller's."""

    journal: Journal
    clock: Clock
    uniform: Callable[[], float]
    executor: Executor | None
    token: CancelToken
    asked: CancelToken | None
    stop: CancelToken | None
    run_id: str
    services: Mapping[type[object], object]
    notes: OpenNotes
    recorder: Recorder | None = None
    stream: ChunkStream | None = None
    interrupt_before: frozenset[str] = frozenset()
    interrupt_after: frozenset[str] = frozenset()

    @property
    def reason(self) -> CancelReason:
        """Why the run stops: a lost lease outranks the caller, who outranks the deadline."""
        tenure = self.journal.tenure
        if tenure is not None and not tenure.stands:
            return CancelReason.LEASE_LOST
        if self.asked is not None and self.asked.reason is not None:
            return self.asked.reason
        return self.token.reason or CancelReason.REQUESTED

    def emit(self, kind: EventKind, path: str | None = None, attempt: int | None = None) -> None:
        """Record an event, if anybody watches."""
        if self.recorder is not None:
            self.recorder.emit(kind, path, attempt)

    async def say(self, type_: ChunkType, path: str, content: str, token: CancelToken) -> bool:
        """Send an engine's chunk, if the run streams; False when `token` fired before it went out.

        Once the token fired, only a node's start is still worth waiting for a full stream's
        reader, and that wait ends at once: the node then doesn't start (engine.md 9.2).
        """
        if self.stream is None:
            return True
        try:
            return await self.stream.put(Chunk(type_, path, content), token=token)
        except ChannelClosed:  # by its reader: nobody listens any more
            return True

    async def keep(self, path: str, state: str, hops: Sequence[int]) -> None:
        """Keep the result of a finished branch or item, so that no recovery runs it again.

        Raises what a save raises. `hops` are its node's. Without rows (Boundaries) it is carried to
        the row that the run leaves, if it leaves one; so it is where the last row is of an attempt
        that came further: a recovery begins there, and may visit the node anew.
        """
        note = Note(NoteKind.FINISHED, path, state)
        self.notes.put(note)
        if self.journal.durable and not self._is_past(hops):
            await self.journal.add_notes([note])

    def _is_past(self, hops: Sequence[int]) -> bool:
        """Whether the row last written goes on with a later node, since a child began again."""
        last = self.journal.last
        return last is not None and tuple(hops) < tuple(hops_of(level) + 1 for level in last.levels())
