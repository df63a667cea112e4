"""The health endpoints, served while the loop turns and while it doesn't."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from outcrop.engine.clock import ManualClock
from outcrop.worker.errors import SettingsInvalid
from outcrop.worker.health import HealthServer, Vitals, keep_vitals
from outcrop.worker.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def served(vitals: Vitals, metrics: Metrics | None = None) -> Iterator[HealthServer]:
    server = HealthServer(vitals, metrics or Metrics(), "127.0.0.1", 0)
    server.start()
    try:
        yield server
    finally:
        server.close()


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_loop_that_stopped_turning_is_told_as_sick() -> None:
    clock = ManualClock()
    vitals = Vitals(clock, reasons=())
    with served(vitals) as server:
        assert get(server, "/healthz")[0] == 200
        assert get(server, "/readyz")[0] == 200
        clock.advance(10)
        assert get(server, "/healthz")[0] == 503
        status, body = get(server, "/readyz")
        assert (status, json.loads(body)["reasons"]) == (503, ["the event loop is blocked"])
        vitals.beat()
        assert get(server, "/healthz")[0] == 200


def test_not_ready_says_why() -> None:
    with served(Vitals(ManualClock())) as server:
        status, body = get(server, "/readyz?verbose")
        assert (status, json.loads(body)) == (503, {"ready": False, "reasons": ["starting"]})


def test_metrics_and_nothing_else() -> None:
    metrics = Metrics()
    metrics.gauge("outcrop_partitions", 4)
    with served(Vitals(ManualClock()), metrics) as server:
        assert "outcrop_partitions 4\n" in get(server, "/metrics")[1]
        assert get(server, "/")[0] == 404


def test_a_taken_port_is_a_clear_error() -> None:
    with served(Vitals(ManualClock())) as server, pytest.raises(SettingsInvalid, match="can't listen"):
        HealthServer(Vitals(ManualClock()), Metrics(), "127.0.0.1", server.port)


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_probes_decide_readiness_and_never_hold_up_the_beat() -> None:
    clock = ManualClock()
    vitals = Vitals(clock)
    hangs = asyncio.Event()
    told: str | None = "down"

    async def slow() -> str | None:
        await hangs.wait()
        return None

    async def honest() -> str | None:
        return told

    async def broken() -> str | None:
        raise RuntimeError("postgres://me:hunter2@host")

    task = asyncio.create_task(keep_vitals(vitals, {"group": slow, "store": honest, "other": broken}, clock))
    for _ in range(30):
        clock.advance(1)
        await turn()
    assert vitals.alive
    assert vitals.reasons == ("starting",)
    hangs.set()
    for _ in range(2):
        clock.advance(1)
        await turn()
    assert list(vitals.reasons) == ["store: down", "other: RuntimeError"]
    task.cancel()
    await asyncio.wait([task])
