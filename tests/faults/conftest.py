"""Arenas, and one Postgres server for all of them that a test may restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.arenas import Arenas
from support.postgres import own_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from support.postgres import OwnProgram


@pytest.fixture(scope="package")
def postgres_to_break() -> Generator[tuple[str, OwnProgram]]:
    with own_server() as server:
        yield server


@pytest.fixture
def arenas(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Arenas:
    monkeypatch.setattr("outcrop.stores.sqlite.database.BUSY_TIMEOUT", 0.2)
    return Arenas(tmp_path, lambda: request.getfixturevalue("postgres_to_break"))
