"""A TCP proxy in the test's own loop, to break the wire between a store and its server.

It knows no protocol: a request is a chunk that the client sent, its answer the server's next
chunk. Bytes that are held back are delivered late, even to a server whose client has gone.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class _Pair:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.flowing = asyncio.Event()
        self.mute = False

    def cut(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """Connections to one server; `proxied` opens one."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._refusing = False
        self._stalling = False
        self._drops: list[tuple[bool, bytes]] = []
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0
        self.accepted = 0
        self.dropped = 0

    def url(self, server: str) -> str:
        """The server's URL with this proxy's address in it."""
        parts = urlsplit(server)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    def cut(self) -> None:
        """Break every connection at once; new ones are served."""
        for pair in self._pairs:
            pair.cut()

    def refuse(self) -> None:
        """Break every connection, and hang up on new ones until `resume`."""
        self._refusing = True
        self.cut()

    def stall(self, *, new_ones: bool = True) -> None:
        """Hold back bytes, both ways, until `resume`; without `new_ones` only of connections open now."""
        self._stalling = new_ones
        for pair in self._pairs:
            pair.flowing.clear()

    def resume(self) -> None:
        """Let bytes, and new connections, through again."""
        self._refusing = self._stalling = False
        for pair in self._pairs:
            pair.flowing.set()

    def drop_answers(self, times: int = 1, *, containing: bytes = b"") -> None:
        """Let the next requests that contain these bytes through, and cut instead of answering them."""
        self._drops += [(True, containing)] * times

    def drop_requests(self, times: int = 1, *, containing: bytes = b"") -> None:
        """Cut the connection instead of passing on the next requests that contain these bytes."""
        self._drops += [(False, containing)] * times

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        self.accepted += 1
        try:
            if self._refusing:
                raise ConnectionRefusedError
            answers, server = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, server)
        if not self._stalling:
            pair.flowing.set()
        self._pairs.add(pair)
        pumps = [
            asyncio.create_task(self._requests(reader, pair)),
            asyncio.create_task(self._answers(answers, pair)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._pairs.discard(pair)
            pair.cut()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self.serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        self.resume()
        self.cut()
        await asyncio.gather(*self._serving)

    async def _requests(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await pair.flowing.wait()
                drop = next((drop for drop in self._drops if drop[1] in data), None)
                if drop is not None:
                    self._drops.remove(drop)
                    self.dropped += 1
                    if not drop[0]:
                        return
                    pair.mute = True
                pair.server.write(data)
                await pair.server.drain()

    async def _answers(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await pair.flowing.wait()
                if pair.mute:
                    return
                pair.client.write(data)
                await pair.client.drain()


@asynccontextmanager
async def proxied(server: str) -> AsyncGenerator[Proxy]:
    """A proxy before the server of a URL; connect to `proxy.url(server)`."""
    parts = urlsplit(server)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.close()
