"""A node's end of a run's stream: what it emits goes out under its own path."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .chunks import Chunk, ChunkType

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

    async def emit(self, content: str) -> None:
        """Send a token, waiting while the stream is full and the node may go on."""
        await self.chunks.put(Chunk(ChunkType.TOKEN, self.path, content), token=self.token)

    def send(self, content: str) -> None:
        """The same from a sync node, which runs on a thread of its own."""
        asyncio.run_coroutine_threadsafe(self.emit(content), self.loop).result()
