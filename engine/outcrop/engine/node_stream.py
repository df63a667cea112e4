"""A node's end of a run's stream: what it emits goes out under its own path."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .chunks import Chunk, ChunkType
from .errors import Fatal

if TYPE_CHECKING:
    from .cancellation import CancelToken
    from .chunks import ChunkStream


@dataclass(frozen=True, slots=True)
class NodeStream:
    """What `ctx.stream` is in a streaming run. Raises `ChannelClosed` once the run is over."""

    chunks: ChunkStream
    path: str
    token: CancelToken
    loop: asyncio.AbstractEventLoop
    thread: int

    @classmethod
    def here(cls, chunks: ChunkStream, path: str, token: CancelToken) -> NodeStream:
        """That of a node of a run on this event loop."""
        return cls(chunks, path, token, asyncio.get_running_loop(), threading.get_ident())

    async def emit(self, content: str) -> None:
        """Send a token, waiting while the stream is full and the node may go on."""
        await self.chunks.put(Chunk(ChunkType.TOKEN, self.path, content), token=self.token)

    def send(self, content: str) -> None:
        """The same from a sync node, which runs on a thread of its own; raises `Fatal` on the loop's."""
        if threading.get_ident() == self.thread:
            raise Fatal(f"node '{self.path}' would wait for itself: on the event loop, use `await emit`")
        asyncio.run_coroutine_threadsafe(self.emit(content), self.loop).result()
