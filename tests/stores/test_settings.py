"""The stores' part of a settings document, and opening what it says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outcrop.stores.documents import read_document
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.location import Engine, Location
from outcrop.stores.longterm.hnsw import Hnsw
from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions
from outcrop.stores.settings import (
    StoreSettings,
    open_configured,
    open_configured_history,
    open_configured_long_term,
)
from support.longterm import use_extensible_sqlite

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL_ON: dict[str, dict[str, object]] = {
    "deltas": {"enabled": True, "full_every": 4, "cached_threads": 5},
    "offload": {"enabled": True, "threshold": 6, "path": "blobs"},
    "group_commit": {"enabled": True, "max_batch": 7, "max_concurrent_flushes": 8},
    "retry": {"max_attempts": 9, "initial_delay": 0.25, "max_delay": "3 s"},
}


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("postgres", "Outcrop's Postgres store has no url: set postgres.url"),
        ("redis", "Outcrop's Redis store has no url: set redis.url"),
        ("sqlite", "Outcrop's SQLite store has no file: set sqlite.path"),
    ],
)
@pytest.mark.parametrize("value", [None, " "])
async def test_a_store_that_is_nowhere_names_the_missing_key(
    section: str, told: str, value: str | None
) -> None:
    """P3."""
    key = "path" if section == "sqlite" else "url"
    settings = StoreSettings.of({} if value is None else {section: {key: value}})
    with pytest.raises(InvalidRequest) as caught:
        await open_configured(getattr(settings, section))
    assert str(caught.value) == told


@pytest.mark.parametrize("section", ["postgres", "redis", "sqlite"])
def test_deltas_offload_and_group_commit_are_off_unless_enabled(section: str) -> None:
    """P4."""
    empty: dict[str, object] = {}
    unset: dict[str, object] = {name: {**values, "enabled": False} for name, values in ALL_ON.items()}
    for document in (empty, unset):
        options = located(section, document).options
        assert (options.deltas(), options.offload(), options.group_commit()) == (None, None, None)


@pytest.mark.parametrize("section", ["postgres", "redis", "sqlite"])
def test_their_numbers_reach_the_stores(section: str) -> None:
    """P4."""
    location = located(section, ALL_ON)
    assert location.engine == Engine(section)
    options = location.options
    assert options.deltas() == DeltaOptions(full_every=4, cached_threads=5)
    assert options.offload() == OffloadOptions(threshold=6, folder=Path("blobs"))
    if section != "redis":
        assert options.group_commit() == GroupCommitOptions(max_batch=7, max_concurrent_flushes=8)
    if section != "sqlite":
        delays = {"initial_delay": timedelta(milliseconds=250), "max_delay": timedelta(seconds=3)}
        assert options.retries() == RetryOptions(max_attempts=9, **delays)


def test_the_rest_reaches_the_stores_too() -> None:
    """P5."""
    options = located("postgres", {"auto_migrate": False, "pool_size": 3}).options
    assert (options.flag("auto_migrate"), options.number("pool_size")) == (False, 3)
    options = located("redis", {"prefix": "mine", "finished_thread_ttl": "7d"}).options
    assert (options.text("prefix"), options.duration("finished_thread_ttl")) == ("mine", timedelta(days=7))
    assert located("redis", {}).options.duration("finished_thread_ttl") is None


def test_options_in_the_url_stand_over_the_section() -> None:
    document = {
        "postgres": {"url": "postgres://h/db?pool_size=5&deltas=true&sslmode=require", "pool_size": 3}
    }
    location = StoreSettings.of(document).postgres.location()
    assert location.place == "postgres://h/db?sslmode=require"
    assert location.options.number("pool_size") == 5
    assert location.options.deltas() == DeltaOptions()


def test_a_url_in_the_wrong_section_is_refused_and_not_repeated() -> None:
    settings = StoreSettings.of({"postgres": {"url": "redis://u:hunter2@h"}})
    with pytest.raises(InvalidRequest, match=r"^postgres\.url is the URL of a redis store$"):
        settings.postgres.location()
    assert "hunter2" not in repr(settings)


def test_a_problem_with_a_url_does_not_show_it() -> None:
    with pytest.raises(InvalidRequest) as caught:
        StoreSettings.of({"postgres": {"url": ["postgres://u:hunter2@h"]}})
    assert "postgres.url" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_file_opens_with_its_options(tmp_path: Path) -> None:
    """P5."""
    document = {"sqlite": {"path": str(tmp_path / "a?b.db"), "deltas": {"enabled": True}}}
    store = await open_configured(StoreSettings.of(document).sqlite)
    await store.close()
    assert (tmp_path / "a?b.db").is_file()


async def test_checkpoints_and_history_share_one_file(tmp_path: Path) -> None:
    """P5."""
    settings = StoreSettings.of({"sqlite": {"path": str(tmp_path / "a.db")}})
    await (await open_configured(settings.sqlite)).close()
    await (await open_configured_history(settings.sqlite)).close()
    assert {"checkpoints", "history_records"} <= tables(tmp_path / "a.db")


async def test_memory_shares_the_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P5."""
    use_extensible_sqlite(monkeypatch)
    settings = StoreSettings.of({"sqlite": {"path": str(tmp_path / "a.db")}, "memory": {"dimensions": 2}})
    await (await open_configured(settings.sqlite)).close()
    await (await open_configured_long_term(settings.sqlite, settings.memory)).close()
    assert {"checkpoints", "memory_records"} <= tables(tmp_path / "a.db")


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ({}, "Outcrop's memory store has no dimensions: set memory.dimensions"),
        ({"dimensions": None}, "Outcrop's memory store has no dimensions: set memory.dimensions"),
        ({"dimensions": 0}, "Outcrop's memory store has no dimensions: set memory.dimensions"),
        (
            {"dimensions": 2, "index": {"kind": "flat"}},
            "Outcrop's memory index kind 'flat' is unknown: use none or hnsw",
        ),
    ],
)
async def test_what_a_memory_lacks_refuses_it(tmp_path: Path, memory: dict[str, object], told: str) -> None:
    """P6."""
    settings = StoreSettings.of({"sqlite": {"path": str(tmp_path / "a.db")}, "memory": memory})
    with pytest.raises(InvalidRequest) as caught:
        await open_configured_long_term(settings.sqlite, settings.memory)
    assert str(caught.value) == told
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("kind", ["hnsw", "HNSW", "Hnsw"])
def test_a_memorys_index_in_any_case(kind: str) -> None:
    """P6."""
    index = {"kind": kind, "m": 8, "ef_construction": 32}
    memory = StoreSettings.of({"memory": {"dimensions": 3, "index": index}}).memory
    assert memory.index.hnsw() == Hnsw(m=8, ef_construction=32)
    assert StoreSettings.of({}).memory.index.hnsw() is None
    assert StoreSettings.of({}).memory.table == "memory_records"


@pytest.mark.parametrize(
    ("name", "text"), [("s.toml", "[wake]\nbatch_size = 3"), ("s.json", '{"wake":{"batch_size":3}}')]
)
def test_a_document_is_toml_or_json(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_document(tmp_path / name) == {"wake": {"batch_size": 3}}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("s.toml", b"a = ", "s.toml isn't TOML: "),
        ("s.json", b"{", "s.json isn't JSON: "),
        ("s.json", b"[]", "s.json holds no object"),
        ("s.toml", b"\xff", "s.toml isn't TOML: "),
        ("s.toml", None, "can't read the settings file "),
    ],
)
def test_a_document_that_is_none_is_told(tmp_path: Path, name: str, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest) as caught:
        read_document(tmp_path / name)
    assert told in str(caught.value)


def located(section: str, values: Mapping[str, object]) -> Location:
    """Where a section with these values says the store is."""
    place: dict[str, object] = {"path": "a.db"} if section == "sqlite" else {"url": f"{section}://h"}
    location: Location = getattr(StoreSettings.of({section: {**place, **values}}), section).location()
    return location


def tables(file: Path) -> set[str]:
    """The tables of a SQLite file."""
    with closing(sqlite3.connect(file)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
