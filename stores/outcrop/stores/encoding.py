"""Rows on their way in: as deltas, with large values in blobs, or as they are (`deltas` reads them back).

Owns which form a row takes and what is remembered of each thread's latest row to compare
with: fingerprints, never values. Knows no store and does no I/O. A form that relies on the
thread's latest row says so (`Stored.base`), and is only right if the store checks, in the
same atomic step as the append, that this row is still the latest.

One event loop uses an `Encoder`: nothing here locks.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import orjson

from .deltas import DELTA_VERSION, with_states
from .errors import InvalidRequest
from .offload import OFFLOADED_VERSION, BlobReference, digest_of, name_of
from .options import DeltaOptions
from .record import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .deltas import Unfolded
    from .options import OffloadOptions
    from .record import Checkpoint

_Object: TypeAlias = "dict[str, Any]"
_Digests: TypeAlias = "Mapping[str, bytes] | None"
"""The SHA-256 of each top-level value's canonical JSON; None for a state that isn't an object."""

_NO_BLOBS: Final = frozenset[bytes]()


@dataclass(frozen=True, slots=True)
class Base:
    """The row that a stored form relies on.

    `token` tells it from another row at the same place: `created_at` in SQL, in Redis the
    SHA-1 hex of the stored element.
    """

    sequence: int
    token: str


@dataclass(frozen=True, slots=True)
class _Latest:
    """What is remembered of a row; `blobs` are those of its values that the thread has as blobs."""

    depth: int
    levels: tuple[_Digests, ...]
    blobs: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored form of a row.

    `checkpoint` has its version and its levels' states as they are to be stored. `blobs` are
    to be there with the row, by hash. `base` must still be the thread's latest row when the
    row is appended, else nothing may be written.
    """

    checkpoint: Checkpoint
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    base: Base | None = None
    latest: _Latest | None = None
    """For `Encoder.saved`; None when there is nothing to remember."""


class Encoder:
    """Chooses the stored form of a store's rows; does nothing without options."""

    def __init__(self, deltas: DeltaOptions | None = None, offload: OffloadOptions | None = None) -> None:
        self._deltas = deltas
        self._threshold = None if offload is None else offload.threshold
        self._most = (deltas or DeltaOptions()).cached_threads
        self._remembered: OrderedDict[str, tuple[Base, _Latest]] = OrderedDict()

    @property
    def active(self) -> bool:
        """Whether rows may be stored in another form than they have."""
        return self._deltas is not None or self._threshold is not None

    def draft(self, checkpoint: Checkpoint, *, alone: bool = True) -> Stored:
        """The form to try first, which may rely on the thread's latest row.

        With `alone` false it relies on nothing: another save of the thread goes in the same
        transaction. Raises `InvalidRequest` for a state that isn't JSON.
        """
        if not self.active:
            return Stored(checkpoint)
        thread_id = checkpoint.thread_id
        remembered = self._remembered.get(thread_id) if alone else None
        if remembered is not None:
            self._remembered.move_to_end(thread_id)
        return self._encoded(checkpoint, remembered)

    def drafts(self, checkpoints: Sequence[Checkpoint]) -> list[Stored]:
        """The forms of rows that are appended in one transaction, in order."""
        saves = Counter(checkpoint.thread_id for checkpoint in checkpoints)
        return [self.draft(row, alone=saves[row.thread_id] == 1) for row in checkpoints]

    def whole(self, checkpoint: Checkpoint) -> Stored:
        """The form that relies on nothing and brings every blob, for a draft whose base moved."""
        return self._encoded(checkpoint, None) if self.active else Stored(checkpoint)

    def saved(self, checkpoint: Checkpoint, stored: Stored, sequence: int, token: str) -> None:
        """Remember that this form was appended at `sequence`."""
        if stored.latest is not None:
            self._remember(checkpoint.thread_id, Base(sequence, token), stored.latest)

    def loaded(self, unfolded: Unfolded, token: str) -> None:
        """Remember a thread's latest row as it was read: out of its envelopes, its blobs checked (`fill`)."""
        if not self.active:
            return
        blobs: set[bytes] = set()
        levels: list[_Digests] = []
        for state in unfolded.values():
            if not isinstance(state, dict):
                levels.append(None)
                continue
            digests: dict[str, bytes] = {}
            for key, value in cast("_Object", state).items():
                if isinstance(value, BlobReference):
                    digests[key] = digest_of(value.hash)
                    blobs.add(digests[key])
                elif self._deltas is not None:
                    digests[key] = _digest(_canonical(value))
            levels.append(digests)
        row = unfolded.row
        latest = _Latest(unfolded.depth, tuple(levels), frozenset(blobs))
        self._remember(row.checkpoint.thread_id, Base(row.sequence, token), latest)

    def forget(self, thread_id: str) -> None:
        """Compare the thread's next row with nothing: after a refused save, a doubt or a purge."""
        self._remembered.pop(thread_id, None)

    def _remember(self, thread_id: str, base: Base, latest: _Latest) -> None:
        before = self._remembered.get(thread_id)
        if before is not None and before[0].sequence > base.sequence:
            return  # a load that was overtaken by a save
        self._remembered[thread_id] = base, latest
        self._remembered.move_to_end(thread_id)
        if len(self._remembered) > self._most:
            self._remembered.popitem(last=False)

    def _encoded(self, checkpoint: Checkpoint, remembered: tuple[Base, _Latest] | None) -> Stored:
        base, latest = (None, None) if remembered is None else remembered
        before = latest if latest is not None and self._may_be_delta(checkpoint, latest) else None
        levels = self._levels(checkpoint, () if before is None else before.levels)
        known = _NO_BLOBS if latest is None else latest.blobs
        blobs = {digest: content for level in levels for digest, content in level.offloaded.items()}
        is_delta = any(level.is_delta for level in levels)
        depth = 1 + before.depth if before is not None and is_delta else 0
        now = _latest(depth, levels, known.union(blobs))
        if not (is_delta or blobs):
            return Stored(checkpoint, latest=now)
        head = {
            "checkpoint_version": checkpoint.schema_version,
            "delta_of": base.sequence if base is not None and is_delta else None,
            "depth": depth,
        }
        texts = [level.envelope(head if at == 0 else {}) for at, level in enumerate(levels)]
        version = OFFLOADED_VERSION if blobs else DELTA_VERSION
        return Stored(
            replace(with_states(checkpoint, texts), schema_version=version),
            {name_of(digest): content for digest, content in blobs.items() if digest not in known},
            base if is_delta or not blobs.keys().isdisjoint(known) else None,
            now,
        )

    def _levels(self, checkpoint: Checkpoint, before: Sequence[_Digests]) -> list[_Level]:
        thread_id, threshold = checkpoint.thread_id, self._threshold
        return [
            _Level(thread_id, level.frozen_state, before=digests, threshold=threshold)
            for level, digests in zip(checkpoint.levels(), chain(before, repeat(None)), strict=False)
        ]

    def _may_be_delta(self, checkpoint: Checkpoint, latest: _Latest) -> bool:
        return (
            self._deltas is not None
            and checkpoint.status is Status.RUNNING
            and latest.depth + 1 < self._deltas.full_every
        )


