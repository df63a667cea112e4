"""What goes wrong in a store.

    OutcropError                 the root of every error of this project
    └── StoreError
        ├── Unavailable          the store can't answer now: the only one worth retrying
        ├── LeasesUnsupported    the store keeps no leases
        ├── InvalidRequest       the caller's arguments are off
        ├── CorruptRow           a stored row breaks the format
        └── NewerSchema          the database belongs to a newer build

Every error carries a stable `code`; `str(error)` is for people. Secrets and states never
appear in either.
"""

from __future__ import annotations

from typing import ClassVar


class OutcropError(Exception):
    """The root of every error that Outcrop raises; `code` never changes for a kind."""

    code: ClassVar[str] = "OUTCROP_ERROR"


class StoreError(OutcropError):
    """A store refused or failed a call."""

    code: ClassVar[str] = "OUTCROP_STORE"


class Unavailable(StoreError):
    """The store can't answer now (locked, unreachable); the call may or may not have happened."""

    code: ClassVar[str] = "OUTCROP_STORE_UNAVAILABLE"


class LeasesUnsupported(StoreError):
    """The store keeps no leases, so no run can hold one."""

    code: ClassVar[str] = "OUTCROP_STORE_NO_LEASES"

    def __init__(self) -> None:
        super().__init__("this checkpoint store has no leases")


class InvalidRequest(StoreError):
    """An argument is outside its contract; nothing was read or written."""

    code: ClassVar[str] = "OUTCROP_STORE_INVALID_REQUEST"


class CorruptRow(StoreError):
    """A stored row can't be read as a checkpoint."""

    code: ClassVar[str] = "OUTCROP_STORE_CORRUPT_ROW"


class NewerSchema(StoreError):
    """The database was migrated by a newer build than this one."""

    code: ClassVar[str] = "OUTCROP_STORE_NEWER_SCHEMA"
