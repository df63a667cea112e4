"""A pool of connections to one database: one call, one borrowed connection.

Knows no table. A call runs to its end even when its caller is cancelled. A connection that
failed in the middle of a call is thrown away, never handed on: nobody knows where its
protocol stands. Belongs to the event loop that it was opened on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from outcrop.stores.calls import Calls
from outcrop.stores.errors import InvalidRequest, StoreError
from outcrop.stores.options import DEFAULT_RETRIES
from outcrop.stores.retries import InDoubt, Retries

from .classify import call_error, connect_error
from .session import Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from outcrop.stores.options import RetryOptions

T = TypeVar("T")

_CLOSED: Final = "the Postgres store is closed"

ANSWER_TIMEOUT: Final = timedelta(seconds=10)
"""How long an answer may take; a server that stalls is as bad as one that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a database is reached; `url` has secrets, and so shows up in no text."""

    url: str
    prepared: bool = True
    pool_size: int = 16
    read_only: bool = False
    retries: RetryOptions = DEFAULT_RETRIES
    answer_timeout: timedelta = ANSWER_TIMEOUT

    def __post_init__(self) -> None:
        if self.pool_size < 1:
            raise InvalidRequest("a Postgres store's pool size must be at least 1")

    def __repr__(self) -> str:
        return "Access(...)"


class Database:
    """Connections to one database, opened as they are needed and kept for the next call."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.retries = Retries(options=access.retries)
        self._places = asyncio.Semaphore(access.pool_size)
        self._idle: list[Session] = []
        self._calls = Calls()
        self._closed = False

    def alone(self) -> Database:
        """Another one for the same database with a single connection, for a loop of its own."""
        return Database(replace(self.access, pool_size=1))

    async def whole(self, call: Coroutine[None, None, T]) -> T:
        """Run a call to its end, whether or not its caller waits for it."""
        if self._closed:
            call.close()
            raise StoreError(_CLOSED)
        return await self._calls.whole(call)

    async def run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do a call that may be done twice, again while it meets passing failures; raises `StoreError`."""
        return await self.whole(self.retries.run(lambda: self.once(work)))

    async def run_patiently(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """The same for a call that may take however long it takes."""
        return await self.whole(self.retries.run(lambda: self.once(work, patient=True)))

    async def run_at_most_once(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """The same for a call that mustn't be done twice: not again once it is in doubt."""
        return await self.whole(self.retries.run_at_most_once(lambda: self.once(work)))

    async def once(self, work: Callable[[Session], Awaitable[T]], *, patient: bool = False) -> T:
        """Do a call on one connection, once; a `patient` one may take its time.

        Raises `StoreError`: `InDoubt` when it may have happened, any other when it hasn't.
        """
        async with self._places:
            session = await self._borrowed()
            session.patient = patient
            try:
                if self.access.read_only:
                    async with session.snapshot():
                        result = await work(session)
                else:
                    result = await work(session)
            except Exception as error:
                told = call_error(error, backend=session.backend, closed=session.is_closed)
                self._after_failure(session, told)
                if told is error:
                    raise
                raise told from None  # the driver's own error quotes values, and a traceback shows causes
            except BaseException:
                session.terminate()
                raise
            self._idle.append(session)
            return result

    def check_writable(self) -> None:
        """Raise `StoreError` in a store that was closed, or opened to read."""
        if self._closed:
            raise StoreError(_CLOSED)
        if self.access.read_only:
            raise StoreError("the Postgres store is open for reading only")

    async def close(self) -> None:
        """Disconnect after the calls before it; idempotent."""
        self._closed = True
        await self._calls.close()
        idle, self._idle = self._idle, []
        for session in idle:
            with suppress(Exception):  # it is gone either way
                await session.close()

    async def _borrowed(self) -> Session:
        while self._idle:
            session = self._idle.pop()
            if not session.is_closed:
                return session
        try:
            return await Session.connect(
                self.access.url, prepared=self.access.prepared, answer_timeout=self.access.answer_timeout
            )
        except Exception as error:  # noqa: BLE001 - `connect_error` names every kind
            raise connect_error(error) from None  # a cause may quote the URL

    def _after_failure(self, session: Session, told: StoreError) -> None:
        if session.is_idle and not isinstance(told, InDoubt):
            self._idle.append(session)
            return
        session.terminate()
        if isinstance(told, InDoubt):
            # What broke this one has likely broken those that lie idle; each would cost an attempt.
            idle, self._idle = self._idle, []
            for other in idle:
                other.terminate()
