"""The store's scripts, each known to the server by the SHA-1 of its text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from outcrop.stores.statements import named_statements

_TEXTS = {
    name: text
    for file in ("scripts.lua", "due.lua")
    for name, text in named_statements("outcrop.stores.redis", file).items()
}


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic step on the server."""

    text: str
    sha: str
    writes: bool


def script_of(text: str, *, writes: bool = True) -> Script:
    """The script of that text."""
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)


def _script(*parts: str, writes: bool = True) -> Script:
    return script_of("\n".join(_TEXTS[part] for part in parts), writes=writes)


SAVE: Final = _script("notes", "save")
ADD_NOTES: Final = _script("rows", "notes", "add_notes")
GET_NOTES: Final = _script("get_notes", writes=False)
ACQUIRE: Final = _script("acquire")
RENEW: Final = _script("renew")
RELEASE: Final = _script("release")
HOLDER: Final = _script("holder", writes=False)
LATEST: Final = _script("latest", writes=False)
PAGE: Final = _script("order", "rows", "page", writes=False)
CATCH_UP: Final = _script("order", "rows", "wake", "catch_up")
LOOK: Final = replace(CATCH_UP, writes=False)
DUE: Final = _script("order", "rows", "due")
DUE_ONLY: Final = replace(DUE, writes=False)
INDEX: Final = _script("position", "wake", "index")
PURGEABLE: Final = _script("purgeable", writes=False)
PURGE: Final = _script("position", "purge")
PURGE_LEFT_NOTES: Final = _script("left_notes")
