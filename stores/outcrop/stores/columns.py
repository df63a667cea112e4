"""Checkpoints as the columns of a SQL row, and back.

Owns which field goes to which column and in what form. A derived column (`wake_at`, the
graph's two) is written from the record and never read back for it, except the graph's.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .codec import (
    decode,
    decode_decision,
    decode_metadata,
    decode_state,
    decode_status,
    decode_wait,
    encode,
    encode_decision,
    encode_metadata,
    encode_wait,
    parse,
)
from .deltas import ENCODED_VERSIONS, stored_version
from .errors import CorruptRow
from .query import ThreadSummary, UnreadableThread
from .record import Checkpoint, GraphIdentity, Row

if TYPE_CHECKING:
    from collections.abc import Generator

Columns: TypeAlias = "tuple[Any, ...]"
"""sequence, thread_id, schema_version … graph_version, in the order of every adapter's `statements.sql`."""


COLUMNS: Final = (
    "thread_id",
    "schema_version",
    "status",
    "suspended_node",
    "next_node",
    "frozen_state",
    "metadata",
    "created_at",
    "resumed_at",
    "nested",
    "decision",
    "wait",
    "wake_at",
    "graph_id",
    "graph_version",
)
"""What is written of a checkpoint, in the order of `to_parameters`."""

_READ: Final = ("sequence", *(name for name in COLUMNS if name != "wake_at"))
_LISTED: Final = (
    "sequence",
    "thread_id",
    "schema_version",
    "status",
    "suspended_node",
    "next_node",
    "checkpoint_version",
    "metadata",
    "updated_at",
    "state",
    "nested",
    "wait",
    "graph_id",
    "graph_version",
)


def to_parameters(checkpoint: Checkpoint) -> dict[str, str | int | None]:
    """The parameters of the save statement that come from the record; raises `InvalidRequest`."""
    wait, graph, nested = checkpoint.innermost.wait, checkpoint.graph, checkpoint.nested
    values = (
        checkpoint.thread_id,
        checkpoint.schema_version,
        checkpoint.status.value,
        checkpoint.suspended_node,
        checkpoint.next_node,
        checkpoint.frozen_state,
        encode_metadata(checkpoint.metadata),
        checkpoint.created_at,
        checkpoint.resumed_at,
        None if nested is None else encode(nested),
        encode_decision(checkpoint.decision),
        encode_wait(checkpoint.wait),
        None if wait is None else wait.wake_at,
        None if graph is None else graph.id,
        None if graph is None else graph.version,
    )
    return dict(zip(COLUMNS, values, strict=True))


def from_columns(columns: Columns) -> Row:
    """The stored row, envelopes and all, whose state is JSON; raises `CorruptRow`."""
    with _naming(columns):
        return _row(columns)


def from_texts(columns: Columns) -> Row:
    """The same, where nothing but text is known of the state: raises `CorruptRow` unless it is JSON."""
    row = from_columns(columns)
    if row.checkpoint.schema_version not in ENCODED_VERSIONS:
        with _naming(columns):
            parse(columns[6], "a state")  # NaN and broken text go no further; envelopes are parsed anyway
    return row


def listed(columns: Columns) -> ThreadSummary | UnreadableThread:
    """A listing's row: a thread's head with what else its latest row says beside its state.

    The columns are those of `_LISTED`; `checkpoint_version` is the one inside an envelope, None
    for a plain row.
    """
    try:
        return _summary(columns)
    except CorruptRow as error:
        return UnreadableThread(
            thread_id=str(columns[1]),
            sequence=columns[0],
            updated_at=str(columns[8]),
            reason=str(error),
        )


def _summary(columns: Columns) -> ThreadSummary:
    sequence, thread_id, version, status, suspended, next_node, inner, metadata, *rest = columns
    updated_at, state, nested, wait, graph_id, graph_version = rest
    version = stored_version(thread_id, sequence, version, inner)
    with _naming(columns):
        _check_kinds(columns, _LISTED)
        below = None if nested is None else decode(nested)
        at = (() if suspended is None else (suspended,)) + (() if below is None else below.waiting_at)
        return ThreadSummary(
            thread_id=thread_id,
            sequence=sequence,
            state=decode_state(state),
            status=decode_status(status),
            suspended_node=suspended,
            next_node=next_node,
            waiting_at=at,
            metadata=decode_metadata(metadata) or {},
            updated_at=updated_at,
            schema_version=version,
            wait=decode_wait(wait) if below is None else below.innermost.wait,
            graph=None if graph_id is None else GraphIdentity(graph_id, graph_version),
        )


@contextmanager
def _naming(columns: Columns) -> Generator[None]:
    # A note, because the message itself is the same in every engine and names no row.
    try:
        yield
    except CorruptRow as error:
        error.add_note(f"in checkpoint '{columns[1]}' #{columns[0]}")
        raise


def _check_kinds(columns: Columns, names: tuple[str, ...]) -> None:
    for index, value in enumerate(columns):
        if isinstance(value, bytes):  # the one type that a text column keeps as it is
            raise CorruptRow(f"Invalid column type Blob at index: {index}, name: {names[index]}")


def _row(columns: Columns) -> Row:
    _check_kinds(columns, _READ)
    sequence, thread_id, version, status, suspended, next_node, frozen_state, *rest = columns
    metadata, created_at, resumed_at, nested, decision, wait, graph_id, graph_version = rest
    checkpoint = Checkpoint(
        schema_version=version,
        thread_id=thread_id,
        status=decode_status(status),
        suspended_node=suspended,
        next_node=next_node,
        frozen_state=frozen_state,
        metadata=decode_metadata(metadata),
        created_at=created_at,
        resumed_at=resumed_at,
        nested=None if nested is None else decode(nested),
        decision=decode_decision(decision),
        wait=decode_wait(wait),
        graph=None if graph_id is None else GraphIdentity(graph_id, graph_version),
    )
    return Row(sequence, checkpoint)
