"""The store's scripts, each known to the server by the SHA-1 of its text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from outcrop.stores.statements import named_statements

_TEXTS = named_statements("outcrop.stores.redis", "scripts.lua")


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic step on the server."""

    text: str
    sha: str
    writes: bool


def _script(*parts: str, writes: bool = True) -> Script:
    text = "\n".join(_TEXTS[part] for part in parts)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)


SAVE: Final = _script("save")
ACQUIRE: Final = _script("acquire")
RENEW: Final = _script("renew")
RELEASE: Final = _script("release")
HOLDER: Final = _script("holder", writes=False)
LATEST: Final = _script("latest", writes=False)
PAGE: Final = _script("page", writes=False)
INDEX: Final = _script("position", "index")
PURGEABLE: Final = _script("purgeable", writes=False)
PURGE: Final = _script("position", "purge")
