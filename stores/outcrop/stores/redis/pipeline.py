"""One connection that carries all calls: those that come while others are under way go together next.

The driver's pool, one command a connection at a time, spends most of its time in the event loop:
with 64 callers at once one connection filled like this makes three times the saves a second, and
with one caller it is faster too. The driver makes the connection (addresses, TLS, credentials)
and reads replies; what goes out is packed here, each command when it is called, so that a value
that can't be sent fails its own call alone.

Each reply goes to its own call. When the connection fails, every call on it fails as `Unavailable`, and
the connection is never used again, so a late reply can't be taken for another's. A caller that is
cancelled gives up its reply, not others': its command stays where it is, before those that come after.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from outcrop.stores.errors import InvalidRequest, StoreError, Unavailable

from .classify import broken_error, code_of, connect_error, is_moved, reply_error
from .patience import Patience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .scripts import Script

Reply: TypeAlias = Any
"""What a command answered; each caller knows its command's type."""
Argument: TypeAlias = "str | bytes | int"

_pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]  # its stub has no return type

_pool_of = cast("Callable[..., ConnectionPool]", ConnectionPool.from_url)  # pyright: ignore[reportUnknownMemberType]  # as above

_MOST_CALLS: Final = 256
_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    packed: bytes
    reply: asyncio.Future[Reply]
    replicated: bool


@dataclass(frozen=True, slots=True)
class Replication:
    """How many replicas must have a write before it is answered, and how long to wait for them."""

    replicas: int
    timeout: float  # seconds


class _Connection(Protocol):
    """What is used of the driver's connection."""

    async def send_packed_command(self, command: list[bytes], *, check_health: bool) -> None: ...

    async def read_response(self) -> Reply: ...

    async def disconnect(self, *, nowait: bool) -> None: ...

    async def on_connect(self) -> None: ...


