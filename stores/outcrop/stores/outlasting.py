"""Waiting for work that goes on when its caller gives up.

Not `asyncio.shield`: of work that fails after its caller was cancelled, that leaves a complaint
about an exception that nobody asked for in the program's log. Knows no store.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def outlasting(work: asyncio.Future[T]) -> T:
    """What the work comes to; a caller that is cancelled neither stops it nor hears of its end."""
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        work.add_done_callback(_noticed)
        raise
    return work.result()


def _noticed(work: asyncio.Future[T]) -> None:
    if not work.cancelled():
        work.exception()
