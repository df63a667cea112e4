"""A record as the columns that the SQL engines share, and back. Vectors are each engine's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from outcrop.stores.instants import parse_instant

from .content import decode_content, encode_content, encode_metadata, read_metadata
from .record import Embedding, Record

if TYPE_CHECKING:
    from collections.abc import Sequence


class Columns(NamedTuple):
    """What a statement selects of a record, in its order, less the vector."""

    namespace: str
    tenant: str
    id: str
    model: str
    content: str | None
    text: str | None
    metadata: str
    created_at: str
    updated_at: str


def to_parameters(record: Record) -> dict[str, str | None]:
    """The columns that a record fills; the vector and the times are the store's."""
    return {
        "namespace": record.namespace,
        "tenant": record.tenant,
        "id": record.id,
        "model": record.embedding.model,
        "content": encode_content(record),
        "text": record.text,
        "metadata": encode_metadata(record.metadata),
    }


def from_columns(columns: Columns, vector: Sequence[float]) -> Record:
    """The record of a row; raises `CorruptRow`."""
    return Record(
        namespace=columns.namespace,
        tenant=columns.tenant,
        id=columns.id,
        embedding=Embedding(columns.model, tuple(vector)),
        content=decode_content(columns.content),
        text=columns.text,
        metadata=read_metadata(columns.metadata),
        created_at=parse_instant(columns.created_at),
        updated_at=parse_instant(columns.updated_at),
    )
