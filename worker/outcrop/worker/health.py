"""Health over HTTP on loopback: `/healthz`, `/readyz`, `/metrics`.

Served by a thread of its own, because a loop that a node blocks must be told as sick by
somebody else. The loop writes `Vitals`, the thread reads them; nothing else is shared.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeAlias

from outcrop.engine.clock import sleep

from .errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from outcrop.engine.clock import Clock

    from .metrics import Metrics

Probe: TypeAlias = "Callable[[], Awaitable[str | None]]"
"""Asked on the loop; says why it isn't ready, or None."""

BEAT: Final = 1.0
_BLOCKED_AFTER: Final = 10.0
_PROBE_TIMEOUT: Final = 5.0


@dataclass(slots=True)
class Vitals:
    """When the loop last turned, and what keeps the worker from being ready."""

    clock: Clock
    reasons: tuple[str, ...] = ("starting",)
    _beat: float = field(init=False)

    def __post_init__(self) -> None:
        self.beat()

    def beat(self) -> None:
        """The loop turns."""
        self._beat = self.clock.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since the loop last turned."""
        return self.clock.monotonic() - self._beat

    @property
    def alive(self) -> bool:
        """Whether the loop turned within the last ten seconds."""
        return self.silence < _BLOCKED_AFTER


async def keep_vitals(vitals: Vitals, probes: Mapping[str, Probe], clock: Clock) -> None:
    """Beat once a second and ask every probe, until cancelled."""
    asking: asyncio.Task[tuple[str, ...]] | None = None
    while True:
        vitals.beat()
        if asking is None:
            asking = asyncio.create_task(_reasons(probes))
        elif asking.done():
            vitals.reasons = asking.result()
            asking = None
        try:
            await sleep(clock, BEAT)
        except asyncio.CancelledError:
            if asking is not None:
                asking.cancel()
            raise


async def _reasons(probes: Mapping[str, Probe]) -> tuple[str, ...]:
    reasons: list[str] = []
    for name, probe in probes.items():
        why = await _ask(probe)
        if why is not None:
            reasons.append(f"{name}: {why}")
    return tuple(reasons)


async def _ask(probe: Probe) -> str | None:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            return await probe()
    except TimeoutError:
        return f"no answer within {_PROBE_TIMEOUT:g} s"
    except Exception as error:  # noqa: BLE001 - whatever a probe fails with is the answer
        return type(error).__name__  # not its text, which could name an address with a password


class HealthServer:
    """Listens from `start` to `close`."""

    def __init__(self, vitals: Vitals, metrics: Metrics, host: str, port: int) -> None:
        def answer(path: str) -> tuple[int, str, str]:
            return _answer(path, vitals, metrics)

        class _Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's names
                """Write nothing: probes come every few seconds; nobody reads about them."""

        try:
            self._server = ThreadingHTTPServer((host, port), _Handler)
        except OSError as error:
            raise SettingsInvalid(f"settings: can't listen on health_host {host}: {error.strerror}") from None
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="outcrop-health",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """The port that it listens on, also where 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(path: str, vitals: Vitals, metrics: Metrics) -> tuple[int, str, str]:
    """Status, content type and body of one request."""
    match path:
        case "/healthz":
            state = {"alive": vitals.alive, "loop_silent_seconds": round(vitals.silence, 1)}
            return (200 if vitals.alive else 503), "application/json", json.dumps(state) + "\n"
        case "/readyz":
            reasons = vitals.reasons if vitals.alive else (*vitals.reasons, "the event loop is blocked")
            body = json.dumps({"ready": not reasons, "reasons": reasons}) + "\n"
            return (503 if reasons else 200), "application/json", body
        case "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", metrics.render()
        case _:
            return 404, "text/plain", "there are /healthz, /readyz and /metrics\n"
