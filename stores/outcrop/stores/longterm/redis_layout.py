"""Where a Redis memory keeps what: keys, tags and the queries on its index. Pure.

A key's parts are escaped so that no namespace, tenant or ID can reach into another's. What a
search filters by is spelled in hex, so that no text can be read as the query language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outcrop.stores.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .record import RecordKey, Search


_LONGEST_TAG: Final = 4096
"""Bytes of a tag that the Query Engine finds again; it says nothing about a longer one."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys under one prefix."""

    prefix: str

    @property
    def schema(self) -> str:
        """The hash with the version and the dimensions."""
        return f"{self.prefix}:memory:schema"

    @property
    def index(self) -> str:
        """The index of the records."""
        return f"{self.prefix}:memory:idx"

    @property
    def records(self) -> str:
        """What every record's key begins with."""
        return f"{self.prefix}:memory:records:"

    @property
    def updated(self) -> str:
        """The sorted set of records' keys by when they were written."""
        return f"{self.prefix}:memory:updated"

    def ids(self, namespace: str, tenant: str) -> str:
        """The sorted set of a namespace's and tenant's IDs."""
        return f"{self.prefix}:memory:ids:{_escaped(namespace)}:{_escaped(tenant)}"

    def record(self, namespace: str, tenant: str, record_id: str) -> str:
        """A record's hash."""
        return f"{self.records}{_escaped(namespace)}:{_escaped(tenant)}:{_escaped(record_id)}"

    def of(self, key: RecordKey) -> list[str]:
        """What the scripts on one record touch: its hash, its IDs, and the set by time."""
        return [
            self.record(key.namespace, key.tenant, key.id),
            self.ids(key.namespace, key.tenant),
            self.updated,
        ]

    def parts(self, record: str) -> tuple[str, str, str]:
        """The namespace, tenant and ID of a record's key."""
        namespace, tenant, record_id = map(_unescaped, record.removeprefix(self.records).split(":"))
        return namespace, tenant, record_id


def scope(namespace: str, tenant: str, model: str) -> str:
    """The tag of what a search never crosses; raises `InvalidRequest` for a model too long to be in one."""
    return _findable(_tag(namespace) + _tag(tenant) + _tag(model), "the model")


def tagged_id(record_id: str) -> str:
    """The tag of an ID."""
    return _tag(record_id)


def tagged_pairs(metadata: Mapping[str, str]) -> str:
    """The tags of metadata pairs, comma-joined, keys in order."""
    return ",".join(_tag(key) + _tag(metadata[key]) for key in sorted(metadata))


def filters(search: Search) -> str:
    """The query of what a search may find; raises `InvalidRequest` for a pair too long to be found."""
    parts = [f"@_scope:{{{scope(search.namespace, search.tenant, search.embedding.model)}}}"]
    for key, value in sorted(search.metadata.items()):
        pair = _findable(_tag(key) + _tag(value), f"the metadata '{key}'")
        parts.append(f"@_meta:{{{pair}}}")
    if search.exclude:
        parts.append(f"-@_id:{{{_any(search.exclude)}}}")
    return " ".join(parts)


def named(of_scope: str, ids: Iterable[str]) -> str:
    """The query of records by their IDs."""
    return f"@_scope:{{{of_scope}}} @_id:{{{_any(ids)}}}"


def _any(ids: Iterable[str]) -> str:
    return "|".join(_tag(each) for each in sorted(ids))


def _tag(text: str) -> str:
    return "x" + text.encode().hex()


def _findable(tag: str, what: str) -> str:
    if len(tag) > _LONGEST_TAG:
        raise InvalidRequest(f"{what} is too long for Redis to search by")
    return tag


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _unescaped(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")
