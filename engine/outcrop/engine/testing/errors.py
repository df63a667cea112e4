"""What the testing kit raises: assertions, since a test that meets one has failed."""

from __future__ import annotations

from typing import ClassVar

from outcrop.stores.errors import OutcropError


class ScriptFailed(OutcropError, AssertionError):
    """A run and its script don't fit each other; the message says where and what to add."""

    code: ClassVar[str] = "OUTCROP_TESTING_SCRIPT"


class Unexplorable(OutcropError, AssertionError):
    """The graph's crashes can't be explored, and why."""

    code: ClassVar[str] = "OUTCROP_TESTING_UNEXPLORABLE"


class BrokenByCrashes(OutcropError, AssertionError):
    """A crash changed what a graph comes to; the message is the explorer's report."""

    code: ClassVar[str] = "OUTCROP_TESTING_CRASHES"
