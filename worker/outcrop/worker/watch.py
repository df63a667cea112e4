"""Who follows a worker's runs: the events topic, or nobody.

A graph whose nodes stream runs here like any other: without a reader, what they stream is dropped.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from outcrop.engine.chunks import ChunkStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.engine.options import RunOptions

    from .event_feed import EventFeed


@dataclass(frozen=True, slots=True)
class Watch:
    """Where runs' events go, and whether what their nodes stream goes there too."""

    feed: EventFeed | None = None
    tokens: bool = False

    @asynccontextmanager
    async def of(
        self, graph: CompiledGraph[Any], thread_id: str, run: RunOptions
    ) -> AsyncGenerator[RunOptions]:
        """The options of a run of the graph with those who follow it; they never hold it up."""
        if self.feed is not None:
            run = replace(run, observer=self.feed.observe)
        if not graph.streaming:
            yield run
        elif self.feed is None or not self.tokens:
            yield replace(run, stream=ChunkStream(capacity=0, lossy=True))
        else:
            chunks = ChunkStream(lossy=True)
            relay = asyncio.create_task(self.feed.relay(thread_id, run.run_id or "", chunks))
            try:
                yield replace(run, stream=chunks)
            finally:
                chunks.close()
                await relay


UNWATCHED = Watch()
"""Nobody follows."""
