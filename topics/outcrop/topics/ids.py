"""Command IDs: UUIDs of version 7, which sort by the time that they were made.

Pure: time and randomness come in. One intent has one ID, however often it is sent.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

RANDOM_BYTES: Final = 10

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_VERSION: Final = 7


def uuid7(now: datetime, random: bytes) -> UUID:
    """Make the UUID of an instant, to the millisecond; `random` is `RANDOM_BYTES` long."""
    milliseconds = (now - _EPOCH) // _MILLISECOND
    tail = int.from_bytes(random[:RANDOM_BYTES], "big")
    bits = milliseconds << 80 | tail
    bits = bits & ~(0xF << 76) | _VERSION << 76
    return UUID(int=bits & ~(0x3 << 62) | 0x2 << 62)


def new_command_id() -> UUID:
    """Make an ID from the system's clock and randomness."""
    return uuid7(datetime.now(UTC), secrets.token_bytes(RANDOM_BYTES))


def made_at(command_id: UUID) -> datetime | None:
    """Read when the ID was made, or None where it isn't of version 7."""
    if command_id.version != _VERSION:
        return None
    return _EPOCH + (command_id.int >> 80) * _MILLISECOND
