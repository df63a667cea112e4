"""What a store may be told at its opening: retries, deltas, offload, group commit.

Frozen values; those with bounds check them, so that a wrong number is refused before any file
or connection is opened. Everything but the retries is off unless given. Knows no store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from .errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """How often a call that met a passing failure is repeated, and how long it waits.

    `max_attempts` counts the first one; zero is one. Each wait is random between nothing
    and a bound that starts at `initial_delay` and doubles up to `max_delay`.
    """

    max_attempts: int = 4
    initial_delay: timedelta = timedelta(milliseconds=50)
    max_delay: timedelta = timedelta(seconds=2)

    def bound(self, failures: int) -> float:
        """The longest wait, in seconds, after that many failures (from 1)."""
        # 2**30 times any delay that makes sense is over any cap that does.
        return min(self.initial_delay * (1 << min(failures - 1, 30)), self.max_delay).total_seconds()


DEFAULT_RETRIES: Final = RetryOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions:
    """Running rows as what changed since the row before.

    Every `full_every`-th row is whole. `cached_threads` is how many threads' latest rows
    are remembered to compare with; a thread that isn't gets a whole row.
    """

    full_every: int = 16
    cached_threads: int = 10_000

    def __post_init__(self) -> None:
        if self.full_every < 2:  # noqa: PLR2004 - one whole row and a delta of it
            raise InvalidRequest("deltas' full every must be at least 2")
        if self.cached_threads < 1:
            raise InvalidRequest("deltas' cached threads must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadOptions:
    """Large top-level values of a state outside its row, each version of a value once.

    `threshold` is in bytes of the value's canonical JSON. `folder` keeps the blobs as
    files there; without it they are in the store's own database.
    """

    threshold: int = 65_536
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise InvalidRequest("offload's threshold must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommitOptions:
    """Concurrent saves of a process in one round trip and one commit.

    A flush takes up to `max_batch` saves; `max_concurrent_flushes` run at once (SQLite has
    one connection, and so one flush).
    """

    max_batch: int = 256
    max_concurrent_flushes: int = 4

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise InvalidRequest("group commit's max batch must be at least 1")
        if self.max_concurrent_flushes < 1:
            raise InvalidRequest("group commit's max concurrent flushes must be at least 1")
