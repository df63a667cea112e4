"""Histories and memories by the URL of the store that they are in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from outcrop.stores import InvalidRequest, open_store
from outcrop.stores.history import InProcessHistoryStore, Message, Role, open_history
from outcrop.stores.longterm import Hnsw, InProcessLongTermStore, open_long_term
from support.longterm import pgvector_server, query_engine_server, record, use_extensible_sqlite
from support.postgres import fresh_database

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = Message(Role.USER, "x", datetime(2026, 11, 30, tzinfo=UTC))


async def use_all(url: str, *, indexed: bool) -> None:
    """Open the three stores of one place, and write to two."""
    checkpoints = await open_store(url)
    history = await open_history(url)
    memory = await open_long_term(url, dimensions=2, hnsw=Hnsw() if indexed else None)
    await history.append("s", MESSAGE)
    await memory.upsert(record("a"))
    assert await history.get_history("s", 9) == (MESSAGE,)
    assert await memory.get(record("a").key) is not None
    assert await checkpoints.load("s") is None
    for store in (memory, history, checkpoints):
        await store.close()


async def test_one_file_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N6."""
    use_extensible_sqlite(monkeypatch)
    await use_all(f"sqlite:///{tmp_path / 'a.db'}?deltas=true", indexed=False)
    await use_all(str(tmp_path / "b.db"), indexed=False)


async def test_one_database_has_all() -> None:
    async with fresh_database(pgvector_server()) as url:
        await use_all(f"{url}?pool_size=2&deltas=true&retry_max_attempts=2", indexed=True)


async def test_one_prefix_has_all() -> None:
    await use_all(f"{query_engine_server()}?prefix=t{uuid4().hex}&retry_max_attempts=2", indexed=True)


async def test_this_process_has_both() -> None:
    assert isinstance(await open_history("memory:"), InProcessHistoryStore)
    assert isinstance(await open_long_term("memory:", dimensions=2), InProcessLongTermStore)


@pytest.mark.parametrize("url", ["memory:", "sqlite:///a.db"])
async def test_an_index_is_refused_where_there_is_none(url: str) -> None:
    with pytest.raises(InvalidRequest, match="memory has no HNSW index: it compares every record"):
        await open_long_term(url, dimensions=2, hnsw=Hnsw())


async def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="there is no store for 'mysql:' URLs"):
        await open_history("mysql://u:secret@h/d")
