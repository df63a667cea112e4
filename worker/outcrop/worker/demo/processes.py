"""The demonstration's other processes: workers and the payment service.

They are started in sessions of their own, so that Ctrl-C reaches the demonstration first
and it can end them in order. Invariant: none outlives `Processes`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from outcrop.stores import OutcropError

from .payments import PAYMENTS_ENV
from .view import WorkerView

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from pathlib import Path
    from types import TracebackType

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0

# Short, so that what the killed worker held is taken over while one watches.
WORKER_SETTINGS = {
    "auto_create": "true",
    "commit_interval": "50ms",
    "concurrency": "32",
    "group_protocol": "consumer",
    "handover_timeout": "2s",
    "heartbeat_interval": "1s",
    "lease_ttl": "3s",
    "log_level": "warning",
    "recovery_interval": "2s",
    "session_timeout": "6s",
    "shutdown_timeout": "3s",
    "wake_interval": "1s",
}


class DemoFailed(OutcropError):
    """The demonstration couldn't be carried out."""

    code = "OUTCROP_DEMO"


@dataclass(slots=True)
class WorkerProcess:
    """One worker, by the name that its leases and outcomes carry."""

    name: str
    process: Process
    killed: bool = False

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.killed = True

    def view(self) -> WorkerView:
        """How it is doing."""
        if self.killed:
            fate = "killed"
        else:
            fate = "working" if self.process.returncode is None else f"ended ({self.process.returncode})"
        return WorkerView(self.name, self.process.pid, fate)


class Processes:
    """Starts processes inside its `async with` block and ends them with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Process] = []
        self._files = ExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(_end(process) for process in self._started))
        self._files.close()

    async def start_payments(self, journal: Path) -> str:
        """Start the payment service; returns the `host:port` it listens on."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "outcrop.worker.demo.payments", str(journal)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._log("payments"),
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdout is not None  # noqa: S101 - it was asked for above
        async with asyncio.timeout(_START_SECONDS):
            address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise DemoFailed("the payment service didn't start")
        return address

    async def start_worker(self, name: str, *, bootstrap: str, store: Path, payments: str) -> WorkerProcess:
        """Start a worker of the order graph."""
        settings = {**WORKER_SETTINGS, "bootstrap": bootstrap, "store": str(store), "worker": name}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OUTCROP_")}
        environment |= {f"OUTCROP_{key.upper()}": value for key, value in settings.items()}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "outcrop.worker.cli", "worker", "outcrop.worker.demo.orders:graph"),
            env={**environment, PAYMENTS_ENV: payments},
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=self._log(name),
            start_new_session=True,
        )
        self._started.append(process)
        return WorkerProcess(name, process)

    def log_of(self, name: str) -> Path:
        """Where a process's standard error goes."""
        return self._folder / f"{name}.log"

    def _log(self, name: str) -> int:
        file = self.log_of(name).open("ab")
        self._files.callback(file.close)
        return file.fileno()


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
