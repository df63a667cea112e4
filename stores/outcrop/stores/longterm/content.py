"""A record's content and metadata as the compact JSON that rows keep, keys in order.

Content that JSON would give back as something else (a tuple, a number for a key, NaN) is
refused, never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson

from outcrop.stores.codec import decode_metadata, parse
from outcrop.stores.errors import CorruptRow, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import Json

    from .record import Record


def encode_content(record: Record) -> str | None:
    """The content as JSON text; raises `InvalidRequest` when JSON would change it."""
    if record.content is None:
        return None
    content = dict(record.content)
    try:
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise InvalidRequest(f"the content of record '{record.id}' has no JSON form: {error}") from None
    if orjson.loads(text) != content:
        raise InvalidRequest(f"the content of record '{record.id}' would come back changed from JSON")
    return text.decode()


def decode_content(text: str | None) -> Mapping[str, Json] | None:
    """The content of a row's text; raises `CorruptRow`."""
    if text is None:
        return None
    content = parse(text, "a record's content")
    if not isinstance(content, dict):
        raise CorruptRow("a record's content isn't an object")
    return cast("dict[str, Any]", content)


def encode_metadata(metadata: Mapping[str, str]) -> str:
    """Metadata as JSON text, keys in byte order."""
    return orjson.dumps(dict(metadata), option=orjson.OPT_SORT_KEYS).decode()


def read_metadata(text: str) -> dict[str, str]:
    """The metadata of a row's text; raises `CorruptRow`."""
    return decode_metadata(text) or {}
