"""Why a host doesn't start, and what a round raises that found no error of the store's to raise."""

from __future__ import annotations

from typing import ClassVar

from outcrop.stores.errors import OutcropError


class HostRefused(OutcropError):
    """A driver lacks what it needs, so no driver was started; says which, and what it needs."""

    code: ClassVar[str] = "OUTCROP_HOST_REFUSED"


class SweepRefused(OutcropError):
    """A driver's sweep ended before its time, though the store answered."""

    code: ClassVar[str] = "OUTCROP_HOST_SWEEP"
