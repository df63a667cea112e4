"""Values that a row keeps elsewhere: references into the thread's blobs, and reading them back.

Owns what a level's `blobs` say and the check of a blob against its name, which is the
SHA-256 of its content. Knows no store: whoever reads rows brings the contents. A reader
resolves references whatever its own options are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from .errors import CorruptRow

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFLOADED_VERSION: Final = "1.9.0"
"""The schema version of a stored row with at least one value in a blob."""


_PREFIX: Final = "sha256:"


def name_of(digest: bytes) -> str:
    """A blob's name, out of the SHA-256 of its content."""
    return f"{_PREFIX}{digest.hex()}"


def digest_of(name: str) -> bytes:
    """The SHA-256 that a blob's name says; the name must be one."""
    return bytes.fromhex(name.removeprefix(_PREFIX))


@dataclass(frozen=True, slots=True)
class BlobReference:
    """Stands for the value at `key`; `row` names the row that holds the reference."""

    row: str
    key: str
    hash: str

    def content(self, contents: Mapping[str, bytes]) -> bytes:
        """The value's JSON; raises `CorruptRow` when it is missing or isn't what its name says."""
        content = contents.get(self.hash)
        where = f"{self.row} refers to blob {self.hash} at '{self.key}'"
        if content is None:
            raise CorruptRow(f"{where}, which the blob store doesn't have")
        if name_of(hashlib.sha256(content).digest()) != self.hash:
            raise CorruptRow(f"{where}, whose content doesn't match")
        return content


def references_of(row: str, level: int, blobs: object, state: object) -> dict[str, BlobReference]:
    """The references in one level's `blobs`; raises `CorruptRow` when they can't be placed."""
    if blobs is None:
        return {}
    if not (isinstance(blobs, dict) and isinstance(state, dict)):
        raise CorruptRow(f"{row} has blobs at level {level}, whose state isn't an object")
    references: dict[str, BlobReference] = {}
    for key, entry in cast("dict[str, Any]", blobs).items():
        match entry:
            case {"hash": str(name)}:
                references[key] = BlobReference(row, key, name)
            case _:
                raise CorruptRow(f"{row} has a blob at '{key}' without a hash")
    return references
