"""What a caller may ask of one call: frozen values, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from .metadata import metadata_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from outcrop.stores.record import Checkpoint, Json, Lease

    from .cancellation import CancelToken
    from .chunks import ChunkStream
    from .recorder import Observer
    from .scheduler import Admission, Scheduler

MIN_TTL = timedelta(milliseconds=1)


class CheckpointPolicy(StrEnum):
    """When a run writes rows: only where it stops, or after every node too."""

    BOUNDARIES = "boundaries"
    EVERY_NODE = "every_node"


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Run under a lease: `owner` names the process, `ttl` is how long it lasts unrenewed."""

    owner: str
    ttl: timedelta


class RowMarks(Protocol):
    """Metadata that belongs to one row: `outcrop.` keys, never carried to the next row.

    Asked once for each row the call writes. `row` is the row about to be saved, without
    marks; `stamp` is true for the Boundaries resume stamp (whose own metadata otherwise
    stays untouched); `lease` is the run's lease, if it has one.
    """

    def __call__(self, row: Checkpoint, *, stamp: bool, lease: Lease | None) -> Mapping[str, str]:
        """The marks of the row about to be saved."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of run, resume, signal, end, recover and the drivers' runs.

    `metadata` is stamped on every row and laid over what the thread carries. `run_id`
    (default: a new UUIDv7) ends idempotency keys under Boundaries. `deadline` cancels the
    run when it passes. `cancellation` cancels it; `stop` asks it to stop at the next
    commit, leaving the row `running`. `expected_sequence` refuses the call (`stale`)
    unless it is the thread's latest; for `run`, the first save is conditional on it, and
    `EMPTY_LOG` makes the run the thread's first. `marks` adds metadata row by row.
    `services` are handed to nodes by type. `max_node_hops` replaces the graph's own limit, for
    this run and the outermost level. `interrupt_before` and `interrupt_after` name nodes (by
    path, `Work/Draft`) at which this run waits for a person. `observer` is told of the run's
    events, `stream` gets its chunks. `scheduler` decides when the run may start, by `priority`
    (higher first) and the tenant in the metadata; `admission` is a slot that it was given before,
    and gives back.
    """

    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    run_id: str | None = None
    lease: LeaseOptions | None = None
    deadline: datetime | None = None
    cancellation: CancelToken | None = None
    stop: CancelToken | None = None
    expected_sequence: int | None = None
    marks: RowMarks | None = None
    services: Mapping[type[object], object] = field(default_factory=dict[type[object], object])
    max_node_hops: int | None = None
    interrupt_before: frozenset[str] = frozenset()
    interrupt_after: frozenset[str] = frozenset()
    observer: Observer | None = None
    stream: ChunkStream | None = None
    scheduler: Scheduler | None = None
    priority: int = 0
    admission: Admission | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A person's answer to a boundary; `overrides` replace top-level fields of the state.

    `text_overrides` are written as JSON strings; a field may be in one of the two only.
    Answering a failed or cancelled thread retries it: overrides apply, approval doesn't.
    `replies` answer the questions of `ctx.interrupt`, by ID or by position (from 0); an empty
    ID is the only question that is open.
    `levels` override fields of outer levels' states: `{"": {...}}` for the outermost,
    `{"Work": {...}}` for the child of `Work`; `overrides` are the innermost level's.
    """

    approved: bool = True
    by: str = ""
    overrides: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    text_overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    replies: Mapping[str | int, Json] = field(default_factory=dict["str | int", "Json"])
    levels: Mapping[str, Mapping[str, Json]] = field(default_factory=dict[str, "Mapping[str, Json]"])


def options_refusal(options: RunOptions) -> str | None:  # noqa: PLR0911 - a return for each option
    """Why a call with these options can't start, or None when it can."""
    if (refused := metadata_refusal(options.metadata)) is not None:
        return refused
    if options.run_id is not None and not options.run_id:
        return "a run id can't be empty"
    if options.max_node_hops is not None and options.max_node_hops < 1:
        return "a run's max_node_hops must be at least 1"
    if options.lease is not None:
        if not options.lease.owner.strip():
            return "a run's lease needs an owner"
        if options.lease.ttl < MIN_TTL:
            return "a run's lease ttl must be at least 1 millisecond"
    if options.stream is not None and options.stream.closed:
        return "a run's stream is closed: give each call one of its own"
    return None if options.deadline is None else time_refusal("a run's deadline", options.deadline)


def time_refusal(what: str, moment: datetime) -> str | None:
    """Why a time can't be compared with a row's, or None when it can."""
    return f"{what} needs a time zone" if moment.tzinfo is None else None
