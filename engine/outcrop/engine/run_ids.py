"""Run IDs: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

import secrets
import time
from uuid import UUID


def new_run_id() -> str:
    """A new UUIDv7 in lowercase, hyphenated."""
    return str(uuid7(time.time_ns() // 1_000_000, secrets.randbits(74)))


def uuid7(milliseconds: int, random_bits: int) -> UUID:
    """The UUIDv7 of a Unix time and 74 random bits (RFC 9562, 5.7)."""
    high, low = random_bits >> 62, random_bits & ((1 << 62) - 1)
    return UUID(int=(milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
