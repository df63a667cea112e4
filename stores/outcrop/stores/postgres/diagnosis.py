"""A look at a Postgres database, for `outcrop store check`; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.stores.diagnosis import Diagnosis, look_at_clock

from .database import Access, Database
from .migrate import CHECKPOINTS, OURS, versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .session import Session

_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::FLOAT8"
_COMPONENTS = (CHECKPOINTS, OURS)

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "table": (
        "checkpoints",
        "checkpoint_threads",
        "checkpoint_leases",
        "checkpoint_blobs",
        "outcrop_notes",
    ),
    "index": (
        "checkpoint_threads_by_state",
        "checkpoint_threads_by_updated",
        "checkpoint_threads_by_wake",
        "checkpoint_threads_by_graph",
        "checkpoint_threads_by_metadata",
    ),
    "trigger": ("checkpoints_head",),
    "function": (
        "strata_checkpoints_head",
        "outcrop_lock_threads",
        "outcrop_append",
        "outcrop_save",
        "outcrop_put_notes",
        "outcrop_save_noted",
        "outcrop_add_notes",
        "outcrop_acquire_lease",
        "outcrop_purge_thread",
        "outcrop_purge_left_notes",
    ),
}
_PRESENT: Final = {
    "table": "SELECT to_regclass($1) IS NOT NULL",
    "index": "SELECT to_regclass($1) IS NOT NULL",
    "trigger": "SELECT count(*) > 0 FROM pg_trigger "
    "WHERE tgname = $1 AND tgrelid = to_regclass('checkpoints') AND tgenabled <> 'D'",
    "function": "SELECT count(*) > 0 FROM pg_proc WHERE proname = $1 AND pg_function_is_visible(oid)",
}
_SETTINGS: Final = (
    "server_version",
    "server_version_num",
    "server_encoding",
    "default_transaction_isolation",
)
_OLDEST: Final = 140_000
"""The first version with CREATE OR REPLACE TRIGGER and a pg_terminate_backend that waits."""


async def diagnose(url: str, *, prepared: bool = True) -> Diagnosis:
    """Look at a database; raises `StoreError` when it can't be reached."""
    database = Database(Access(url=url, prepared=prepared, pool_size=1, read_only=True))
    try:
        return await database.run(_look)
    finally:
        await database.close()


async def _look(session: Session) -> Diagnosis:
    latency, clock_offset = await look_at_clock(lambda: session.value(_CLOCK))
    found = await versions(session)
    settings = {name: await session.value("SELECT current_setting($1)", name) for name in _SETTINGS}
    absent = [
        f"{kind} {name} is missing"
        for kind, names in _PARTS.items()
        for name in names
        if not await session.value(_PRESENT[kind], name)
    ]
    return Diagnosis(
        engine="postgres",
        server_version=settings["server_version"],
        schema=found,
        expected={component.name: component.version for component in _COMPONENTS},
        latency=latency,
        clock_offset=clock_offset,
        missing=(*_unfit(settings), *_wrong_versions(found), *absent),
    )


def _unfit(settings: Mapping[str, str]) -> Iterator[str]:
    if int(settings["server_version_num"]) < _OLDEST:
        yield f"Postgres {_OLDEST // 10_000} or later is needed"
    if settings["server_encoding"] != "UTF8":
        yield f"the database's encoding is {settings['server_encoding']}, not UTF8"
    if settings["default_transaction_isolation"] != "read committed":
        yield (
            "default_transaction_isolation is not read committed, and saves need it: "
            "ALTER ROLE … SET default_transaction_isolation = 'read committed'"
        )


def _wrong_versions(found: Mapping[str, int]) -> Iterator[str]:
    for component in _COMPONENTS:
        version = found.get(component.name, 0)
        if version < component.version:
            yield component.is_behind(version)
        elif version > component.version:
            yield component.is_ahead(version)
