"""The consumer and the outbox on the embedded broker."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import pytest

from outcrop.engine import CheckpointPolicy, Graph
from outcrop.stores.errors import StoreError
from outcrop.stores.url import open_store
from outcrop.topics.client import ThreadsClient
from outcrop.topics.embedded import EmbeddedBroker
from outcrop.topics.errors import BrokerUnreachable
from outcrop.topics.messages import OutcomeStatus
from outcrop.worker.app import serve
from outcrop.worker.cluster import Cluster
from outcrop.worker.drain import Drain, ExitCode
from outcrop.worker.errors import CommitRefused, OffsetLost, PublishFailed, TopicsMissing
from outcrop.worker.polling import Poller
from outcrop.worker.ports import Partition, Position, Record
from outcrop.worker.settings import load_settings
from support.kafka import Deployment, Recorder
from support.rows import checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outcrop.engine.compiled import CompiledGraph


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker() as embedded:
        yield embedded.bootstrap


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A served worker takes over the project's logger; give it back."""
    logger = logging.getLogger("outcrop")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def here(broker: str) -> Deployment:
    return Deployment(broker, embedded=True)


async def test_messages_come_in_offset_order_of_their_partition(here: Deployment) -> None:
    await here.send(200)
    async with here.member() as (log, heard):
        await heard.until(lambda: len(heard.messages) == 200)
        assert log.member
        for number in range(4):
            offsets = [m.offset for m in heard.messages if m.partition.number == number]
            assert offsets == list(range(len(offsets)))


async def test_the_metadata_string_comes_back(here: Deployment) -> None:
    await here.send(40)
    async with here.member() as (log, heard):
        await heard.until(lambda: len(heard.messages) == 40)
        chosen = heard.messages[0].partition
        await log.commit({chosen: Position(2, "1.AQI")})
    async with here.member() as (_, second):
        await second.until(lambda: chosen in second.owned)
        assert second.owned[chosen] == Position(2, "1.AQI")
        await second.until(lambda: any(m.partition == chosen for m in second.messages))
        assert min(m.offset for m in second.messages if m.partition == chosen) == 2


async def test_what_a_revocation_answers_is_committed_before_the_partitions_go(here: Deployment) -> None:
    await here.send(40)
    heard = Recorder()
    async with here.member(heard):
        await heard.until(lambda: len(heard.messages) == 40)
        heard.finals = {partition: Position(1, "1.AQE") for partition in heard.owned}
    assert heard.owned == {}
    async with here.member() as (_, second):
        await second.until(lambda: len(second.owned) == 4)
        assert set(second.owned.values()) == {Position(1, "1.AQE")}


