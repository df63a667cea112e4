"""Effects: what nodes did to the world outside, as a service that honours keys would count it.

Owns the record of every request and which of them were applied: the first of each name and key.
Each is noted with the execution of the node that asked, so that the same effect can be told in
two runs. It outlives a crash, as the world does; what a dead process still asks is never heard.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outcrop.engine.failpoints import failpoint

if TYPE_CHECKING:
    from outcrop.stores.record import Json


@dataclass(frozen=True, slots=True)
class Execution:
    """One attempt of one node or branch; `visit` (its idempotency key) is the same for all of them."""

    number: int
    path: str
    visit: str
    attempt: int = 1
    is_recovery: bool = False


OUTSIDE = Execution(0, "", "")
"""Where an effect comes from that no node of a harness asked for."""

current: ContextVar[Execution] = ContextVar("outcrop-execution", default=OUTSIDE)
"""The execution that the current task or thread belongs to."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One request: effect `name` under `key` (None: without one), applied unless the key was known."""

    name: str
    key: str | None
    detail: Json
    applied: bool
    execution: Execution


class Effects:
    """Records effects; nodes, or the fakes that they call, tell it of each.

    @graph.node
    async def charge(order: Order, ctx: NodeContext) -> None:
        effects.record(ctx.idempotency_key, "charge", order.amount)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Effect] = []
        self._known: set[tuple[str, str]] = set()

    def record(self, key: str | None, name: str, detail: Json = None) -> bool:
        """Ask for an effect; True when it is applied, False when `key` had it applied before.

        One without a key is applied every time.
        """
        failpoint("effect.before")
        with self._lock:
            applied = key is None or (name, key) not in self._known
            if key is not None:
                self._known.add((name, key))
            self._requests.append(Effect(name, key, detail, applied, current.get()))
        failpoint("effect.after")
        return applied

    @property
    def requests(self) -> tuple[Effect, ...]:
        """Everything asked for, in order."""
        with self._lock:
            return tuple(self._requests)

    @property
    def applied(self) -> tuple[Effect, ...]:
        """What was applied, in order."""
        return tuple(effect for effect in self.requests if effect.applied)

    def count(self, name: str) -> int:
        """How often an effect was applied."""
        return sum(effect.name == name for effect in self.applied)

    def clear(self) -> None:
        """Forget everything, as for a new run."""
        with self._lock:
            self._requests.clear()
            self._known.clear()
