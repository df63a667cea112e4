"""How drivers make things happen: `wake` and `recover` commands on the thread's own partition.

Owns which of the sightings become commands: threads of this worker's partitions only, and each
sighting once in a while only. Runs no thread: the owner does, in order with everything else about
it, and a crash loses none.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from outcrop.topics.codec import encode_command
from outcrop.topics.headers import command_headers
from outcrop.topics.ids import RANDOM_BYTES, uuid7
from outcrop.topics.keys import encode_key
from outcrop.topics.messages import Recover, Wake
from outcrop.worker.ports import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from outcrop.engine.clock import Clock
    from outcrop.worker.metrics import Metrics
    from outcrop.worker.ports import Outbox


class Sighting(NamedTuple):
    """A thread as a driver saw it: its latest row is at `sequence`."""

    thread_id: str
    sequence: int


class Dispatch:
    """Produces the commands of one driver kind, `Wake` or `Recover`.

    `owns` tells whether a thread's partition is this worker's; what was sent is sent again
    only after `again_after`. `random` makes so many random bytes.
    """

    def __init__(
        self,
        kind: type[Wake | Recover],
        outbox: Outbox,
        *,
        topic: str,
        owns: Callable[[str], bool],
        clock: Clock,
        again_after: timedelta,
        metrics: Metrics,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._kind = kind
        self._outbox = outbox
        self._topic = topic
        self._owns = owns
        self._clock = clock
        self._again_after = again_after.total_seconds()
        self._metrics = metrics
        self._random = random
        self._sent: dict[Sighting, float] = {}  # in the order of their times

    def wants(self, sighting: Sighting) -> bool:
        """Whether sending it now would produce a command."""
        self._forget()
        return sighting not in self._sent and self._owns(sighting.thread_id)

    async def send(self, sightings: Iterable[Sighting]) -> None:
        """Produce a command for each sighting that is wanted; raises as the outbox does."""
        wanted = [sighting for sighting in dict.fromkeys(sightings) if self.wants(sighting)]
        if not wanted:
            return
        now = self._clock.monotonic()
        self._sent.update(dict.fromkeys(wanted, now))
        try:
            await self._outbox.publish([self._record(sighting) for sighting in wanted])
        except BaseException:
            for sighting in wanted:
                self._sent.pop(sighting, None)
            raise
        driver = "wake" if self._kind is Wake else "recovery"
        self._metrics.count("outcrop_driver_commands_total", len(wanted), driver=driver)

    def _record(self, sighting: Sighting) -> Record:
        now = self._clock.now()
        command = self._kind(
            command_id=uuid7(now, self._random(RANDOM_BYTES)),
            thread_id=sighting.thread_id,
            sent_at=now,
            sequence=sighting.sequence,
        )
        return Record(
            self._topic, encode_key(sighting.thread_id), encode_command(command), command_headers(command)
        )

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - self._again_after
        while self._sent:
            sighting, sent_at = next(iter(self._sent.items()))
            if sent_at > oldest:
                return
            del self._sent[sighting]