class Pipeline:
    """The connection of one event loop; made when first used, and again after each failure."""

    def __init__(self, url: str, replication: Replication | None = None, *, read_only: bool = False) -> None:
        """Raise `InvalidRequest` for a URL that the driver can't read."""
        self._replication = replication
        self._read_only = read_only
        self._number: int | None = None  # of the connection, on the server
        self._given_up: list[int] = []
        self.is_all_known = True
        """Whether whatever a connection that was given up had sent is done by now, or never will be."""
        try:
            pool = _pool_of(url, protocol=2)
        except (ValueError, TypeError):
            # The driver's words may repeat the URL.
            raise InvalidRequest("the Redis store's URL can't be read: use redis://HOST:PORT/DB") from None
        settings = pool.connection_kwargs
        self._timeout: float = settings.pop("socket_timeout", None) or _TIMEOUT
        self._connect_timeout: float = settings.pop("socket_connect_timeout", None) or _TIMEOUT
        # Times are kept here, a pipeline at a time; repeating is the store's to decide.
        settings.update(
            socket_timeout=None,
            socket_connect_timeout=self._connect_timeout,
            decode_responses=False,
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            retry_on_error=[],
            redis_connect_func=self._introduce,
        )
        try:
            self._connection: _Connection = pool.make_connection()  # type: ignore[no-untyped-call]  # the driver's
        except (TypeError, ValueError, RedisError):  # which may quote the URL
            raise InvalidRequest("redis-py can't use an option of the Redis store's URL") from None
        # It connects, and finds out that the server hung up while nothing was sent.
        self._ensure_connected = cast("Callable[[_Connection], Awaitable[None]]", pool.ensure_connection)
        self._waiting: list[_Call] = []
        self._patience = Patience()
        self._sender: asyncio.Task[None] | None = None
        self._moved = False
        self._closed = False

    async def call(self, *command: Argument) -> Reply:
        """The command's reply; raises `StoreError`, `InDoubt` among them when it may have been done."""
        return await self._submit(command)

    async def run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Reply:
        """The script's reply; raises as `call`."""
        return await self._run(script, keys, arguments)

    async def call_replicated(self, *command: Argument) -> tuple[Reply, int]:
        """The command's reply, and how many replicas have what it wrote; raises as `call`."""
        answer: tuple[Reply, int] = await self._submit(command, replicated=True)
        return answer

    async def run_replicated(
        self, script: Script, keys: Sequence[str], *arguments: Argument
    ) -> tuple[Reply, int]:
        """The script's reply, and how many replicas have what it wrote; raises as `call`."""
        answer: tuple[Reply, int] = await self._run(script, keys, arguments, replicated=True)
        return answer

    def check_writable(self) -> None:
        """Raise `StoreError` on a connection for reading only."""
        if self._read_only:
            raise StoreError("the Redis store is open for reading only")

    async def close(self) -> None:
        """Disconnect after the calls before; idempotent."""
        if self._sender is not None:
            with suppress(StoreError):
                await self._submit(("PING",))
        self._closed = True
        if self._sender is not None:
            await asyncio.wait({self._sender})
        self._patience.close()
        await self._disconnect()

    async def _run(
        self,
        script: Script,
        keys: Sequence[str],
        arguments: tuple[Argument, ...],
        *,
        replicated: bool = False,
    ) -> Reply:
        if script.writes:
            self.check_writable()
        rest = (len(keys), *keys, *arguments)
        try:
            return await self._submit(("EVALSHA", script.sha, *rest), replicated=replicated)
        except _UnknownScript:  # the server restarted, or its scripts were flushed; it did nothing
            return await self._submit(("EVAL", script.text, *rest), replicated=replicated)

    async def _submit(self, command: tuple[Argument, ...], *, replicated: bool = False) -> Reply:
        if self._closed:
            raise StoreError("the Redis store is closed")
        try:
            packed = _pack(command)
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"a thread's ID or owner isn't valid Unicode: {error.reason}") from None
        call = _Call(packed, asyncio.get_running_loop().create_future(), replicated)
        self._waiting.append(call)
        if self._sender is None:
            # A task, since a caller who gives up mustn't break off what the next one's row would overtake.
            self._sender = asyncio.get_running_loop().create_task(self._send())
        return await call.reply

    async def _send(self) -> None:
        try:
            while self._waiting:
                await self._exchange(self._next())
        except BaseException:  # the loop's end: those that wait would wait for ever
            waiting, self._waiting = self._waiting, []
            _fail(waiting, lambda: Unavailable("the call wasn't sent: the Redis store's event loop ends"))
            raise
        finally:
            self._sender = None

    def _next(self) -> list[_Call]:
        calls, self._waiting = self._waiting[:_MOST_CALLS], self._waiting[_MOST_CALLS:]
        return calls

    async def _exchange(self, calls: Sequence[_Call]) -> None:
        wait = self._replication if any(call.replicated for call in calls) else None
        packed = [call.packed for call in calls]
        if wait is not None:  # one for all: it covers whatever this connection wrote before
            packed.append(_pack(("WAIT", wait.replicas, int(wait.timeout * 1000))))
        sent = False
        try:
            with self._patience.within(self._timeout + (0 if wait is None else wait.timeout)):
                await self._ensure_connected(self._connection)
                sent = True
                await self._connection.send_packed_command(packed, check_health=False)
                await self._receive(calls, waits=wait is not None)
        except BaseException as error:  # a fault of the driver, the loop's end: nobody waits for ever
            if sent and self._number is not None:
                self._given_up.append(self._number)
            await self._disconnect()
            _fail(calls, partial(broken_error if sent else connect_error, error))
            if not isinstance(error, Exception):
                raise
        if self._moved:
            await self._disconnect()

    async def _introduce(self, connection: _Connection) -> None:
        """Begin a connection: learn its number, and end on the server those that were given up.

        What they sent may be held back on the way, and would be done when it comes, after it
        was looked for and sent again.
        """
        await connection.on_connect()
        self._number = None
        commands = [("CLIENT", "ID"), *(("CLIENT", "KILL", "ID", number) for number in self._given_up)]
        await connection.send_packed_command(list(map(_pack, commands)), check_health=False)
        refusals = 0
        for command in commands:
            try:
                answer: Reply = await connection.read_response()
            except ResponseError:  # a user without the right to
                refusals += 1
            else:
                self._number = answer if command == ("CLIENT", "ID") else self._number
        self._given_up.clear()
        self.is_all_known = self.is_all_known and not refusals

    async def _receive(self, calls: Sequence[_Call], *, waits: bool) -> None:
        unconfirmed: list[tuple[_Call, Reply]] = []
        for call in calls:
            reply = await self._read(call)
            self._patience.renew()  # answers come: only silence is a failure
            if isinstance(reply, RedisError):
                self._refuse(call, reply)
            elif call.replicated:
                unconfirmed.append((call, reply))
            else:
                _answer(call, reply)
        acknowledgements: Reply = await self._connection.read_response() if waits else 0
        for call, reply in unconfirmed:
            _answer(call, (reply, acknowledgements))

    async def _read(self, call: _Call) -> Reply:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return error
        except (AuthenticationError, BusyLoadingError) as error:  # a reply; the driver hangs up
            self._refuse(call, error)
            raise

    def _refuse(self, call: _Call, error: RedisError) -> None:
        self._moved = self._moved or is_moved(error)
        unknown = code_of(error) == "NOSCRIPT"
        _fail((call,), lambda: _UnknownScript() if unknown else reply_error(error))

    async def _disconnect(self) -> None:
        with suppress(RedisError, OSError):  # it is gone either way
            await self._connection.disconnect(nowait=True)
        self._moved = False


class _UnknownScript(StoreError):
    """The server doesn't know the script's hash."""


def _answer(call: _Call, reply: Reply) -> None:
    if not call.reply.done():  # its caller may be gone
        call.reply.set_result(reply)


def _fail(calls: Sequence[_Call], failure: Callable[[], StoreError]) -> None:
    for call in calls:
        if not call.reply.done():
            call.reply.set_exception(failure())