class _Level:
    """One level's state, taken apart: a delta of `before` if both are objects, else whole."""

    def __init__(self, thread_id: str, text: str, *, before: _Digests, threshold: int | None) -> None:
        state = _parsed(thread_id, text)
        self.digests: _Digests = None
        self.offloaded: dict[bytes, bytes] = {}
        self.is_delta = before is not None and isinstance(state, dict)
        self._state: object = state
        self._removed: list[str] = []
        self._references: _Object = {}
        if isinstance(state, dict):
            self._take_apart(cast("_Object", state), before, threshold)

    def envelope(self, head: _Object) -> str:
        """The level's stored state; `head` is the row's own keys, for the outermost one."""
        blobs = {"blobs": self._references} if self._references else {}
        body = {"set": self._state, "unset": self._removed} if self.is_delta else {"state": self._state}
        return orjson.dumps(blobs | head | body).decode()

    def _take_apart(self, values: _Object, before: _Digests, threshold: int | None) -> None:
        canonical = {key: _canonical(value) for key, value in values.items()}
        digests = {key: _digest(content) for key, content in canonical.items()}
        changed = set(values)
        if before is not None:
            changed = {key for key in values if before.get(key) != digests[key]}
            self._removed = sorted(before.keys() - values.keys())
        for key in sorted(changed):
            content, digest = canonical[key], digests[key]
            if threshold is not None and len(content) >= threshold:
                self.offloaded[digest] = content
                self._references[key] = {"bytes": len(content), "hash": name_of(digest)}
        self.digests = digests
        self._state = {
            key: value for key, value in values.items() if key in changed and key not in self._references
        }


def _latest(depth: int, levels: Sequence[_Level], blobs: frozenset[bytes]) -> _Latest:
    digests = tuple(level.digests for level in levels)
    values = {digest for level in digests if level is not None for digest in level.values()}
    return _Latest(depth, digests, blobs & values)


def _parsed(thread_id: str, text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # Not chained: the driver's error carries the state.
        raise InvalidRequest(f"the state of thread '{thread_id}' isn't JSON: {error.msg}") from None


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
