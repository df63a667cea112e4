"""Which partition a key goes to: murmur2, as the Java client has it.

Owns our own copy of the hash, because a worker must know which threads it owns without asking
a client library. Invariant: the same as aiokafka's default partitioner and as librdkafka's
`murmur2_random`, which is not librdkafka's default (tests pin both); otherwise one thread's
messages land on two partitions.
"""

from __future__ import annotations

from typing import Final

LIBRDKAFKA_PARTITIONER: Final = "murmur2_random"
"""What a librdkafka producer must set as its `partitioner`."""

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_WORD: Final = 4


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of `key` in a topic with so many partitions (at least 1)."""
    return (murmur2(key) & _POSITIVE) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit hash of `data`, unsigned."""
    whole = len(data) - len(data) % _WORD
    value = _SEED ^ len(data)
    for start in range(0, whole, _WORD):
        word = int.from_bytes(data[start : start + _WORD], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
