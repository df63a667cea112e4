"""Runs coroutine tests, and hands out the services that tests need.

A missing service skips its tests, saying why; where `OUTCROP_REQUIRE` names it (CI does),
it fails them instead, so that nothing is skipped silently.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path

import pytest

from support.storages import Places


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Await a coroutine test to its end; anything else is pytest's own business."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def _missing(service: str, remedy: str) -> None:
    if service in os.environ.get("OUTCROP_REQUIRE", "").split(","):
        pytest.fail(f"{service} is required here and missing: {remedy}")
    pytest.skip(f"no {service}: {remedy}")


@pytest.fixture(scope="session")
def kafka_bootstrap() -> str:
    """The address of a real broker."""
    address = os.environ.get("OUTCROP_TEST_KAFKA", "")
    if not address:
        _missing("kafka", "run the tests under compose/services, or set OUTCROP_TEST_KAFKA")
    return address


@pytest.fixture(scope="session")
def peer() -> Path:
    """The built strata-peer program."""
    program = Path(
        os.environ.get("OUTCROP_PEER", Path(__file__).parent / "interop/peer/target/release/strata-peer")
    )
    if not program.is_file():
        _missing("peer", "cargo build --release --locked in tests/interop/peer, or set OUTCROP_PEER")
    return program


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URL of a real Postgres server; a test makes its own database there (`support.postgres`)."""
    url = os.environ.get("OUTCROP_TEST_POSTGRES", "")
    if not url:
        _missing("postgres", "run the tests under compose/services, or set OUTCROP_TEST_POSTGRES")
    return url


@pytest.fixture(scope="session")
def redis_server() -> str:
    """The URL of a real Redis server; a test uses a prefix of its own there."""
    url = os.environ.get("OUTCROP_TEST_REDIS", "")
    if not url:
        _missing("redis", "run the tests under compose/services, or set OUTCROP_TEST_REDIS")
    return url


@pytest.fixture
def places(tmp_path: Path, postgres_server: str, redis_server: str) -> Places:
    """Fresh places of every kind that keep rows."""
    return Places(tmp_path, postgres_server, redis_server)
