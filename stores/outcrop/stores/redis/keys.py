"""The keys of one prefix, and the scores of its sets.

Thread IDs go into keys as they are. A score is the fourteen digits of a thread's updated_at, so
that sets are ordered by time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from outcrop.stores.errors import CorruptRow, InvalidRequest
from outcrop.stores.instants import instant_text
from outcrop.stores.record import ThreadState

PLACES: Final = {
    state: place
    for place, state in enumerate(
        (
            ThreadState.INTERRUPTED,
            ThreadState.FAILED,
            ThreadState.CANCELLED,
            ThreadState.RESUMED,
            ThreadState.COMPLETED,
            ThreadState.ENDED,
            ThreadState.RUNNING,
        ),
        start=1,
    )
}
"""Each state's place among the sets, as the scripts count them."""

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_GLOB = re.compile(r"([*?\[\]\\])")


class Keys:
    """The keys that begin with one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.lists = f"{prefix}:checkpoints:"
        self.every_list = _GLOB.sub(r"\\\1", self.lists) + "*"
        self.threads = f"{prefix}:threads"
        self.waking = f"{prefix}:threads:waking"
        self.states = {state: f"{prefix}:threads:{state.value}" for state in PLACES}
        self.indexed = f"{prefix}:threads:indexed"
        self.index = (self.threads, self.waking, *self.states.values())
        self.heads = f"{prefix}:outcrop:heads"
        self.due = f"{prefix}:outcrop:due"
        self.waits = f"{prefix}:outcrop:waits"
        self.ours = (self.heads, self.due, self.waits)
        self.noted = f"{prefix}:outcrop:noted"
        self._notes = f"{prefix}:outcrop:notes:"
        self._blobs = f"{prefix}:blobs:"
        self._leases = f"{prefix}:leases:"
        self._tokens = f"{prefix}:lease-tokens:"

    def list(self, thread_id: str) -> str:
        """The thread's log."""
        return self.lists + thread_id

    def blobs(self, thread_id: str) -> str:
        """The thread's offloaded values."""
        return self._blobs + thread_id

    def notes(self, thread_id: str) -> str:
        """What is ours beside the thread's rows."""
        return self._notes + thread_id

    def lease(self, thread_id: str) -> str:
        """The hash that exists while the thread is held."""
        return self._leases + thread_id

    def token(self, thread_id: str) -> str:
        """The counter of the thread's leases."""
        return self._tokens + thread_id

    def everything_of(self, thread_id: str) -> tuple[str, ...]:
        """The eighteen keys of the save and purge scripts."""
        return (
            self.list(thread_id),
            *self.index,
            self.blobs(thread_id),
            self.token(thread_id),
            self.lease(thread_id),
            *self.ours,
            self.notes(thread_id),
            self.noted,
        )


def score_of(updated_at: str) -> str:
    """A timestamp's score; raises `InvalidRequest` for a text that isn't a time with a zone."""
    try:
        moment = datetime.fromisoformat(updated_at)
    except ValueError as error:
        raise InvalidRequest(f"bad timestamp '{updated_at}' in the log: {error}") from error
    if moment.tzinfo is None:
        raise InvalidRequest(f"bad timestamp '{updated_at}' in the log: it has no time zone")
    return digits_of(moment)


def digits_of(moment: datetime) -> str:
    """An instant's score, cut to the whole second; raises `InvalidRequest` for a naive time."""
    text = instant_text(moment)
    return f"{text[:4]}{text[5:7]}{text[8:10]}{text[11:13]}{text[14:16]}{text[17:19]}"


def wake_score_of(wake_at: str) -> str:
    """A wake time's score; 0 for one that isn't of the usual form, which listings then always look at."""
    return re.sub(r"\D", "", wake_at) if _INSTANT.fullmatch(wake_at) else "0"


def updated_at_of(score: str) -> str:
    """The timestamp that a score stands for; raises `CorruptRow`."""
    try:
        moment = datetime.strptime(score, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise CorruptRow(f"bad index score '{score}'") from None
    return moment.isoformat()[:19] + "Z"
