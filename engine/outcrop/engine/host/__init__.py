"""A host without Kafka: wake, recovery and retention drivers for programs that run threads themselves.

host = Host([WakeDriver(threads), RetentionDriver(store, RetentionSettings(older_than=timedelta(days=30)))])
await host.run(stop)
"""

from __future__ import annotations

from .driver import Driver
from .errors import HostRefused, SweepRefused
from .health import Health, check_health
from .host import DriverStatus, Host
from .memory_retention import MemoryRetentionDriver
from .purging import OLDEST
from .recovery import RecoveryDriver
from .retention import RetentionDriver
from .rounds import run_rounds
from .settings import (
    HostSettings,
    LeaseSettings,
    MemoryRetentionSettings,
    MemorySettings,
    RecoverySettings,
    RetentionSettings,
    RunsSettings,
    WakeSettings,
)
from .task import Task
from .wake import WakeDriver

__all__ = [
    "OLDEST",
    "Driver",
    "DriverStatus",
    "Health",
    "Host",
    "HostRefused",
    "HostSettings",
    "LeaseSettings",
    "MemoryRetentionDriver",
    "MemoryRetentionSettings",
    "MemorySettings",
    "RecoveryDriver",
    "RecoverySettings",
    "RetentionDriver",
    "RetentionSettings",
    "RunsSettings",
    "SweepRefused",
    "Task",
    "WakeDriver",
    "WakeSettings",
    "check_health",
    "run_rounds",
]
