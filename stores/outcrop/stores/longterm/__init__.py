"""Long-term memory: records found by what their vectors mean; the port, and a store in each engine.

The Postgres and Redis adapters need their drivers, so they are imported from their own modules,
or by `open_long_term` when a URL asks for one.
"""

from __future__ import annotations

from .hnsw import Hnsw
from .in_process import InProcessLongTermStore
from .port import LongTermRetention, LongTermStore
from .record import Embedding, Listing, Match, Purge, Record, RecordKey, RecordPage, Search
from .sqlite import SqliteLongTermStore
from .url import open_long_term

__all__ = [
    "Embedding",
    "Hnsw",
    "InProcessLongTermStore",
    "Listing",
    "LongTermRetention",
    "LongTermStore",
    "Match",
    "Purge",
    "Record",
    "RecordKey",
    "RecordPage",
    "Search",
    "SqliteLongTermStore",
    "open_long_term",
]
