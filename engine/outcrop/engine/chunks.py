"""Chunks: what a streaming run says while it runs, to one watcher.

Owns the channel between a run and its watcher: bounded, in order, closed when the run ends.
A full channel makes the producer wait, or with `lossy` drops what is new and counts it; it
never reorders. Belongs to one event loop and one run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .errors import ChannelClosed

if TYPE_CHECKING:
    from .cancellation import CancelToken

CAPACITY = 1024


class ChunkType(StrEnum):
    """What a chunk is."""

    TOKEN = "Token"  # noqa: S105 - no password
    NODE_START = "NodeStart"
    NODE_END = "NodeEnd"
    ERROR = "Error"
    RETRY = "Retry"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece: `node_name` is the node's path, `content` a token, the node's own name, or a message."""

    type: ChunkType
    node_name: str
    content: str


class ChunkStream:
    """Give it to a run as `RunOptions.stream`, and iterate over it meanwhile.

        chunks = ChunkStream()
        run = asyncio.create_task(threads.run("t", state, RunOptions(stream=chunks)))
        async for chunk in chunks: ...
        result = await run

    Holds `capacity` chunks. When it is full, the run waits for the watcher, unless it is
    `lossy`: then new chunks are dropped and counted in `dropped`, and no run ever waits.
    A watcher that stops reading before the end must `leave`.
    """

    def __init__(self, *, capacity: int = CAPACITY, lossy: bool = False) -> None:
        self._capacity = capacity
        self._lossy = lossy
        self._chunks: deque[Chunk] = deque()
        self._closed = False
        self._changed: set[asyncio.Future[None]] = set()
        self.dropped = 0

    @property
    def closed(self) -> bool:
        """Whether the run has ended; what it said can still be read."""
        return self._closed

    async def put(self, chunk: Chunk, *, token: CancelToken | None = None) -> bool:
        """Add a chunk, waiting while the stream is full; False when `token` fired meanwhile.

        Raises `ChannelClosed` after the end of the run.
        """
        while True:
            if self._closed:
                raise ChannelClosed(f"the stream is closed, and takes no more from '{chunk.node_name}'")
            if len(self._chunks) < self._capacity:
                self._chunks.append(chunk)
                self._tell()
                return True
            if self._lossy:
                self.dropped += 1
                return True
            if token is not None and token.fired:
                return False
            await self._change(token)

    def leave(self) -> None:
        """The reader goes: what comes from now on is dropped and counted, and no run waits for it."""
        self._chunks.clear()
        self._capacity, self._lossy = 0, True
        self._tell()

    def close(self) -> None:
        """No more chunks follow; idempotent."""
        self._closed = True
        self._tell()

    def __aiter__(self) -> ChunkStream:
        return self

    async def __anext__(self) -> Chunk:
        while not self._chunks:
            if self._closed:
                raise StopAsyncIteration
            await self._change(None)
        chunk = self._chunks.popleft()
        self._tell()
        return chunk

    async def _change(self, token: CancelToken | None) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.add(done)
        withdraw = None if token is None else token.on_fire(lambda: _settle(done))
        try:
            await done
        finally:
            self._changed.discard(done)
            if withdraw is not None:
                withdraw()

    def _tell(self) -> None:
        for waiting in self._changed:
            _settle(waiting)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
