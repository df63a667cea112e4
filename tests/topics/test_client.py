"""The client against the embedded broker, and the same against a real one."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Producer
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext
from pydantic import BaseModel

from outcrop.topics import (
    BadCommand,
    BadOutcome,
    BrokerUnreachable,
    Cancel,
    ClientClosed,
    DecisionBody,
    EmbeddedBroker,
    End,
    GraphRef,
    MessageTooLarge,
    Outcome,
    OutcomeTimeout,
    Resume,
    Run,
    SendFailed,
    Signal,
    ThreadsClient,
    TopicMissing,
    TopicNames,
    encode_outcome,
)
from outcrop.topics.admin import TopicAdmin
from outcrop.topics.ids import made_at
from outcrop.topics.provisioning import TopicSettings
from support.embedded import StandIn, outcome_of, stand_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SOON = 20.0


class Order(BaseModel):
    amount: int
    receipt: str | None = None


@dataclass
class Parcel:
    weight: float
    due: datetime


@asynccontextmanager
async def _pair(
    bootstrap: str, names: TopicNames, **options: Any
) -> AsyncIterator[tuple[ThreadsClient, StandIn]]:
    async with (
        stand_in(bootstrap, names) as worker,
        ThreadsClient(bootstrap, topics=names, now=lambda: SENT, **options) as client,
    ):
        yield client, worker


async def test_run_is_sent_as_told_and_its_outcome_comes_back(embedded: str, names: TopicNames) -> None:
    async with _pair(embedded, names) as (client, worker):
        handle = await client.run(
            "order-1",
            graph=GraphRef(id="orders", version="2"),
            state=Order(amount=5),
            deadline=SENT + timedelta(hours=1),
            metadata={"tenant": "acme"},
            reply_to="replies",
        )
        assert await worker.next_command() == Run(
            command_id=handle.command_id,
            thread_id="order-1",
            sent_at=SENT,
            graph=GraphRef(id="orders", version="2"),
            state={"amount": 5, "receipt": None},
            deadline=SENT + timedelta(hours=1),
            metadata={"tenant": "acme"},
            reply_to="replies",
        )
        answer = outcome_of(handle.command_id, "order-1", state={"receipt": "r"})
        await worker.publish(answer)
        assert await handle.outcome(timeout=SOON) == answer
        assert await handle.outcome(timeout=timedelta(0)) == answer


async def test_other_verbs_are_sent_as_told(embedded: str, names: TopicNames) -> None:
    async with _pair(embedded, names) as (client, worker):
        decision = DecisionBody(approved=False, by="ann", overrides={"amount": 1})
        handles = [
            await client.resume(
                "t", decision=decision, boundary="approve", expected_sequence=3, deadline=SENT
            ),
            await client.signal("t", "paid", {"receipt": "r"}),
            await client.cancel("t", by="ann"),
            await client.end("t", by="bob"),
        ]
        common: list[dict[str, Any]] = [
            {"command_id": handle.command_id, "thread_id": "t", "sent_at": SENT} for handle in handles
        ]
        assert [await worker.next_command() for _ in handles] == [
            Resume(**common[0], decision=decision, boundary="approve", expected_sequence=3, deadline=SENT),
            Signal(**common[1], event="paid", payload={"receipt": "r"}),
            Cancel(**common[2], by="ann"),
            End(**common[3], by="bob"),
        ]


@pytest.mark.parametrize(
    ("state", "sent"),
    [
        ({"amount": None, "tags": ("a",)}, {"amount": None, "tags": ["a"]}),
        (Parcel(1.5, SENT), {"weight": 1.5, "due": "2026-01-02T03:04:05Z"}),
    ],
)
async def test_states_become_json(embedded: str, names: TopicNames, state: object, sent: object) -> None:
    async with _pair(embedded, names) as (client, worker):
        await client.run("t", graph="g", state=state)
        command = await worker.next_command()
        assert isinstance(command, Run)
        assert command.state == sent


async def test_ids_are_new_and_of_version_7_unless_given(embedded: str, names: TopicNames) -> None:
    async with _pair(embedded, names) as (client, _):
        one, other = await client.end("t"), await client.end("t")
        assert one.command_id != other.command_id
        assert made_at(one.command_id) is not None
        given = uuid4()
        assert (await client.end("t", command_id=given)).command_id == given


async def test_headers_carry_type_and_trace(embedded: str, names: TopicNames) -> None:
    context = SpanContext(int(PARENT[3:35], 16), int(PARENT[36:52], 16), is_remote=False)
    async with _pair(embedded, names) as (client, worker):
        await client.end("t")
        with trace.use_span(NonRecordingSpan(context)):
            await client.end("t")
            await client.end("t", traceparent=PARENT)
        told = [dict((await worker.next_record()).headers) for _ in range(3)]
    json_type = {"content-type": b"application/json", "outcrop-type": b"end"}
    assert told == [
        json_type,
        json_type | {"traceparent": PARENT.encode()[:-2] + b"00"},
        json_type | {"traceparent": PARENT.encode()},
    ]


async def test_outcomes_are_sorted_to_their_commands(embedded: str, names: TopicNames) -> None:
    async with _pair(embedded, names) as (client, worker):
        handles = [await client.end(f"t{number}") for number in range(20)]
        for handle in reversed(handles):
            await worker.publish(outcome_of(handle.command_id, handle.thread_id))
        answers = await asyncio.gather(*(handle.outcome(timeout=SOON) for handle in handles))
        assert [answer.thread_id for answer in answers] == [f"t{number}" for number in range(20)]


async def test_timeout_names_thread_and_command_and_leaves_the_handle_usable(
    embedded: str, names: TopicNames
) -> None:
    async with _pair(embedded, names) as (client, worker):
        handle = await client.end("order-1")
        with pytest.raises(OutcomeTimeout) as caught:
            await handle.outcome(timeout=timedelta(milliseconds=1))
        assert "order-1" in str(caught.value)
        assert str(handle.command_id) in str(caught.value)
        await worker.publish(outcome_of(handle.command_id))
        assert await handle.outcome(timeout=SOON)


async def test_command_sent_again_finds_the_outcome_that_came_meanwhile(
    embedded: str, names: TopicNames
) -> None:
    async with _pair(embedded, names) as (client, worker):
        command_id = uuid4()
        await worker.publish(outcome_of(command_id, "t"))
        marker = await client.end("t")  # on the same partition, so read after the other
        await worker.publish(outcome_of(marker.command_id, "t"))
        await marker.outcome(timeout=SOON)
        handle = await client.end("t", command_id=command_id)
        assert await handle.outcome(timeout=SOON)


async def test_outcome_published_before_the_client_connected_is_not_its_own(
    embedded: str, names: TopicNames
) -> None:
    command_id = uuid4()
    async with stand_in(embedded, names) as worker:
        await worker.publish(outcome_of(command_id, "t", sequence=1))
        async with ThreadsClient(embedded, topics=names) as client:
            handle = await client.end("t", command_id=command_id)
            await worker.publish(outcome_of(command_id, "t", sequence=2))
            assert (await handle.outcome(timeout=SOON)).sequence == 2


async def test_following_shows_every_outcome_since_the_client_connected(
    embedded: str, names: TopicNames, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [uuid4() for _ in range(3)]
    async with stand_in(embedded, names) as worker:
        await worker.publish(outcome_of(uuid4(), "t"))
        async with ThreadsClient(embedded, topics=names) as client:
            await worker.publish(outcome_of(ids[0], "t"))
            await worker.publish_raw(b"t", b"not an outcome")
            await worker.publish(outcome_of(ids[1], "t"))
            feed = client.outcomes()
            with caplog.at_level(logging.WARNING):
                seen = [(await anext(feed)).command_id for _ in range(2)]
            await worker.publish(outcome_of(ids[2], "t"))
            seen.append((await anext(feed)).command_id)
            await feed.aclose()
    assert seen == ids
    assert [record.message for record in caplog.records] == ["outcome.unreadable"]


async def test_unreadable_outcome_is_told_to_its_handle(embedded: str, names: TopicNames) -> None:
    async with _pair(embedded, names) as (client, worker):
        handle = await client.end("t")
        value = encode_outcome(outcome_of(handle.command_id)).replace(b'"completed"', b'"later"')
        await worker.publish_raw(b"t", value)
        with pytest.raises(BadOutcome, match="status"):
            await handle.outcome(timeout=SOON)


REFUSED_BEFORE_SENDING: list[tuple[str, dict[str, Any], str]] = [
    ("", {}, "thread_id"),
    ("a\nb", {}, "thread_id: it has a control character"),
    ("x" * 257, {}, "thread_id"),
    ("t", {"metadata": {"outcrop.token": "1"}}, "reserved"),
    ("t", {"metadata": {"n": 1}}, "metadata.n"),
    ("t", {"reply_to": ""}, "reply_to"),
    ("t", {"traceparent": "00-1-2-3"}, "traceparent"),
    ("t", {"deadline": datetime(2026, 1, 2)}, "offset"),  # noqa: DTZ001 - the subject
    ("t", {"state": {"x": float("nan")}}, "NaN"),
    ("t", {"state": {"x": 2**64}}, "64 bits"),
    ("t", {"state": {"x": "\ud800"}}, "surrogate"),
    ("t", {"state": {"x": object()}}, "JSON"),
    ("t", {"state": None}, "state"),
]


async def test_what_no_worker_would_take_is_refused_before_it_is_sent(
    embedded: str, names: TopicNames
) -> None:
    async with _pair(embedded, names) as (client, worker):
        for thread_id, options, told in REFUSED_BEFORE_SENDING:
            with pytest.raises(BadCommand, match=told):
                await client.run(thread_id, **({"graph": "g", "state": {}} | options))
        marker = await client.end("t")
        assert (await worker.next_command()).command_id == marker.command_id


async def test_message_over_the_clients_limit_is_refused_with_the_limit(
    embedded: str, names: TopicNames
) -> None:
    async with _pair(embedded, names, limit=1000) as (client, _):
        with pytest.raises(MessageTooLarge, match="limit is 1000 bytes"):
            await client.run("t", graph="g", state={"x": "y" * 1000})


async def test_closing_answers_waiting_handles(embedded: str, names: TopicNames) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ThreadsClient(embedded, topics=names, auto_create=True))
        handle = await client.end("t")
        waiting = asyncio.create_task(handle.outcome())
    with pytest.raises(ClientClosed):
        await waiting


async def test_verbs_need_an_open_client(embedded: str, names: TopicNames) -> None:
    client = ThreadsClient(embedded, topics=names, auto_create=True)
    with pytest.raises(ClientClosed, match="async with"):
        await client.end("t")
    async with client:
        await client.end("t")
    with pytest.raises(ClientClosed):
        await client.end("t")
    async with client:
        await client.end("t")


async def test_missing_topic_is_told_with_the_command_that_makes_it(embedded: str, names: TopicNames) -> None:
    with pytest.raises(TopicMissing, match="outcrop topics create"):
        await ThreadsClient(embedded, topics=names).__aenter__()


async def test_no_broker_is_told_with_its_address() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 "):
        await ThreadsClient("127.0.0.1:1").__aenter__()


async def test_broker_that_goes_away_makes_sends_fail_in_time_and_closing_end(names: TopicNames) -> None:
    """`SendFailed`: the command may or may not be there."""
    with EmbeddedBroker() as broker:
        client = ThreadsClient(
            broker.bootstrap, topics=names, auto_create=True, send_timeout=timedelta(seconds=0.3)
        )
        async with client:
            handle = await client.end("t")
            broker.close()
            with pytest.raises(SendFailed, match="same command_id") as caught:
                await client.end("order-1")
            assert caught.value.thread_id == "order-1"
            with pytest.raises(OutcomeTimeout):
                await handle.outcome(timeout=0.01)


async def test_key_is_the_thread_id(embedded: str, names: TopicNames) -> None:
    async with _pair(embedded, names) as (client, worker):
        await client.end("bestellung-é")
        assert (await worker.next_record()).key == "bestellung-é".encode()


# On a real broker: what the embedded one can't do.


@pytest.mark.kafka
async def test_round_trip_on_a_real_broker(kafka_bootstrap: str, names: TopicNames) -> None:
    await TopicAdmin(kafka_bootstrap).create_topics(TopicSettings(names=names, partitions=7))
    async with _pair(kafka_bootstrap, names) as (client, worker):
        handles = [await client.run(f"t{number}", graph="g", state={"n": number}) for number in range(50)]
        for _ in handles:
            command = await worker.next_command()
            await worker.publish(outcome_of(command.command_id, command.thread_id))
        answers = await asyncio.gather(*(handle.outcome(timeout=SOON) for handle in handles))
        assert [answer.thread_id for answer in answers] == [handle.thread_id for handle in handles]


@pytest.mark.kafka
async def test_missing_topic_is_not_made_on_a_real_broker(kafka_bootstrap: str, names: TopicNames) -> None:
    for _ in range(2):
        with pytest.raises(TopicMissing, match="outcrop topics create"):
            await ThreadsClient(kafka_bootstrap, topics=names).__aenter__()


@pytest.mark.kafka
async def test_message_over_the_topics_limit_is_told(kafka_bootstrap: str, names: TopicNames) -> None:
    await TopicAdmin(kafka_bootstrap).create_topics(TopicSettings(names=names, max_message_bytes=2000))
    async with _pair(kafka_bootstrap, names) as (client, _):
        with pytest.raises(MessageTooLarge, match="raise the topic's"):
            await client.run("t", graph="g", state={"x": "y" * 5000})


@pytest.mark.kafka
async def test_outcomes_in_an_aborted_transaction_are_never_seen(
    kafka_bootstrap: str, names: TopicNames
) -> None:
    await TopicAdmin(kafka_bootstrap).create_topics(TopicSettings(names=names))
    async with ThreadsClient(kafka_bootstrap, topics=names) as client:
        handle = await client.end("t")
        await asyncio.to_thread(_abort_then_commit, kafka_bootstrap, names.outcomes, handle.command_id)
        assert (await handle.outcome(timeout=SOON)).sequence == 2


def _abort_then_commit(bootstrap: str, topic: str, command_id: UUID) -> None:
    with closing(Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})) as producer:
        producer.init_transactions(20)
        for sequence, end in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce(topic, encode_outcome(outcome_of(command_id, sequence=sequence)), key=b"t")
            producer.flush(20)
            end(20)


@pytest.mark.kafka
async def test_outcomes_on_partitions_added_later_are_found(kafka_bootstrap: str, names: TopicNames) -> None:
    await TopicAdmin(kafka_bootstrap).create_topics(TopicSettings(names=names, partitions=1))
    async with ThreadsClient(kafka_bootstrap, topics=names) as client:
        handle = await client.end("t")
        await asyncio.to_thread(
            _answer_on_a_new_partition, kafka_bootstrap, names.outcomes, outcome_of(handle.command_id)
        )
        await client._open()._reader._consumer._client.force_metadata_update()  # else within a minute
        assert await handle.outcome(timeout=SOON)


def _answer_on_a_new_partition(bootstrap: str, topic: str, outcome: Outcome) -> None:
    from confluent_kafka import admin  # noqa: PLC0415 - only here

    kafka: Any = admin
    client = kafka.AdminClient({"bootstrap.servers": bootstrap})
    client.create_partitions([kafka.NewPartitions(topic, 3)])[topic].result(20)
    with closing(Producer({"bootstrap.servers": bootstrap})) as producer:
        producer.produce(topic, encode_outcome(outcome), key=b"t", partition=2)
        assert producer.flush(20) == 0
