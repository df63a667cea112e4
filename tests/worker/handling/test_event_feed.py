"""The events topic's feed: everything in order while there is room, and never in anybody's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, get_args

import pytest

from outcrop.engine import CheckpointPolicy, Graph, NodeContext
from outcrop.engine.events import EventKind, NodeStarted, RunEvent
from outcrop.topics.events import EventType, decode_event
from outcrop.topics.messages import OutcomeStatus
from outcrop.worker.errors import PublishFailed, Undelivered
from outcrop.worker.event_feed import TYPES, EventFeed
from outcrop.worker.metrics import Metrics
from outcrop.worker.watch import Watch
from support.handling import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.topics.events import Event
    from outcrop.worker.ports import Record


class Broker:
    """An outbox in memory: it can stall, and refuse."""

    def __init__(self) -> None:
        self.published: list[Event] = []
        self.open = asyncio.Event()
        self.open.set()
        self.told_the_end = asyncio.Event()
        self.refuses = False

    async def publish(self, records: Sequence[Record]) -> None:
        await self.open.wait()
        if self.refuses:
            raise PublishFailed([Undelivered(record, "no", permanent=False) for record in records])
        for record in records:
            event = decode_event(record.value)
            assert (record.topic, record.key) == ("threads.events", event.thread_id.encode())
            self.published.append(event)
            if event.type == EventType.RUN_COMPLETED:
                self.told_the_end.set()

    async def close(self) -> None: ...


class Watched:
    """A world whose worker publishes what happens."""

    def __init__(self, *, tokens: bool = True, **options: Any) -> None:
        self.world = World()
        self.broker = Broker()
        self.metrics = Metrics()
        self.feed = EventFeed(
            self.broker, "threads.events", clock=self.world.clock, metrics=self.metrics, **options
        )
        self.watch = Watch(self.feed, tokens=tokens)

    def event(self, number: int) -> RunEvent:
        now = self.world.clock.now()
        return RunEvent(thread_id="t", run_id="r", sequence=number, timestamp=now, kind=NodeStarted())

    def left_out(self, reason: str) -> float:
        return self.metrics.value("outcrop_events_left_out_total", reason=reason)

    def tokens(self, thread: str = "t") -> list[tuple[int, object]]:
        return [
            (event.sequence, event.data["content"])
            for event in self.broker.published
            if event.type == EventType.TOKEN and event.thread_id == thread
        ]


def streaming(tokens: int) -> CompiledGraph[dict[str, Any]]:
    """A graph of one node that says so many tokens."""
    graph = Graph(dict[str, Any], id="talk", version="1")

    @graph.node(streams=True)
    async def talk(state: dict[str, Any], ctx: NodeContext) -> None:
        assert ctx.stream is not None
        for number in range(tokens):
            await ctx.stream.emit(str(number))
        state["said"] = tokens

    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


def test_every_kind_of_event_has_a_type() -> None:
    assert TYPES.keys() == set(get_args(EventKind))
    assert {*TYPES.values(), EventType.TOKEN} == set(EventType)


async def test_a_run_tells_all_that_happens_in_order() -> None:
    watched = Watched()
    process = watched.world.process(watch=watched.watch)
    await process.outcome(watched.world.send(watched.world.run("approval", metadata={"tenant": "a"})))
    await watched.broker.told_the_end.wait()  # observers are on threads of their own
    events = watched.broker.published
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert len({event.run_id for event in events}) == 1
    assert events[0].type == EventType.RUN_STARTED
    assert events[0].data["metadata"] == {"tenant": "a"}
    done = next(event for event in events if event.type == EventType.NODE_COMPLETED)
    assert (done.node, done.data["result"], done.data["following"]) == ("a", "Committed", "gate")
    saved = next(event for event in events if event.type == EventType.CHECKPOINT_SAVED)
    assert saved.data["status"] == "running"
    assert [event.data for event in events][-1]["outcome"] == "Interrupted"


async def test_tokens_go_out_where_they_are_asked_for() -> None:
    for tokens, expected in ((True, [(1, "0"), (2, "1"), (3, "2")]), (False, [])):
        watched = Watched(tokens=tokens)
        process = watched.world.process("w0", streaming(3), watch=watched.watch)
        done = await process.outcome(watched.world.send(watched.world.run("talk")))
        await watched.feed.close()
        assert done.state == {"amount": 5, "said": 3}
        assert watched.tokens() == expected


async def test_a_streaming_graph_runs_in_a_worker_that_nobody_follows() -> None:
    world = World()
    done = await world.process("w0", streaming(5000)).outcome(world.send(world.run("talk")))
    assert done.status is OutcomeStatus.COMPLETED


async def test_a_stalled_broker_slows_no_run_and_what_is_left_out_is_counted() -> None:
    """No event is published out of order, and numbers show the gaps."""
    watched = Watched(capacity=20_000)
    watched.broker.open.clear()
    process = watched.world.process("w0", streaming(500), watch=watched.watch)
    done = await process.outcome(watched.world.send(watched.world.run("talk")))
    assert done.status is OutcomeStatus.COMPLETED
    watched.broker.open.set()
    await watched.feed.close()
    numbers = [number for number, _ in watched.tokens()]
    assert numbers == sorted(set(numbers))
    assert all(number == int(str(content)) + 1 for number, content in watched.tokens())
    assert 0 < len(watched.broker.published) < 500
    published = watched.metrics.value("outcrop_events_published_total")
    assert published == len(watched.broker.published)
    assert watched.left_out("full") > 0


async def test_what_is_not_delivered_is_not_sent_again() -> None:
    watched = Watched()
    watched.broker.refuses = True
    watched.feed.observe(watched.event(1))
    await watched.world.settle()
    assert watched.left_out("undelivered") == 1
    watched.broker.refuses = False
    watched.feed.observe(watched.event(2))
    await watched.feed.close()
    assert [event.sequence for event in watched.broker.published] == [2]


async def test_a_closed_feed_takes_nothing_and_says_so() -> None:
    watched = Watched()
    watched.feed.observe(watched.event(1))
    await watched.feed.close()
    await asyncio.to_thread(watched.feed.observe, watched.event(2))
    assert [event.sequence for event in watched.broker.published] == [1]
    assert watched.left_out("closing") == 1


async def test_events_of_many_threads_at_once_are_all_published() -> None:
    """Observers call from threads of their own."""
    watched = Watched()

    def observe(first: int) -> None:
        for number in range(first, 4000, 8):
            watched.feed.observe(watched.event(number + 1))

    await asyncio.gather(*(asyncio.to_thread(observe, first) for first in range(8)))
    await watched.feed.close()
    assert {event.sequence for event in watched.broker.published} == set(range(1, 4001))


@pytest.mark.parametrize("token", ["\ud800", object()])
async def test_a_token_that_no_json_holds_is_counted_and_no_concern_of_the_run(token: str) -> None:
    watched = Watched(tokens=True)
    graph = Graph(dict[str, Any], id="talk", version="1")
    calls = []

    @graph.node(streams=True)
    async def talk(state: dict[str, Any], ctx: NodeContext) -> None:
        assert ctx.stream is not None
        calls.append(state)
        for each in ("a", token, "b"):
            await ctx.stream.emit(each)

    served = graph.compile(checkpoints=CheckpointPolicy.BOUNDARIES)
    process = watched.world.process("w0", served, watch=watched.watch)
    done = await process.outcome(watched.world.send(watched.world.run("talk")))
    await watched.feed.close()
    assert (done.status, len(calls)) == (OutcomeStatus.COMPLETED, 1)
    assert watched.tokens() == [(1, "a"), (3, "b")]
    assert watched.left_out("unfit") == 1


async def test_what_is_on_its_way_when_a_feed_is_closed_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker stalls for longer than closing waits."""
    monkeypatch.setattr("outcrop.worker.event_feed._CLOSING", 0.0)
    watched = Watched()
    watched.broker.open.clear()
    watched.feed.observe(watched.event(1))
    await watched.world.settle()
    watched.feed.observe(watched.event(2))
    await watched.feed.close()
    assert watched.broker.published == []
    assert watched.left_out("closing") == 2
