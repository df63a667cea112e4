"""The consumer, the outbox and the whole worker on a real broker."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from outcrop.engine import CheckpointPolicy, Graph
from outcrop.topics.client import ThreadsClient
from outcrop.topics.messages import OutcomeStatus
from outcrop.worker.app import serve
from outcrop.worker.cluster import Cluster
from outcrop.worker.drain import Drain, ExitCode
from outcrop.worker.errors import LogFailed, OffsetLost, PublishFailed, TopicsMissing
from outcrop.worker.offsets import LONGEST_METADATA
from outcrop.worker.ports import Partition, Position, Record
from support.kafka import Deployment

pytestmark = pytest.mark.kafka

PROTOCOLS = ["cooperative", "range", "consumer"]


@pytest.fixture
def here(kafka_bootstrap: str) -> Deployment:
    return Deployment(kafka_bootstrap).create()


def purge(here: Deployment, before: int) -> None:
    """Delete what lies before an offset, in every partition."""
    admin = AdminClient({"bootstrap.servers": here.bootstrap})
    offsets = [TopicPartition(here.commands, number, before) for number in range(here.partitions)]
    for future in admin.delete_records(offsets).values():
        future.result(timeout=30)


async def fill(here: Deployment, count: int) -> None:
    """At least `count` messages in every partition."""
    async with here.outbox() as outbox:
        await outbox.publish([Record(here.commands, f"t{n}".encode(), b"{}") for n in range(count * 12)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_second_member_waits_for_the_handover(here: Deployment, protocol: str) -> None:
    await here.send(40)
    async with here.member(group_protocol=protocol) as (_, first):
        await first.until(lambda: len(first.messages) == 40)
        first.finals = {partition: Position(3, "1.AQE") for partition in first.owned}
        first.handover = asyncio.Event()
        async with here.member(group_protocol=protocol) as (_, second):
            await first.until(lambda: bool(first.revoked))
            assert second.owned == {}
            first.handover.set()
            await second.until(lambda: len(second.owned) == 2)
            assert set(second.owned.values()) == {Position(3, "1.AQE")}
            await first.until(lambda: len(first.owned) == 2)
        await first.until(lambda: len(first.owned) == 4)
        assert first.failures == second.failures == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_longest_metadata_is_accepted(here: Deployment, protocol: str) -> None:
    await here.send(4)
    longest = "x" * LONGEST_METADATA
    async with here.member(group_protocol=protocol) as (log, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        await log.commit({Partition(here.commands, 1): Position(0, longest)})
    async with here.member(group_protocol=protocol) as (_, second):
        await second.until(lambda: len(second.owned) == 4)
        assert second.owned[Partition(here.commands, 1)] == Position(0, longest)


async def test_static_membership_comes_back_without_a_rebalance(here: Deployment) -> None:
    async with here.member(group_instance_id="a") as (_, other):
        await other.until(lambda: len(other.owned) == 4)
        async with here.member(group_instance_id="b") as (_, first):
            await first.until(lambda: len(first.owned) == 2)
            await other.until(lambda: len(other.owned) == 2)
            kept = set(first.owned)
        async with here.member(group_instance_id="b") as (_, again):
            await again.until(lambda: set(again.owned) == kept)
        assert len(other.owned) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_of_two_members_of_one_name_one_is_told_to_go(here: Deployment, protocol: str) -> None:
    """The newer one fences the older one; under KIP-848 the newer one is refused. Neither idles for ever."""
    async with here.member(group_instance_id="a", group_protocol=protocol) as (_, first):
        await first.until(lambda: len(first.owned) == 4)
        async with here.member(group_instance_id="a", group_protocol=protocol) as (_, second):
            gone = second if protocol == "consumer" else first
            await gone.until(lambda: bool(gone.failures))
            assert [type(failure) for failure in gone.failures] == [LogFailed]


async def test_a_lost_offset_is_an_alarm_and_not_a_replay(here: Deployment) -> None:
    await fill(here, 8)
    async with here.member() as (log, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        await log.commit({partition: Position(2) for partition in heard.owned})
    purge(here, 5)
    async with here.member() as (_, second):
        await second.until(lambda: bool(second.failures))
        assert isinstance(second.failures[0], OffsetLost)
        assert second.messages == []


async def test_a_new_group_on_a_purged_topic_starts_at_what_is_left(here: Deployment) -> None:
    await fill(here, 8)
    purge(here, 5)
    async with here.member() as (_, first):
        await first.until(lambda: len(first.owned) == 4)
        assert set(first.owned.values()) == {Position(5)}
    async with here.member() as (_, second):  # the group has a place everywhere now
        await second.until(lambda: len(second.owned) == 4)
        assert second.failures == []


async def test_a_partition_without_a_place_in_a_group_that_has_others_is_an_alarm(here: Deployment) -> None:
    await fill(here, 8)
    async with here.member() as (log, heard):
        await heard.until(lambda: len(heard.owned) == 4)
        await log.commit({Partition(here.commands, 0): Position(6)})
    purge(here, 5)
    async with here.member() as (_, second):
        await second.until(lambda: bool(second.failures))
        assert isinstance(second.failures[0], OffsetLost)


async def test_missing_topics_are_named(kafka_bootstrap: str) -> None:
    nowhere = Deployment(kafka_bootstrap)
    with pytest.raises(TopicsMissing) as caught:
        await Cluster(nowhere.settings()).check([nowhere.commands, "also-" + nowhere.tag])
    assert caught.value.topics == (nowhere.commands, "also-" + nowhere.tag)


async def test_a_topic_has_an_id_of_its_own(here: Deployment) -> None:
    cluster = Cluster(here.settings())
    first = await cluster.topic_id(here.commands)
    assert uuid.UUID(first)
    assert await cluster.topic_id(f"dead-{here.tag}") != first


async def test_undeliverable_records_are_told_apart(here: Deployment) -> None:
    async with here.outbox() as outbox:
        records = [
            Record(here.commands, b"k", b"v"),
            Record(here.commands, b"k", b"v" * 3_000_000),
            Record("no-such-topic-" + here.tag, b"k", b"v"),
        ]
        with pytest.raises(PublishFailed) as caught:
            await outbox.publish(records)
        assert [failure.record for failure in caught.value.undelivered] == records[1:]
        assert all(failure.permanent for failure in caught.value.undelivered)


def sleepy() -> Graph[dict[str, object]]:
    graph: Graph[dict[str, object]] = Graph(dict, id="sleepy")

    @graph.node
    async def nap(state: dict[str, object]) -> None:
        await asyncio.sleep(float(str(state["seconds"])))

    @graph.node
    async def done(state: dict[str, object]) -> None:
        state["done"] = True

    graph.edge("nap", "done")
    return graph


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_drain_hands_runs_over_and_a_peer_completes_them(
    here: Deployment, tmp_path: Path, protocol: str
) -> None:
    """The first worker is drained with runs in flight; the second finishes every one."""
    graph = sleepy().compile(checkpoints=CheckpointPolicy.EVERY_NODE)
    common: dict[str, object] = {
        "store": f"sqlite:///{tmp_path}/threads.db",
        "group_protocol": protocol,
        "lease_ttl": "5s",
    }
    drains = Drain(), Drain()
    async with ThreadsClient(here.bootstrap, topics=here.settings().topics) as client:
        first = asyncio.create_task(serve(here.settings(worker="first", **common), [graph], drain=drains[0]))
        handles = [
            await client.run(f"t{n}", graph="sleepy", state={"seconds": 0 if n % 2 else 2}) for n in range(16)
        ]
        quick = await asyncio.gather(*(handle.outcome(timeout=60) for handle in handles[1::2]))
        assert {outcome.worker for outcome in quick} == {"first"}
        drains[0].ask()
        assert await first == ExitCode.CLEAN
        second = asyncio.create_task(
            serve(here.settings(worker="second", **common), [graph], drain=drains[1])
        )
        slow = await asyncio.gather(*(handle.outcome(timeout=60) for handle in handles[::2]))
        drains[1].ask()
        assert await second == ExitCode.CLEAN
    assert {outcome.status for outcome in slow} == {OutcomeStatus.COMPLETED}
    assert {outcome.worker for outcome in slow} == {"second"}


@pytest.mark.parametrize("protocol", ["cooperative", "range"])
def test_a_stopped_member_loses_its_share_and_is_told_when_it_goes_on(
    here: Deployment, protocol: str
) -> None:
    """SIGSTOP past the session timeout, then SIGCONT; KIP-848's timeout is the broker's, 45 s."""
    stopped, other = start_member(here, protocol), None
    try:
        hear(stopped, "assigned 4")
        stopped.send_signal(signal.SIGSTOP)
        other = start_member(here, protocol)
        hear(other, "assigned 4")
        stopped.send_signal(signal.SIGCONT)
        hear(stopped, "lost 4")
        hear(stopped, "assigned 2")
    finally:
        for process in filter(None, (stopped, other)):
            process.kill()
            process.communicate()


def start_member(here: Deployment, protocol: str) -> subprocess.Popen[str]:
    settings = {
        "bootstrap": here.bootstrap,
        "group": f"group-{here.tag}",
        "commands_topic": here.commands,
        "group_protocol": protocol,
        "session_timeout": "6s",
        "heartbeat_interval": "300ms",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "support.member", json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def hear(process: subprocess.Popen[str], line: str) -> None:
    """Read until the line comes; the test's own timeout bounds it."""
    assert process.stdout is not None
    heard = list[str]()
    for said in process.stdout:
        heard.append(said.strip())
        if heard[-1] == line:
            return
    raise AssertionError(f"never heard '{line}', but {heard}")
