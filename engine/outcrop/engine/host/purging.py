"""What the drivers that purge share: an age that must be there, and batches.

Knows no store. Invariant: without an age nothing is purged.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from .driver import schedule_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcrop.engine.cancellation import CancelToken

    from .driver import Done
    from .settings import PurgeSettings

OLDEST: Final = timedelta(days=36_500)
"""The longest age that a purge can be given: a longer one might be before the calendar."""


def purge_refusal(driver: str, settings: PurgeSettings) -> str | None:
    """Why a driver can't purge by these settings, or None when it can. Pure."""
    if (refused := schedule_refusal(driver, settings.interval, settings.batch_size)) is not None:
        return refused
    if settings.older_than is None or settings.older_than <= timedelta():
        return f"the {driver} driver needs an older_than: it purges nothing without an age to go by"
    if settings.older_than > OLDEST:
        return f"the {driver} driver's older_than must be at most {OLDEST.days} days"
    return None


async def purge_in_batches(
    purge: Callable[[datetime], Awaitable[int]],
    settings: PurgeSettings,
    now: datetime,
    *,
    stop: CancelToken,
    done: Done,
) -> None:
    """Purge what was old enough at `now`, until there is no more or `stop` fires.

    A batch that another replica had a part of comes back short: only an empty one is the end.
    """
    if settings.older_than is None:
        return
    while not stop.fired:
        purged = await purge(now - settings.older_than)
        done(purged)
        if not purged:
            return
