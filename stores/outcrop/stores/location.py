"""Where a store is and how it is to be opened, read out of one URL.

Owns the schemes, the names of the options in a URL's query, and what is said of a bad one.
Opens nothing and knows no driver: what isn't one of its options stays in the URL, which only
the driver reads. No message repeats a URL or an option's value, because either may carry a
password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from .durations import parse_duration
from .errors import InvalidRequest
from .options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta


class Engine(StrEnum):
    """The kinds of store that a URL can name."""

    MEMORY = "memory"
    SQLITE = "sqlite"
    POSTGRES = "postgres"
    REDIS = "redis"


_ENGINES: Final = {
    "memory": Engine.MEMORY,
    "sqlite": Engine.SQLITE,
    "postgres": Engine.POSTGRES,
    "postgresql": Engine.POSTGRES,
    "redis": Engine.REDIS,
    "rediss": Engine.REDIS,
}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SUPPORTED: Final = "use memory:, sqlite:///FILE or a file's path, postgres://HOST/DATABASE or redis://HOST"

_ROWS: Final = frozenset(
    {
        "deltas",
        "deltas_full_every",
        "deltas_cached_threads",
        "offload",
        "offload_threshold",
        "offload_folder",
    }
)
_GROUPS: Final = frozenset({"group_commit", "group_commit_max_batch", "group_commit_max_concurrent_flushes"})
_RETRIES: Final = frozenset({"retry_max_attempts", "retry_initial_delay", "retry_max_delay"})
_OPTIONS: Final = {
    Engine.MEMORY: frozenset[str](),
    Engine.SQLITE: _ROWS | _GROUPS,
    Engine.POSTGRES: _ROWS | _GROUPS | _RETRIES | {"pool_size", "auto_migrate", "prepared", "answer_timeout"},
    Engine.REDIS: _ROWS | _RETRIES | {"prefix", "finished_thread_ttl", "wait_replicas", "wait_timeout"},
}
_KNOWN: Final = frozenset[str]().union(*_OPTIONS.values())

_Choice = TypeVar("_Choice", DeltaOptions, OffloadOptions, GroupCommitOptions)


@dataclass(frozen=True, slots=True)
class Options:
    """Our options of one URL, still as text; each reader gives None for what isn't there.

    Every reader raises `InvalidRequest` with the option's name for a value that it can't be.
    """

    texts: Mapping[str, str] = field(default_factory=dict[str, str])

    def text(self, name: str) -> str | None:
        """A text that isn't blank."""
        text = self.texts.get(name)
        if text is not None and not text.strip():
            raise InvalidRequest(f"the store's option '{name}' has no value")
        return text

    def number(self, name: str) -> int | None:
        """A whole number from 0."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 18):  # noqa: PLR2004 - fits every engine's integers
            raise InvalidRequest(f"the store's option '{name}' must be a whole number")
        return int(text)

    def flag(self, name: str) -> bool | None:
        """`true` or `false`."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in {"true", "false"}:
            raise InvalidRequest(f"the store's option '{name}' must be true or false")
        return text.lower() == "true"

    def duration(self, name: str) -> timedelta | None:
        """A number of seconds, or a number with `ms`, `s`, `m`, `h` or `d`."""
        text = self.text(name)
        try:
            return None if text is None else parse_duration(text)
        except InvalidRequest:
            raise InvalidRequest(
                f"the store's option '{name}' must be a duration: "
                "a number of seconds, or a number with ms, s, m, h or d"
            ) from None

    def deltas(self) -> DeltaOptions | None:
        """Rows as differences: on with `deltas=true`, or with any of its options."""
        return self._switched(
            "deltas",
            DeltaOptions(),
            full_every=self.number("deltas_full_every"),
            cached_threads=self.number("deltas_cached_threads"),
        )

    def offload(self) -> OffloadOptions | None:
        """Large values outside their rows: on with `offload=true`, or with any of its options."""
        folder = self.text("offload_folder")
        return self._switched(
            "offload",
            OffloadOptions(),
            threshold=self.number("offload_threshold"),
            folder=None if folder is None else Path(folder),
        )

    def group_commit(self) -> GroupCommitOptions | None:
        """Concurrent saves in one commit: on with `group_commit=true`, or with any of its options."""
        return self._switched(
            "group_commit",
            GroupCommitOptions(),
            max_batch=self.number("group_commit_max_batch"),
            max_concurrent_flushes=self.number("group_commit_max_concurrent_flushes"),
        )

    def retries(self) -> RetryOptions:
        """How often a call is repeated."""
        return replace(
            RetryOptions(),
            **given(
                max_attempts=self.number("retry_max_attempts"),
                initial_delay=self.duration("retry_initial_delay"),
                max_delay=self.duration("retry_max_delay"),
            ),
        )

    def _switched(self, switch: str, default: _Choice, **values: object) -> _Choice | None:
        """The choice that these values make of the default; None when it is off."""
        told = given(**values)
        on = self.flag(switch)
        return replace(default, **told) if on or (on is None and told) else None


