"""When a failed attempt is tried again, and after how long. Pure: randomness comes in.

The delay of the n-th retry is min(max, initial * 2^(n-1)), then jittered; a failure's own
`retry_after` hint replaces it, capped at max and not jittered (engine.md 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_DOUBLINGS = 1000  # 2.0 ** 1024 overflows, and every max is far below 2 ** 1000 times anything


class Jitter(StrEnum):
    """How a backoff delay d is spread: over [0, d], over [d/2, d], or not."""

    FULL = "full"
    EQUAL = "equal"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling delays in seconds from `initial` up to `max`."""

    initial: float
    max: float
    jitter: Jitter = Jitter.FULL


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `max_retries` more attempts after the first; no backoff means at once.

    `give_up_on` names exception types that are not worth another attempt.
    """

    max_retries: int = 0
    backoff: Backoff | None = None
    give_up_on: tuple[type[Exception], ...] = ()

    def is_fatal(self, failure: Exception) -> bool:
        """Whether this failure is not worth another attempt, however many are left."""
        return isinstance(failure, (Fatal, *self.give_up_on))

    def delay(self, retry: int, hint: float | None, uniform: Callable[[], float]) -> float:
        """Seconds to wait before the `retry`-th retry (from 1); `uniform` draws from [0, 1)."""
        if self.backoff is None:
            return 0.0
        if hint is not None:
            return min(hint, self.backoff.max)
        ceiling = min(self.backoff.max, self.backoff.initial * 2.0 ** min(retry - 1, _MOST_DOUBLINGS))
        match self.backoff.jitter:
            case Jitter.FULL:
                return ceiling * uniform()
            case Jitter.EQUAL:
                return ceiling / 2 + ceiling / 2 * uniform()
            case Jitter.NONE:
                return ceiling
