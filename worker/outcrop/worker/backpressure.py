"""When to stop fetching, and when to go on.

Pure. Two reasons to pause a partition: the process holds `max_buffered` messages (all
partitions pause, until below half), or the partition has as many unfinished offsets as a
commit can tell of (that one pauses, until below half of those).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .offsets import MAX_UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ports import Partition


@dataclass(frozen=True, slots=True)
class Flow:
    """Partitions to pause and to resume now."""

    pause: frozenset[Partition] = frozenset()
    resume: frozenset[Partition] = frozenset()


@dataclass(slots=True)
class Backpressure:
    """Remembers what is paused, so that each decision names only what changes."""

    max_buffered: int
    paused: set[Partition] = field(default_factory=set["Partition"])
    _all: bool = False

    def decide(self, buffered: int, unfinished: Mapping[Partition, int]) -> Flow:
        """Weigh `buffered` messages in the process and the unfinished ones of each owned partition."""
        self.paused &= unfinished.keys()  # a partition that comes back comes unpaused
        self._all = buffered >= self.max_buffered or (self._all and buffered * 2 >= self.max_buffered)
        wanted = {partition for partition, count in unfinished.items() if self._holds(partition, count)}
        flow = Flow(frozenset(wanted - self.paused), frozenset(self.paused - wanted))
        self.paused = wanted
        return flow

    def _holds(self, partition: Partition, unfinished: int) -> bool:
        bound = MAX_UNFINISHED // 2 if partition in self.paused and not self._all else MAX_UNFINISHED
        return self._all or unfinished >= bound
