"""What every long-term memory refuses, in the order and the words that all engines share."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Final

import orjson

from outcrop.stores.codec import check_metadata
from outcrop.stores.errors import InvalidRequest

from .vectors import to_float32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .record import Embedding, Listing, Purge, Record, RecordKey, Search

MAX_DIMENSIONS: Final = 16_000
_MAX_KEY_BYTES: Final = 256
_MAX_METADATA_KEY_BYTES: Final = 128
_MAX_LIMIT: Final = 1000


def check_dimensions(dimensions: int) -> None:
    """Raise `InvalidRequest` unless a store may have so many."""
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InvalidRequest(f"a memory store has 1 to {MAX_DIMENSIONS} dimensions, not {dimensions}")


def check_key(key: RecordKey) -> None:
    """Raise `InvalidRequest` for an empty or too long part of a key."""
    _check_scope(key.namespace, key.tenant)
    if not key.id:
        raise InvalidRequest("the id is empty")
    _check_length("id", key.id)


def check_record(record: Record, dimensions: int) -> None:
    """Raise `InvalidRequest` for a record that a store of so many dimensions can't keep."""
    check_key(record.key)
    _check_embedding(record.embedding, dimensions)
    _check_metadata(record.metadata)
    _bytes("text", record.text or "")


def check_search(search: Search, dimensions: int) -> None:
    """Raise `InvalidRequest` for a search out of bounds."""
    _check_scope(search.namespace, search.tenant)
    _check_embedding(search.embedding, dimensions)
    _check_limit(search.limit)
    least = search.min_similarity
    if least is not None and not -1 <= least <= 1:
        raise InvalidRequest(f"the minimum similarity is {_shortest(least)}; it must be from -1 to 1")
    _check_metadata(search.metadata)


def check_listing(listing: Listing) -> str:
    """The ID that the listing continues after, `""` from the start; raises `InvalidRequest`."""
    _check_scope(listing.namespace, listing.tenant)
    _check_metadata(listing.metadata)
    _check_limit(listing.limit)
    return "" if listing.cursor is None else decode_cursor(listing.cursor)


def check_purge(purge: Purge) -> None:
    """Raise `InvalidRequest` for a bad scope, limit or time."""
    if purge.namespace is not None:
        _check_scope(purge.namespace, "")
    if purge.tenant is not None:
        _check_length("tenant", purge.tenant)
    if purge.limit < 1:
        raise InvalidRequest(f"the limit is {purge.limit}; it must be at least 1")


def encode_cursor(record_id: str) -> str:
    """The cursor that continues a listing after this record."""
    return base64.urlsafe_b64encode(orjson.dumps([record_id])).rstrip(b"=").decode()


def decode_cursor(cursor: str) -> str:
    """The ID that a cursor continues after; raises `InvalidRequest`."""
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        place = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except ValueError:
        place = None
    match place:
        case [str(record_id)]:
            return record_id
        case _:
            raise InvalidRequest(f"'{cursor}' is not a memory listing cursor")


def _check_scope(namespace: str, tenant: str) -> None:
    if not namespace:
        raise InvalidRequest("the namespace is empty")
    _check_length("namespace", namespace)
    _check_length("tenant", tenant)


def _check_length(what: str, text: str) -> None:
    if _bytes(what, text) > _MAX_KEY_BYTES:
        raise InvalidRequest(f"the {what} is longer than {_MAX_KEY_BYTES} bytes")


def _check_embedding(embedding: Embedding, dimensions: int) -> None:
    if not embedding.model:
        raise InvalidRequest("the model is empty")
    _bytes("model", embedding.model)
    found = len(embedding.vector)
    if found != dimensions:
        raise InvalidRequest(f"the vector has {found} dimensions, and this store has {dimensions}")
    vector = to_float32(embedding.vector)
    if not all(map(math.isfinite, vector)):
        raise InvalidRequest("the vector has a value that isn't finite")
    if not any(vector):
        raise InvalidRequest("the vector is all zeros")


def _check_metadata(metadata: Mapping[str, str]) -> None:
    check_metadata(metadata)
    for key in sorted(metadata):
        if not key:
            raise InvalidRequest("a metadata key is empty")
        if len(key.encode()) > _MAX_METADATA_KEY_BYTES:
            raise InvalidRequest(f"the metadata key '{key}' is longer than {_MAX_METADATA_KEY_BYTES} bytes")


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _MAX_LIMIT:
        raise InvalidRequest(f"the limit is {limit}; it must be from 1 to {_MAX_LIMIT}")


def _bytes(what: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the {what} isn't valid Unicode: {error.reason}") from None


def _shortest(number: float) -> str:
    """`1.5`, and `-2` for -2.0."""
    return repr(number).removesuffix(".0")
