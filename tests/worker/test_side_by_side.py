"""Threads of one partition beside each other on a real broker, and what reaches a run in flight.

Where the issue speaks of a thread of 30 s, the slow node here is held open until the fast threads
are done: nothing is slower than that, and the test waits for no clock.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import CheckpointPolicy, Graph, NodeContext
from outcrop.topics.client import ThreadsClient
from outcrop.topics.messages import CommandType, OutcomeStatus
from outcrop.worker.app import serve
from outcrop.worker.drain import Drain, ExitCode
from support.kafka import Deployment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

FAST = 100


@dataclass
class Held:
    """A graph whose first node stays in flight where the state says so, until `let_go` is set."""

    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    finished: list[str] = field(default_factory=list[str])

    def graph(self) -> Graph[dict[str, Any]]:
        graph: Graph[dict[str, Any]] = Graph(dict, id="held")

        @graph.node
        async def hold(state: dict[str, Any], ctx: NodeContext) -> None:
            self.started(ctx.thread_id).set()
            if state["held"]:
                await self.let_go.wait()

        @graph.node
        async def finish(state: dict[str, Any], ctx: NodeContext) -> None:
            self.finished.append(ctx.thread_id)
            state["finished"] = True

        graph.edge("hold", "finish")
        return graph

    def started(self, thread: str) -> asyncio.Event:
        """Set once the thread's slow node runs."""
        return self.in_flight.setdefault(thread, asyncio.Event())


@asynccontextmanager
async def serving(bootstrap: str, held: Held) -> AsyncIterator[ThreadsClient]:
    """A worker of one partition, and a client of it."""
    here = Deployment(bootstrap, partitions=1).create()
    settings, drain = here.settings(), Drain()
    graph = held.graph().compile(checkpoints=CheckpointPolicy.EVERY_NODE)
    worker = asyncio.create_task(serve(settings, [graph], drain=drain))
    try:
        async with asyncio.timeout(90), ThreadsClient(bootstrap, topics=settings.topics) as client:
            yield client
    finally:
        held.let_go.set()
        drain.ask()
        assert await worker == ExitCode.CLEAN


async def test_a_slow_thread_holds_none_of_a_hundred_fast_ones_up(kafka_bootstrap: str) -> None:
    held = Held()
    async with serving(kafka_bootstrap, held) as client:
        slow = await client.run("slow", graph="held", state={"held": True})
        await held.started("slow").wait()
        fast = [await client.run(f"fast-{n}", graph="held", state={"held": False}) for n in range(FAST)]
        outcomes = await asyncio.gather(*(handle.outcome() for handle in fast))
        assert {outcome.status for outcome in outcomes} == {OutcomeStatus.COMPLETED}
        assert "slow" not in held.finished
        held.let_go.set()
        assert (await slow.outcome()).status is OutcomeStatus.COMPLETED
        assert held.finished[-1] == "slow"


async def test_a_cancel_reaches_a_run_in_flight(kafka_bootstrap: str) -> None:
    held = Held()
    async with serving(kafka_bootstrap, held) as client:
        run = await client.run("t", graph="held", state={"held": True})
        await held.started("t").wait()
        cancel = await client.cancel("t", by="ann")
        cancelled, answer = await run.outcome(), await cancel.outcome()
    assert cancelled.status is answer.status is OutcomeStatus.CANCELLED
    assert (cancelled.command_type, answer.command_type) == (CommandType.RUN, CommandType.CANCEL)
    assert (cancelled.command_id, answer.command_id) == (run.command_id, cancel.command_id)
    assert cancelled.sequence == answer.sequence
    assert cancelled.reason == answer.reason == "requested"
    assert held.finished == []


async def test_an_end_reaches_a_run_in_flight(kafka_bootstrap: str) -> None:
    held = Held()
    async with serving(kafka_bootstrap, held) as client:
        run = await client.run("t", graph="held", state={"held": True})
        await held.started("t").wait()
        end = await client.end("t", by="ann")
        cancelled, ended = await run.outcome(), await end.outcome()
        later = await (await client.resume("t")).outcome()
    assert cancelled.status is OutcomeStatus.CANCELLED
    assert (ended.status, ended.command_type) == (OutcomeStatus.ENDED, CommandType.END)
    assert ended.sequence == (cancelled.sequence or 0) + 1
    assert (later.status, later.reason) == (OutcomeStatus.REFUSED, "finished")
    assert held.finished == []


async def test_a_cancel_reaches_what_is_queued_behind_a_run_in_flight(kafka_bootstrap: str) -> None:
    """Of a run and a resume behind it, the cancel stops both; the resume before its first node."""
    held = Held()
    async with serving(kafka_bootstrap, held) as client:
        run = await client.run("t", graph="held", state={"held": True})
        await held.started("t").wait()
        resume, cancel = await client.resume("t"), await client.cancel("t")
        outcomes = [await handle.outcome() for handle in (run, resume, cancel)]
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.CANCELLED] * 3
    assert held.finished == []