async def test_a_new_group_starts_at_the_beginning(here: Deployment) -> None:
    await here.send(8)
    async with here.member() as (_, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        assert set(heard.owned.values()) == {Position(0)}


async def test_a_paused_partition_is_not_fetched_until_resumed(here: Deployment) -> None:
    async with here.member() as (log, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        held, others = Partition(here.commands, 0), {Partition(here.commands, n) for n in (1, 2, 3)}
        log.pause({held, Partition(here.commands, 99)})
        await log.commit({held: Position(0)})  # requests are served in order: the pause is done
        await here.send(100)
        await heard.until(lambda: {m.partition for m in heard.messages} == others)
        await log.commit({held: Position(0)})
        assert held not in {m.partition for m in heard.messages}
        log.resume({held})
        await heard.until(lambda: len(heard.messages) == 100)


async def test_a_loop_that_is_blocked_costs_no_membership_and_no_message(here: Deployment) -> None:
    """The poll thread polls on, and holds back once the loop takes nothing."""
    async with here.member() as (log, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        await here.send(6000)
        time.sleep(2)  # noqa: ASYNC251 - a node that blocks the loop is what this is about
        await heard.until(lambda: len(heard.messages) == 6000)
        assert log.member
        assert heard.lost == []
        assert len({(m.partition, m.offset) for m in heard.messages}) == 6000


async def test_a_commit_of_what_is_not_owned_is_refused(here: Deployment) -> None:
    await here.send(4)
    async with here.member() as (log, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        with pytest.raises(CommitRefused):
            await log.commit({Partition(here.commands, 7): Position(1)})
    with pytest.raises(CommitRefused):
        async with asyncio.timeout(10):
            await log.commit({Partition(here.commands, 0): Position(1)})


async def test_two_members_share_and_the_first_hands_over(here: Deployment) -> None:
    await here.send(40)
    async with here.member() as (_, first):
        await first.until(lambda: len(first.messages) == 40)
        first.finals = {partition: Position(3, "1.AQE") for partition in first.owned}
        first.handover = asyncio.Event()
        async with here.member() as (_, second):
            await first.until(lambda: bool(first.revoked))
            assert second.owned == {}
            first.handover.set()
            await second.until(lambda: bool(second.owned))
            assert set(second.owned.values()) == {Position(3, "1.AQE")}
            await first.until(lambda: len(first.owned) == 4 - len(second.owned))


async def test_a_record_too_large_is_undeliverable_for_good(here: Deployment) -> None:
    async with here.outbox() as outbox:
        small, large = Record(here.commands, b"k", b"v"), Record(here.commands, b"k", b"v" * 2_000_000)
        with pytest.raises(PublishFailed) as caught:
            await outbox.publish([small, large])
        (failure,) = caught.value.undelivered
        assert (failure.record, failure.permanent) == (large, True)


async def test_a_topic_that_no_client_can_name_is_undeliverable_for_good(here: Deployment) -> None:
    """A null character in a `reply_to` must not end the worker."""
    async with here.outbox() as outbox:
        nowhere = Record("a\x00b", b"k", b"v")
        with pytest.raises(PublishFailed) as caught:
            await outbox.publish([nowhere, Record(here.commands, b"k", b"v")])
        assert [(one.record, one.permanent) for one in caught.value.undelivered] == [(nowhere, True)]


async def test_a_broker_that_does_not_answer_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outcrop.worker.cluster._TIMEOUT", 0.5)
    cluster = Cluster(load_settings({"bootstrap": "127.0.0.1:1"}, environment={}))
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        await cluster.check(["threads.commands"])


async def test_topics_of_the_embedded_broker_have_an_id_of_their_own_broker(here: Deployment) -> None:
    cluster = Cluster(here.settings())
    await cluster.check([here.commands])
    assert await cluster.partition_count(here.commands) == 4
    assert await cluster.topic_id(here.commands) == f"{here.commands}@{here.bootstrap}"


def test_missing_topics_name_the_command() -> None:
    assert "`outcrop topics create`" in str(TopicsMissing(["a", "b"]))


async def test_a_request_of_an_earlier_stay_is_refused() -> None:
    """F9 at the client: it would move the committed offset backwards."""
    poller = Poller({}, [], _Deaf(), asyncio.get_running_loop(), patience=1, eager=False)
    partition = Partition("t", 0)
    poller._stays[partition] = 2
    done: Future[None] = Future()
    poller._commit(cast("Any", None), {partition: Position(1)}, {partition: 1}, done)
    with pytest.raises(CommitRefused):
        done.result(timeout=0)


async def test_a_loop_that_does_not_answer_in_time_loses_the_partitions() -> None:
    """The poll thread gives up on a handover, commits nothing, and tells the loop."""
    ears = _Mute()
    poller = Poller({}, [], ears, asyncio.get_running_loop(), patience=0.2, eager=False)
    partition = Partition("t", 0)
    assert await asyncio.to_thread(poller._handed_over, cast("Any", None), [partition]) == {}
    async with asyncio.timeout(10):
        assert await ears.gone == [partition]


class _Deaf:
    def assigned(self, *_: object) -> None: ...
    def messages(self, *_: object) -> None: ...
    async def revoked(self, *_: object) -> dict[Partition, Position]:
        return {}

    def lost(self, *_: object) -> None: ...
    def failed(self, *_: object) -> None: ...


class _Mute(_Deaf):
    def __init__(self) -> None:
        self.gone: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def revoked(self, *_: object) -> dict[Partition, Position]:
        await asyncio.Event().wait()
        return {}

    def lost(self, *told: object) -> None:
        self.gone.set_result(told[0])


def greeter() -> CompiledGraph[dict[str, object]]:
    graph: Graph[dict[str, object]] = Graph(dict, id="greeter")

    @graph.node
    async def greet(state: dict[str, object]) -> None:
        state["greeting"] = f"hello {state['name']}"

    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


def fetched(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_served_graph_answers_and_drains(here: Deployment, unused_port: int) -> None:
    """The whole worker: command in, outcome out, health, dead letter, drain."""
    drain = Drain()
    settings = here.settings(health_port=unused_port, commit_interval="20ms")
    async with ThreadsClient(here.bootstrap, topics=settings.topics, auto_create=True) as client:
        worker = asyncio.create_task(serve(settings, [greeter()], drain=drain))
        handle = await client.run("ann", graph="greeter", state={"name": "Ann"})
        outcome = await handle.outcome(timeout=30)
        assert (outcome.status, outcome.state) == (
            OutcomeStatus.COMPLETED,
            {"name": "Ann", "greeting": "hello Ann"},
        )
        assert (await asyncio.to_thread(fetched, unused_port, "/healthz"))[0] == 200
        unknown = await client.run("ann", graph="nobody", state={})
        assert (await unknown.outcome(timeout=30)).status is OutcomeStatus.REFUSED
        async with here.outbox() as outbox:
            await outbox.publish([Record(here.commands, b"bob", b"\xff{")])
        after = await client.run("bob", graph="greeter", state={"name": "Bob"})
        assert (await after.outcome(timeout=30)).status is OutcomeStatus.COMPLETED
        text = (await asyncio.to_thread(fetched, unused_port, "/metrics"))[1]
        assert 'outcrop_dead_letters_total{kind="undecodable"} 1' in text
        drain.ask()
        assert await worker == ExitCode.CLEAN
    async with here.member() as (_, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        assert sum(position.offset for position in heard.owned.values() if position) == 4


async def test_a_worker_with_retention_purges_old_threads(here: Deployment, tmp_path: Path) -> None:
    drain, url = Drain(), f"sqlite:///{tmp_path}/retention.db"
    store = await open_store(url)
    await store.save(checkpoint("completed", thread_id="old", created_at="2020-01-02T03:04:05Z"))
    await store.save(checkpoint("failed", thread_id="failed", created_at="2020-01-02T03:04:05Z"))
    settings = here.settings(store=url, retention_older_than="300s", commit_interval="20ms")
    async with ThreadsClient(here.bootstrap, topics=settings.topics, auto_create=True) as client:
        worker = asyncio.create_task(serve(settings, [greeter()], drain=drain))
        handle = await client.run("ann", graph="greeter", state={"name": "Ann"})
        await handle.outcome(timeout=30)
        drain.ask()
        assert await worker == ExitCode.CLEAN
    assert await store.load("old") is None
    assert await store.load("failed") is not None
    assert await store.load("ann") is not None
    await store.close()


async def test_what_a_failing_log_ends_with(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose consumer can't go on stops with the code for a failure."""

    def fails(*_: object) -> None:
        raise OffsetLost(Partition(here.commands, 0), "for the test")

    monkeypatch.setattr("outcrop.worker.places.starting_point", fails)
    await here.send(1)
    assert await serve(here.settings(), [greeter()], drain=Drain()) == ExitCode.FAILED


async def test_a_worker_without_topics_or_store_does_not_start(here: Deployment) -> None:
    with pytest.raises(StoreError):
        await serve(here.settings(store="nosuch://store"), [greeter()], drain=Drain())
