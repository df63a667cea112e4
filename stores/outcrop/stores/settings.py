"""What a settings document may say about stores: postgres, redis, sqlite and memory sections.

Owns the sections' names and defaults. A store's section is another spelling of its URL with
options (`location`), and is opened as that is, so an option is read and refused in one place.
Options in the section's own URL stand over the section. No message repeats a URL.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from pydantic import SecretStr  # noqa: TC002 - pydantic needs it at run time

from .documents import Duration, Section
from .errors import InvalidRequest
from .history import url as history
from .location import Engine, Location, Options, locate
from .longterm import url as longterm
from .longterm.hnsw import Hnsw
from .options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions
from .url import open_located

if TYPE_CHECKING:
    from .history import HistoryStore
    from .longterm import LongTermStore
    from .port import Store

_RETRIES, _DELTAS, _OFFLOAD, _GROUPS = RetryOptions(), DeltaOptions(), OffloadOptions(), GroupCommitOptions()

_OPTIONS: Final = {
    "deltas_enabled": "deltas",
    "offload_enabled": "offload",
    "offload_path": "offload_folder",
    "group_commit_enabled": "group_commit",
}
"""The options whose name in a URL isn't that of the section and the key."""


class RetrySettings(Section):
    """See `RetryOptions`."""

    max_attempts: int = _RETRIES.max_attempts
    initial_delay: Duration = _RETRIES.initial_delay
    max_delay: Duration = _RETRIES.max_delay


class DeltaSettings(Section):
    """See `DeltaOptions`."""

    enabled: bool = False
    full_every: int = _DELTAS.full_every
    cached_threads: int = _DELTAS.cached_threads


class OffloadSettings(Section):
    """See `OffloadOptions`; `path` is its folder."""

    enabled: bool = False
    threshold: int = _OFFLOAD.threshold
    path: str | None = None


class GroupCommitSettings(Section):
    """See `GroupCommitOptions`."""

    enabled: bool = False
    max_batch: int = _GROUPS.max_batch
    max_concurrent_flushes: int = _GROUPS.max_concurrent_flushes


class _ServerSettings(Section):
    """A store that its URL finds."""

    engine: ClassVar[Engine]
    title: ClassVar[str]

    url: SecretStr | None = None
    retry: RetrySettings = RetrySettings()
    deltas: DeltaSettings = DeltaSettings()
    offload: OffloadSettings = OffloadSettings()

    def location(self) -> Location:
        """Where it is, with its options; raises `InvalidRequest` when the section doesn't say where."""
        url = "" if self.url is None else self.url.get_secret_value()
        if not url.strip():
            raise InvalidRequest(f"Outcrop's {self.title} store has no url: set {self.engine}.url")
        found = locate(url)
        if found.engine is not self.engine:
            raise InvalidRequest(f"{self.engine}.url is the URL of a {found.engine} store")
        return replace(found, options=Options({**_texts(self, place="url"), **found.options.texts}))


class PostgresSettings(_ServerSettings):
    """A Postgres store."""

    engine: ClassVar[Engine] = Engine.POSTGRES
    title: ClassVar[str] = "Postgres"

    auto_migrate: bool = True
    pool_size: int = 16
    group_commit: GroupCommitSettings = GroupCommitSettings()


class RedisSettings(_ServerSettings):
    """A Redis store."""

    engine: ClassVar[Engine] = Engine.REDIS
    title: ClassVar[str] = "Redis"

    prefix: str = "strata"
    finished_thread_ttl: Duration | None = None


class SqliteSettings(Section):
    """A SQLite store."""

    path: str | None = None
    group_commit: GroupCommitSettings = GroupCommitSettings()
    deltas: DeltaSettings = DeltaSettings()
    offload: OffloadSettings = OffloadSettings()

    def location(self) -> Location:
        """Where it is, with its options; raises `InvalidRequest` when the section doesn't say where."""
        if self.path is None or not self.path.strip():
            raise InvalidRequest("Outcrop's SQLite store has no file: set sqlite.path")
        return Location(Engine.SQLITE, self.path, Options(_texts(self, place="path")))


PlaceSettings: TypeAlias = PostgresSettings | RedisSettings | SqliteSettings
"""A section that says where a store is."""


class IndexSettings(Section):
    """See `Hnsw`; kind `none` searches exactly."""

    kind: str = "none"
    m: int = 16
    ef_construction: int = 64

    def hnsw(self) -> Hnsw | None:
        """The index, if there is to be one; raises `InvalidRequest` for a kind that there isn't."""
        match self.kind.lower():
            case "none":
                return None
            case "hnsw":
                return Hnsw(m=self.m, ef_construction=self.ef_construction)
            case _:
                raise InvalidRequest(
                    f"Outcrop's memory index kind '{self.kind}' is unknown: use none or hnsw"
                )


class MemorySettings(Section):
    """A long-term memory beside the checkpoints; no `prefix` is the Redis section's."""

    dimensions: int | None = None
    table: str = "memory_records"
    prefix: str | None = None
    index: IndexSettings = IndexSettings()

    def sized(self) -> int:
        """The dimensions; raises `InvalidRequest` when the section doesn't say them."""
        if not self.dimensions:
            raise InvalidRequest("Outcrop's memory store has no dimensions: set memory.dimensions")
        return self.dimensions


class StoreSettings(Section):
    """The stores' part of a settings document; `StoreSettings.of(document)` reads one."""

    postgres: PostgresSettings = PostgresSettings()
    redis: RedisSettings = RedisSettings()
    sqlite: SqliteSettings = SqliteSettings()
    memory: MemorySettings = MemorySettings()


async def open_configured(settings: PlaceSettings) -> Store:
    """Open the checkpoint store of a section; raises as `open_store`."""
    return await open_located(settings.location())


async def open_configured_history(settings: PlaceSettings) -> HistoryStore:
    """Open the history beside a section's checkpoints; raises as `open_history`."""
    return await history.open_located(settings.location())


async def open_configured_long_term(settings: PlaceSettings, memory: MemorySettings) -> LongTermStore:
    """Open the long-term memory beside a section's checkpoints; raises as `open_long_term`."""
    dimensions, hnsw = memory.sized(), memory.index.hnsw()
    prefix = None if memory.prefix is None else memory.prefix.strip() or None
    return await longterm.open_located(
        settings.location(), dimensions=dimensions, table=memory.table, hnsw=hnsw, prefix=prefix
    )


def _texts(section: Section, *, place: str = "") -> dict[str, str]:
    """The section's options as a URL's query has them, without its `place` and what is off."""
    texts: dict[str, str] = {}
    for key, value in section:
        if isinstance(value, Section) and not getattr(value, "enabled", True):
            continue
        if isinstance(value, Section):
            named = {f"{key}_{inner}": text for inner, text in _texts(value).items()}
            texts |= {_OPTIONS.get(name, name): text for name, text in named.items()}
        elif value is not None and key != place:
            texts[key] = _text(value)
    return texts


def _text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return f"{value.total_seconds():f}"
        case _:
            return str(value)
