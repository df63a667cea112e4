"""What handling messages is set to: names, limits and times.

Plain values; `settings` reads and checks what people write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from outcrop.topics.codec import DEFAULT_LIMIT
from outcrop.topics.names import TopicNames

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingSettings:
    """How messages are handled; sizes are in bytes.

    `worker` names the process: it owns the leases and signs the outcomes. A command over
    `message_limit`, or that brings a state over `state_limit`, is refused; a state over `state_cap`
    is left out of outcomes; a dead letter keeps `dead_letter_limit` of the original. A message that
    our own code fails on is tried `attempts` times. `services` are handed to nodes by type.
    """

    worker: str
    topics: TopicNames = field(default_factory=TopicNames)
    lease_ttl: timedelta = timedelta(seconds=30)
    max_recoveries: int = 5
    message_limit: int = DEFAULT_LIMIT
    state_limit: int = DEFAULT_LIMIT
    state_cap: int = DEFAULT_LIMIT // 2
    dead_letter_limit: int = DEFAULT_LIMIT // 2
    attempts: int = 5
    services: Mapping[type[object], object] = field(default_factory=dict[type[object], object])
