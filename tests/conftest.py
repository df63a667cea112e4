"""Runs coroutine tests, and hands out the services that tests need.

A missing service skips its tests, saying why; where `OUTCROP_REQUIRE` names it (CI does),
it fails them instead, so that nothing is skipped silently.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.missing import missing
from support.row_schema import watch_rows
from support.storages import Places

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Await a coroutine test to its end; anything else is pytest's own business."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(autouse=True)
def _rows_fit_their_schema(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wrong = watch_rows(monkeypatch)
    yield
    assert not wrong, wrong[:3]


def _address(service: str) -> str:
    variable = f"OUTCROP_TEST_{service.upper()}"
    address = os.environ.get(variable, "")
    if not address:
        missing(service, f"run the tests under compose/services, or set {variable}")
    return address


@pytest.fixture(scope="session")
def kafka_bootstrap() -> str:
    """The address of a real broker."""
    return _address("kafka")


@pytest.fixture(scope="session")
def peer() -> Path:
    """The built strata-peer program."""
    program = Path(
        os.environ.get("OUTCROP_PEER", Path(__file__).parent / "interop/peer/target/release/strata-peer")
    )
    if not program.is_file():
        missing("peer", "cargo build --release --locked in tests/interop/peer, or set OUTCROP_PEER")
    return program


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URL of a real Postgres server; a test makes its own database there (`support.postgres`)."""
    return _address("postgres")


@pytest.fixture(scope="session")
def redis_server() -> str:
    """The URL of a real Redis server; a test uses a prefix of its own there."""
    return _address("redis")


@pytest.fixture
def places(tmp_path: Path, request: pytest.FixtureRequest) -> Places:
    """Fresh places of every kind that keep rows; a server is asked for with the first place on it."""
    return Places(tmp_path, lambda engine: request.getfixturevalue(f"{engine}_server"))
