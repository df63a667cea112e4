"""What a look at a store found: what `outcrop store check` prints.

Owns `Diagnosis` alone; each engine's own `diagnosis` module fills one in, and changes nothing in
the store it looks at. Knows no engine, no URL and no credential, and so can't tell any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one look at a store found; the store is fit for use when nothing is missing.

    `engine` is `memory`, `sqlite`, `postgres` or `redis`. `schema` and `expected` map a schema
    component to the version found and the version this build needs; a component that isn't there
    has no entry in `schema`. `latency` is the median time of a round trip, in seconds;
    `clock_offset` the store's clock minus this host's, in seconds, 0 where they are one clock.
    Each sentence of `missing` names one thing that is not as it should be.
    """

    engine: str
    server_version: str | None = None
    schema: Mapping[str, int] = field(default_factory=dict[str, int])
    expected: Mapping[str, int] = field(default_factory=dict[str, int])
    latency: float = 0.0
    clock_offset: float = 0.0
    missing: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """Whether everything that this build needs was found."""
        return not self.missing
