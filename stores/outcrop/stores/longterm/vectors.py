"""Vectors as float32: the numbers, their bytes, and how alike two of them are.

Plain Python on `array`: no numeric library is needed to keep or compare a few thousand vectors.
Bytes are little-endian on every machine.
"""

from __future__ import annotations

import math
import sys
from array import array
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def to_float32(vector: Sequence[float]) -> array[float]:
    """The nearest float32 of each value; one too large is infinite."""
    return array("f", vector)


def to_bytes(vector: Sequence[float]) -> bytes:
    """Little-endian float32."""
    values = to_float32(vector)
    if sys.byteorder == "big":  # pragma: no cover - no such machine in CI
        values.byteswap()
    return values.tobytes()


def from_bytes(data: bytes) -> tuple[float, ...]:
    """The vector of little-endian float32; raises `ValueError` for a broken length."""
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":  # pragma: no cover - no such machine in CI
        values.byteswap()
    return tuple(values)


def cosine_similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """How alike two float32 vectors of one length are, neither all zeros: 1 is the same direction."""
    # One root of the product, not the product of two roots: a vector and itself give 1 exactly.
    lengths = math.sqrt(_dot(one, one) * _dot(other, other))
    return max(-1.0, min(1.0, _dot(one, other) / lengths))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    products: Iterator[float] = map(mul, one, other)
    return sum(products)