def given(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - values of every type that an option has
    """The values that a URL told, by name: what isn't there is the adapter's default."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Location:
    """A store's engine, its place as the engine's driver has it, and our own options.

    `place` is a file's path, or the URL without our options: secret, and never shown.
    """

    engine: Engine
    place: str = field(repr=False)
    options: Options = field(default_factory=Options)


def locate(url: str) -> Location:
    """What `url` names; raises `InvalidRequest` for no supported store, or a bad option."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return Location(Engine.SQLITE, _path(url))
    engine = _ENGINES.get(scheme[1].lower())
    rest = url[scheme.end() :]
    match engine:
        case None:
            raise InvalidRequest(f"there is no store for '{scheme[1]}:' URLs: {_SUPPORTED}")
        case Engine.MEMORY if not rest:
            return Location(engine, "")
        case Engine.SQLITE if rest.startswith("///"):
            file, _, query = rest.removeprefix("///").partition("?")
            ours, others = _split(engine, query)
            if others:
                raise InvalidRequest(
                    f"the sqlite store's URL has an option that it doesn't know{_named(others[0])}"
                )
            return Location(engine, _file(unquote(file)), ours)
        case Engine.POSTGRES | Engine.REDIS if rest.startswith("//"):
            server, _, query = rest.partition("?")
            ours, others = _split(engine, query)
            place = f"{scheme[1].lower()}:{server}" + ("?" + "&".join(others) if others else "")
            return Location(engine, place, ours)
        case _:
            raise InvalidRequest(f"the {engine} store's URL is malformed: {_SUPPORTED}")


def _path(path: str) -> str:
    """A bare path: it takes no options, so that a file's name may not turn into one unseen.

    A server's URL that is slightly off (a blank before it, quotes around it, no colon) is no
    path: as one it would be repeated in messages, password and all.
    """
    if "://" in path or ("//" in path and "@" in path):
        raise InvalidRequest(f"that is neither a file's path nor a store's URL: {_SUPPORTED}")
    if "?" in path:
        raise InvalidRequest(
            "a file's path takes no options: write sqlite:///FILE?OPTION=VALUE (and %3F for a ? in its name)"
        )
    return _file(path)


def _file(path: str) -> str:
    if not path.strip():
        raise InvalidRequest(f"the store's URL names no file: {_SUPPORTED}")
    return path


def _split(engine: Engine, query: str) -> tuple[Options, list[str]]:
    """Our options of a query, and the rest of it as it stands, for the driver."""
    ours: dict[str, str] = {}
    others: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in _KNOWN:
            others.append(part)
        elif name not in _OPTIONS[engine]:
            raise InvalidRequest(f"the {engine} store has no option '{name}'")
        elif name in ours:
            raise InvalidRequest(f"the store's option '{name}' is given twice")
        else:
            ours[name] = unquote(value)
    return Options(ours), others


def _named(part: str) -> str:
    name = part.partition("=")[0]
    return f": '{name}'" if re.fullmatch("[a-z_]+", name) else ""
