"""A group member as a process of its own, for tests that stop and kill one.

`python -m support.member SETTINGS` (JSON) with `tests` on the path; writes a line for all it
hears: `assigned N`, `revoked N`, `lost N`, `failed NAME`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from outcrop.worker.cluster import Cluster
from outcrop.worker.consumer import KafkaLog
from outcrop.worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from outcrop.worker.ports import Assigned, Message, Partition, Position


class Teller:
    """A `LogListener` that prints."""

    def on_assigned(self, assigned: Assigned) -> None:
        tell("assigned", len(assigned.positions))

    def on_messages(self, messages: Sequence[Message]) -> None: ...

    async def on_revoked(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        tell("revoked", len(partitions))
        return {}

    def on_lost(self, partitions: Collection[Partition]) -> None:
        tell("lost", len(partitions))

    def on_failed(self, error: Exception) -> None:
        tell("failed", type(error).__name__)


def tell(*words: object) -> None:
    """Write one line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def join(settings: Mapping[str, object]) -> None:
    """Be a member until standard input ends."""
    chosen = load_settings(settings, environment={})
    log = KafkaLog(chosen, Cluster(chosen), [chosen.commands_topic])
    await log.start(Teller())
    await asyncio.to_thread(sys.stdin.read)
    await log.close()


if __name__ == "__main__":
    asyncio.run(join(json.loads(sys.argv[1])))
