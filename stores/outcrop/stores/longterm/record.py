"""What a long-term memory holds, and what may be asked of it, as values.

A record is named by its namespace, tenant and ID together. Vectors are float32 wherever they
are kept, so one comes back as the nearest float32 of what was given. Knows no store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from outcrop.stores.record import Json


@dataclass(frozen=True, slots=True)
class Embedding:
    """A text's vector and the name of the model that made it; only one model's are comparable."""

    model: str
    vector: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """A record's name; the tenant `""` is none."""

    namespace: str
    tenant: str = ""
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One memory: the application's content, the text its vector was made of, and the vector.

    The store sets `created_at` and `updated_at`, at whole seconds of its clock, and ignores a
    caller's; replacing a record keeps the former.
    """

    namespace: str
    tenant: str = ""
    id: str
    embedding: Embedding
    content: Mapping[str, Json] | None = None
    text: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def key(self) -> RecordKey:
        """The record's name."""
        return RecordKey(namespace=self.namespace, tenant=self.tenant, id=self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The records of one namespace, tenant and model whose vectors are most like a given one.

    `exclude` and `metadata` (every pair must match) leave records out before the ranking,
    `min_similarity` (-1 to 1, itself included) after it; `limit` is 1 to 1,000.
    """

    namespace: str
    tenant: str = ""
    embedding: Embedding
    exclude: AbstractSet[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    min_similarity: float | None = None
    limit: int = 10


@dataclass(frozen=True, slots=True)
class Match:
    """A record that a search found, and the cosine similarity of the vectors."""

    record: Record
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The records of one namespace and tenant by ID; `limit` is 1 to 1,000."""

    namespace: str
    tenant: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class RecordPage:
    """One page of a listing; `next_cursor` None is the end."""

    records: tuple[Record, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """What to delete: records last written before `older_than`, oldest first, at most `limit`.

    `namespace` and `tenant` narrow it down, each on its own; None is any.
    """

    older_than: datetime
    namespace: str | None = None
    tenant: str | None = None
    limit: int = 1000
