"""Where a run is at this moment, in words for crash points: `charge`, `after charge`, `resume at approve`.

Told by the run's events as telemetry is, in line; kept by task, since branches run beside each
other. Owns the words only: nothing is decided by them.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from outcrop.engine.events import NodeCompleted, NodeStarted, RunStarted

if TYPE_CHECKING:
    from collections.abc import Generator

    from outcrop.engine.events import RunEvent

_inside: ContextVar[tuple[str, ...]] = ContextVar("outcrop-inside", default=())
_between: ContextVar[str] = ContextVar("outcrop-between", default="")


def place_of(point: str) -> str:
    """Where the failpoint that the current task comes to stands."""
    inside = _inside.get()
    return _between.get() if point.startswith(("save.", "lease.")) or not inside else inside[-1]


class Places:
    """Telemetry that keeps track of where each task is."""

    def run(self, thread_id: str, run_id: str) -> Places:
        """See `recorder.Telemetry`."""
        del thread_id, run_id
        return self

    def observed(self, event: RunEvent) -> None:
        """Note what a run has come to."""
        path = event.node_path or ""
        match event.kind:
            case RunStarted(mode=mode, node=node):
                _inside.set(())
                _between.set(f"{mode} at {node}")
            case NodeStarted():
                _inside.set((*_inside.get(), path))
            case NodeCompleted():
                _inside.set(_inside.get()[:-1])
                _between.set(f"after {path}")
            case _:
                pass

    @contextmanager
    def attempt(self, path: str, number: int) -> Generator[None]:
        """Note the branch that a task of its own is for; it stays there until it ends."""
        del number
        if _inside.get()[-1:] != (path,):
            _inside.set((*_inside.get(), path))
        yield

    def loaded(self, seconds: float, status: str | None) -> None:
        """Nothing to note."""

    def held(self) -> None:
        """Nothing to note."""

    def observer_failed(self) -> None:
        """Nothing to note."""
