"""The index of approximate neighbours that a database may keep of its vectors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hnsw:
    """An HNSW graph with `m` links a vector, built with a list of `ef_construction` candidates.

    Makes searches of large memories fast, and lets them miss a record now and then.
    """

    m: int = 16
    ef_construction: int = 64
