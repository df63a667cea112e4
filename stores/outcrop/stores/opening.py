"""Opening what has to be closed again when its opening fails.

Owns that one rule, which every adapter's `open` follows. Knows no store.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Closable(Protocol):
    """What holds a connection."""

    async def close(self) -> None:
        """Release it."""
        ...


@asynccontextmanager
async def closed_on_failure(opened: Closable) -> AsyncGenerator[None]:
    """Close it when the block fails, or is cancelled."""
    try:
        yield
    except BaseException:
        await opened.close()
        raise
