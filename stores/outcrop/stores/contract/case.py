"""What a contract case is, and what a store's author brings to run it.

Knows no store and no test framework: a case is a coroutine over a fresh store that fails
by `assert`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from outcrop.stores.port import Store


class Binding(Protocol):
    """One kind of store, as the suite uses it."""

    def open(self) -> AbstractAsyncContextManager[Store]:
        """A store with nothing in it, closed at the end."""
        ...

    async def pass_time(self, duration: timedelta, /) -> None:
        """Let at least `duration` pass on the clock of the store's leases: move it, or sleep."""
        ...


PassTime: TypeAlias = "Callable[[timedelta], Coroutine[None, None, None]]"
Body: TypeAlias = "Callable[[Store], Coroutine[None, None, None]]"
TimedBody: TypeAlias = "Callable[[Store, PassTime], Coroutine[None, None, None]]"


@dataclass(frozen=True, slots=True)
class Case:
    """One behaviour that every store has; `name` is stable."""

    name: str
    body: TimedBody

    def run(self, binding: Binding) -> None:
        """Check the behaviour on an event loop of its own; raises `AssertionError`."""

        async def check() -> None:
            async with binding.open() as store:
                await self.body(store, binding.pass_time)

        asyncio.run(check())


class Capability:
    """The cases of one file; its methods are the port's promises."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.cases: list[Case] = []

    def case(self, body: Body) -> Body:
        """Add a case, named after its function."""
        self.cases.append(Case(f"{self._name}.{body.__name__}", lambda store, _: body(store)))
        return body

    def timed_case(self, body: TimedBody) -> TimedBody:
        """Add a case that lets time pass."""
        self.cases.append(Case(f"{self._name}.{body.__name__}", body))
        return body
