"""What a settings document may say about the host: runs, wake, recovery, retention, memory.

Owns the names and the defaults. What is out of range, or missing for a driver, is the
driver's own to refuse when the host starts; here only what can't be read at all is refused.
"""

from __future__ import annotations

import os
from datetime import timedelta

from pydantic import Field

from outcrop.engine.options import LeaseOptions, RunOptions
from outcrop.stores.documents import Duration, Section


def _owner() -> str:
    """This process's name: its machine's, as the environment tells it, and its ID."""
    machine = os.environ.get("HOSTNAME") or os.environ.get("COMPUTERNAME") or "host"
    return f"{machine}/{os.getpid()}"


class LeaseSettings(Section):
    """The lease of the drivers' runs; without a `ttl` they have none."""

    owner: str = Field(default_factory=_owner)
    ttl: Duration | None = None


class RunsSettings(Section):
    """How the drivers' runs run."""

    lease: LeaseSettings = Field(default_factory=LeaseSettings)

    def options(self) -> RunOptions:
        """As the drivers take them."""
        lease = self.lease
        return RunOptions(lease=None if lease.ttl is None else LeaseOptions(lease.owner, lease.ttl))


class WakeSettings(Section):
    """When and what the wake driver wakes."""

    interval: Duration = timedelta(seconds=5)
    batch_size: int = 100
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    match_graph: bool = True


class RecoverySettings(Section):
    """When and what the recovery driver recovers; see `RecoverOptions`."""

    interval: Duration = timedelta(seconds=30)
    batch_size: int = 100
    stale_after: Duration | None = None
    max_recoveries: int | None = None
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    match_graph: bool = True


class PurgeSettings(Section):
    """When a driver purges, and how old what it purges must be."""

    interval: Duration = timedelta(hours=1)
    batch_size: int = 1000
    older_than: Duration | None = None


class RetentionSettings(PurgeSettings):
    """What the retention driver purges; no `states` are the finished ones."""

    states: tuple[str, ...] = ()


class MemoryRetentionSettings(PurgeSettings):
    """What the memory retention driver purges; no namespace or tenant is any."""

    namespace: str | None = None
    tenant: str | None = None


class MemorySettings(Section):
    """The host's part of the `memory` section."""

    retention: MemoryRetentionSettings = MemoryRetentionSettings()


class HostSettings(Section):
    """The host's part of a settings document; `HostSettings.of(document)` reads one."""

    runs: RunsSettings = Field(default_factory=RunsSettings)
    wake: WakeSettings = WakeSettings()
    recovery: RecoverySettings = RecoverySettings()
    retention: RetentionSettings = RetentionSettings()
    memory: MemorySettings = MemorySettings()
