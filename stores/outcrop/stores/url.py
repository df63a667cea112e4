"""Which store a URL names: the one place that turns configuration into an adapter.

    memory:             in this process only
    sqlite:///a.db      a file, relative; sqlite:////a.db from the root
    a.db                a file's path

Never repeats a URL in a message, because one may carry a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .errors import InvalidRequest
from .memory import MemoryStore
from .sqlite import SqliteStore

if TYPE_CHECKING:
    from .port import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SUPPORTED = "use memory:, sqlite:///FILE or a file's path"


async def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open the store that `url` names.

    `read_only` opens an existing file without writing to it. Raises `InvalidRequest` for
    a URL that names no supported store, `StoreError` when the store can't be opened.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        return await _open_file(url, read_only=read_only)
    rest = url[scheme.end() :]
    match scheme[1].lower():
        case "memory" if not rest:
            return MemoryStore()
        case "sqlite" if rest.startswith("///"):
            return await _open_file(unquote(rest.removeprefix("///")), read_only=read_only)
        case "memory" | "sqlite" as known:
            raise InvalidRequest(f"the {known} store's URL is malformed: {_SUPPORTED}")
        case other:
            raise InvalidRequest(f"there is no store for '{other}:' URLs: {_SUPPORTED}")


async def _open_file(path: str, *, read_only: bool) -> SqliteStore:
    if not path.strip():
        raise InvalidRequest(f"the store's URL names no file: {_SUPPORTED}")
    return await (SqliteStore.open_read_only(path) if read_only else SqliteStore.open(path))
