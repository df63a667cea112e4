"""Running threads on Kafka: the worker, its settings and its command.

Importing this package needs no client library; serving does (`pip install 'outcrop[kafka]'`).
"""

from __future__ import annotations

from .drain import ExitCode
from .errors import (
    CommitRefused,
    GraphsNotFound,
    LogFailed,
    OffsetLost,
    PublishFailed,
    SettingsInvalid,
    TopicsMissing,
    WorkerError,
)
from .loading import load_graphs
from .settings import Settings, load_settings

__all__ = [
    "CommitRefused",
    "ExitCode",
    "GraphsNotFound",
    "LogFailed",
    "OffsetLost",
    "PublishFailed",
    "Settings",
    "SettingsInvalid",
    "TopicsMissing",
    "WorkerError",
    "load_graphs",
    "load_settings",
]
