"""What a look at a store found: what `outcrop store check` prints.

Owns `Diagnosis`, and the look at a store's clock; each engine's own `diagnosis` module fills one
in, and changes nothing in the store it looks at. Knows no engine, no URL and no credential, and so
can't tell any.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one look at a store found; the store is fit for use when nothing is missing.

    `engine` is `memory`, `sqlite`, `postgres` or `redis`. `schema` and `expected` map a schema
    component to the version found and the version this build needs; a component that isn't there
    has no entry in `schema`. `latency` is the median time of a round trip, in seconds;
    `clock_offset` the store's clock minus this host's, in seconds, 0 where they are one clock.
    Each sentence of `missing` names one thing that is not as it should be, of `unknown` one that
    the store doesn't tell.
    """

    engine: str
    server_version: str | None = None
    schema: Mapping[str, int] = field(default_factory=dict[str, int])
    expected: Mapping[str, int] = field(default_factory=dict[str, int])
    latency: float = 0.0
    clock_offset: float = 0.0
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """Whether everything that this build needs was found."""
        return not self.missing


async def look_at_clock(clock: Callable[[], Awaitable[float]]) -> tuple[float, float]:
    """Ask for a store's time a few times: the median time of an answer, and its clock minus this host's."""
    looks: list[tuple[float, float]] = []
    for _ in range(_LOOKS):
        sent, begun = time.time(), time.perf_counter()
        told = await clock()
        took = time.perf_counter() - begun
        looks.append((took, told - (sent + took / 2)))
    return statistics.median(took for took, _ in looks), min(looks)[1]  # the quickest knows best
