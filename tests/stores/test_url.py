"""Which store a URL opens, and what is said of one that opens none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.stores import InvalidRequest, MemoryStore, SqliteStore, StoreError, open_store
from outcrop.stores.contract import sample

if TYPE_CHECKING:
    from pathlib import Path


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
    "url",
    [
        "postgres://user:secret@host/db",
        "redis://:secret@host",
        "sqlite://secret",
        "memory:secret",
        "mysql:secret",
    ],
)
async def test_what_is_not_supported_is_said_without_the_url(url: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        await open_store(url)
    assert "use memory:, sqlite:///FILE or a file's path" in str(refusal.value)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["", "  ", "sqlite:///", ":memory:"])
async def test_a_missing_file_name_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        await open_store(url)


async def test_a_missing_directory_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"unable to open database file: '.*/no/store.db'"):
        await open_store(str(tmp_path / "no" / "store.db"))
