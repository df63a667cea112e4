"""What the tables of every engine's memory must agree on: their version, names and dimensions."""

from __future__ import annotations

import re
from typing import Final

from outcrop.stores.errors import InvalidRequest, NewerSchema, StoreError

SCHEMA_VERSION: Final = 1
"""The version of the component `memory` that this build knows."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_LONGEST_IN_POSTGRES: Final = 61
"""Postgres cuts names at 63 characters; a table's indexes must still differ from it and one another."""


def check_table_name(table: str, *, in_postgres: bool = False) -> None:
    """Raise `InvalidRequest` unless the name can stand unquoted; in Postgres it may be `schema.name`."""
    parts = table.split(".", 1) if in_postgres else [table]
    too_long = in_postgres and len(parts[-1]) > _LONGEST_IN_POSTGRES
    if too_long or not all(_NAME.fullmatch(part) for part in parts):
        raise InvalidRequest(f"the memory table '{table}' isn't a lowercase SQL name")


def refuse_newer(found: int) -> None:
    """Raise `NewerSchema` for a version above this build's."""
    if found > SCHEMA_VERSION:
        raise NewerSchema(
            f"database is at memory schema version {found}, and this build knows {SCHEMA_VERSION}: "
            "upgrade the runtime"
        )


def check_pinned(found: int, dimensions: int) -> None:
    """Raise `StoreError` unless the memory was created with these dimensions."""
    if found != dimensions:
        raise StoreError(
            f"memory was created with {found} dimensions, and this store was opened with {dimensions}"
        )
