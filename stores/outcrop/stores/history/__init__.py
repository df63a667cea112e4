"""A conversation's messages: the port, and a store of them in each engine.

The Postgres and Redis adapters need their drivers, so they are imported from their own modules,
or by `open_history` when a URL asks for one.
"""

from __future__ import annotations

from .in_process import InProcessHistoryStore
from .port import HistoryStore, Message, Role
from .sqlite import SqliteHistoryStore
from .url import open_history

__all__ = ["HistoryStore", "InProcessHistoryStore", "Message", "Role", "SqliteHistoryStore", "open_history"]
