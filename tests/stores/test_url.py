"""Which store a URL opens, and what is said of one that opens none."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from outcrop.stores import InvalidRequest, MemoryStore, SqliteStore, StoreError, open_store
from outcrop.stores.contract import sample
from outcrop.stores.location import Engine, locate
from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions, RetryOptions
from outcrop.stores.url import diagnose


async def test_memory() -> None:
    assert isinstance(await open_store("memory:"), MemoryStore)


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "SQLITE:///{}"])
async def test_a_file_by_path_or_url(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a b.db"
    store = await open_store(form.format(path))
    assert isinstance(store, SqliteStore)
    await store.save(sample())
    await store.close()
    assert path.is_file()
    store = await open_store(form.format(path), read_only=True)
    assert await store.load("t") is not None
    await store.close()


async def test_a_relative_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_store("sqlite:///a%20b.db")
    await store.close()
    assert (tmp_path / "a b.db").is_file()


@pytest.mark.parametrize(
    "url", ["sqlite://secret", "memory:secret", "mysql:secret", "redis:secret", "POSTGRES:x@y"]
)
async def test_what_is_not_supported_is_said_without_the_url(url: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        await open_store(url)
    assert "use memory:, sqlite:///FILE or a file's path" in str(refusal.value)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["", "  ", "sqlite:///", "sqlite:///?deltas=true", ":memory:"])
async def test_a_missing_file_name_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        await open_store(url)


async def test_a_missing_directory_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"unable to open database file: '.*/no/store.db'"):
        await open_store(str(tmp_path / "no" / "store.db"))


def test_every_option_is_read() -> None:
    location = locate(
        "sqlite:////data/a%3Fb.db?deltas_full_every=4&deltas_cached_threads=5&offload_threshold=6"
        "&offload_folder=%2Fblobs%20here&group_commit_max_batch=7&group_commit_max_concurrent_flushes=8"
    )
    assert (location.engine, location.place) == (Engine.SQLITE, "/data/a?b.db")
    assert location.options.deltas() == DeltaOptions(full_every=4, cached_threads=5)
    assert location.options.offload() == OffloadOptions(threshold=6, folder=Path("/blobs here"))
    assert location.options.group_commit() == GroupCommitOptions(max_batch=7, max_concurrent_flushes=8)
    retrying = locate("postgres://h/d?retry_max_attempts=9&retry_initial_delay=1ms&retry_max_delay=2.5")
    assert retrying.options.retries() == RetryOptions(
        max_attempts=9, initial_delay=timedelta(milliseconds=1), max_delay=timedelta(seconds=2.5)
    )


def test_what_is_not_given_is_off_or_the_default() -> None:
    options = locate("postgres://h/d").options
    assert (options.deltas(), options.offload(), options.group_commit()) == (None, None, None)
    assert options.retries() == RetryOptions()
    assert options.number("pool_size") is None
    assert options.flag("prepared") is None
    assert options.text("prefix") is None


@pytest.mark.parametrize("name", ["deltas", "offload", "group_commit"])
def test_a_switch_turns_its_options_on_or_off(name: str) -> None:
    def read(query: str) -> object:
        return getattr(locate(f"postgres://h/d?{query}").options, name)()

    value = {"deltas": "deltas_full_every", "offload": "offload_threshold"}.get(
        name, "group_commit_max_batch"
    )
    assert read(f"{name}=true") is not None
    assert read(f"{name}=false") is None
    assert read(f"{value}=3") is not None
    assert read(f"{value}=3&{name}=false") is None


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (
            "postgres://u:p%3F@h:1/d?sslmode=require&pool_size=2&options=-c%20x",
            "postgres://u:p%3F@h:1/d?sslmode=require&options=-c%20x",
        ),
        ("PostgreSQL://h/d?pool_size=2", "postgresql://h/d"),
        ("redis://:p@h:1/2?prefix=a", "redis://:p@h:1/2"),
        ("rediss://h?ssl_cert_reqs=none&wait_replicas=1", "rediss://h?ssl_cert_reqs=none"),
    ],
)
def test_what_is_not_ours_stays_with_the_driver(url: str, place: str) -> None:
    assert locate(url).place == place


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h?group_commit=true", "the redis store has no option 'group_commit'"),
        ("postgres://h/d?prefix=x", "the postgres store has no option 'prefix'"),
        ("sqlite:///a.db?pool_size=2", "the sqlite store has no option 'pool_size'"),
        (
            "sqlite:///a.db?journal=wal",
            "the sqlite store's URL has an option that it doesn't know: 'journal'",
        ),
        ("redis://h?prefix=a&prefix=b", "the store's option 'prefix' is given twice"),
        ("a.db?deltas=true", "a file's path takes no options: write sqlite:///FILE?OPTION=VALUE"),
    ],
)
async def test_an_option_that_does_not_fit_is_named(url: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        await open_store(url)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("deltas=yes", "the store's option 'deltas' must be true or false"),
        ("deltas_full_every=1", "deltas' full every must be at least 2"),
        ("deltas_full_every=-2", "the store's option 'deltas_full_every' must be a whole number"),
        ("offload_threshold=0", "offload's threshold must be at least 1"),
        ("offload_folder=", "the store's option 'offload_folder' has no value"),
        ("group_commit_max_batch=many", "the store's option 'group_commit_max_batch' must be a whole number"),
        ("pool_size=0", "a Postgres store's pool size must be at least 1"),
        (
            "retry_max_delay=soon",
            "the store's option 'retry_max_delay' must be a duration: a number of seconds",
        ),
    ],
)
async def test_a_bad_value_is_refused_before_anything_is_opened(option: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        await open_store(f"postgres://user:secret@127.0.0.1:1/db?{option}")
    assert said in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_location_shows_no_password() -> None:
    assert "secret" not in repr(locate("redis://:secret@h"))


@pytest.mark.parametrize(
    ("url", "extra"), [("postgres://user:secret@h/d", "postgres"), ("redis://:secret@h", "redis")]
)
async def test_a_missing_extra_is_named(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = {"postgres": "asyncpg"}.get(extra, "redis")
    for module in [
        name for name in sys.modules if name.split(".")[0] == driver or f".stores.{extra}" in name
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, driver, None)
    for opening in (open_store(url), open_store(url, read_only=True), diagnose(url)):
        with pytest.raises(StoreError) as refusal:
            await opening
        assert f"pip install 'outcrop[{extra}]'" in str(refusal.value)
        assert "secret" not in str(refusal.value)
