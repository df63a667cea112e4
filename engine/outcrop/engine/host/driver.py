"""What a host asks of a driver, and the checks that drivers share.

Knows no driver. A driver has no loop and no state of its own between rounds; the host
gives it both.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from outcrop.stores.query import MAX_PAGE

from .errors import SweepRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.recovery import RecoverReport
    from outcrop.engine.wake import WakeReport

S = TypeVar("S")

_log = logging.getLogger(__name__)

Done: TypeAlias = "Callable[[int], None]"
"""Told how many threads a driver has just dealt with."""


class Driver(Protocol):
    """Something that a host does in rounds."""

    @property
    def name(self) -> str:
        """What its status is called."""
        ...

    @property
    def interval(self) -> timedelta:
        """How long after a good round the next one begins."""
        ...

    def refusal(self) -> str | None:
        """Why it can't start, or None when it can."""
        ...

    async def round(self, stop: CancelToken, done: Done) -> None:
        """Do one round; once `stop` fires, finish what was begun and begin nothing new."""
        ...


def schedule_refusal(driver: str, interval: timedelta, batch_size: int | None = None) -> str | None:
    """Why a driver can't be run so often, or in batches of that size. Pure."""
    if interval <= timedelta():
        return f"the {driver} driver's interval must be more than zero"
    if batch_size is not None and not 1 <= batch_size <= MAX_PAGE:
        return f"the {driver} driver's batch_size must be between 1 and {MAX_PAGE}"
    return None


def check_sweep(report: WakeReport[S] | RecoverReport[S]) -> None:
    """Tell of the rows that a sweep couldn't read, and raise what ended it before its time, if anything."""
    for thread in report.unreadable:
        _log.error(
            "row %d of thread '%s' can't be read: %s", thread.sequence, thread.thread_id, thread.reason
        )
    if report.error is not None:
        raise report.error
    if report.refusal is not None:
        raise SweepRefused(report.refusal)
