"""Checkpoint stores: the record, the port, and the adapters that keep it."""

from __future__ import annotations

from .errors import (
    CorruptRow,
    InvalidRequest,
    LeasesUnsupported,
    NewerSchema,
    OutcropError,
    StoreError,
    Unavailable,
)
from .memory import MemoryStore
from .options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions
from .port import (
    EMPTY_LOG,
    Acquired,
    CheckpointQuery,
    CheckpointRetention,
    CheckpointStore,
    Held,
    LeaseLost,
    LeaseStore,
    NoteStore,
    NotLatest,
    Saved,
    Store,
)
from .query import LogPage, ThreadPage, ThreadQuery, ThreadSummary, UnreadableThread
from .record import (
    Checkpoint,
    Decision,
    GraphIdentity,
    Json,
    Lease,
    Note,
    NoteKind,
    Row,
    Status,
    ThreadState,
    Wait,
    WaitKind,
)
from .sqlite import SqliteStore
from .url import open_store

__all__ = [
    "EMPTY_LOG",
    "Acquired",
    "Checkpoint",
    "CheckpointQuery",
    "CheckpointRetention",
    "CheckpointStore",
    "CorruptRow",
    "Decision",
    "DeltaOptions",
    "GraphIdentity",
    "GroupCommitOptions",
    "Held",
    "InvalidRequest",
    "Json",
    "Lease",
    "LeaseLost",
    "LeaseStore",
    "LeasesUnsupported",
    "LogPage",
    "MemoryStore",
    "NewerSchema",
    "NotLatest",
    "Note",
    "NoteKind",
    "NoteStore",
    "OffloadOptions",
    "OutcropError",
    "RetryOptions",
    "Row",
    "Saved",
    "SqliteStore",
    "Status",
    "Store",
    "StoreError",
    "ThreadPage",
    "ThreadQuery",
    "ThreadState",
    "ThreadSummary",
    "Unavailable",
    "UnreadableThread",
    "Wait",
    "WaitKind",
    "open_store",
]
