"""How a case checks that a call is refused, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from outcrop.stores.errors import StoreError


async def refused(call: Awaitable[object], kind: type[StoreError], message: str) -> None:
    """Assert that the call raises `kind` with exactly this message."""
    try:
        answer = await call
    except kind as error:
        assert str(error) == message  # noqa: PT017 - no test framework here
    else:
        raise AssertionError(f"answered {answer!r} instead of refusing: {message}")
