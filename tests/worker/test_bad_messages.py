"""Bad messages of every kind through a real broker and a real worker: each a dead letter, none a stop."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from outcrop.engine import CheckpointPolicy, Graph
from outcrop.topics.client import ThreadsClient
from outcrop.topics.ids import new_command_id
from outcrop.topics.messages import GraphRef, OutcomeStatus
from outcrop.worker.app import serve
from outcrop.worker.drain import Drain, ExitCode
from support.chaos import outcomes_of
from support.kafka import Deployment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confluent_kafka import Message

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

KEPT = 20_000
"""The worker's `dead_letter_limit` here, in bytes."""

TOPIC_LIMIT = 12_000_000
SENT_HEADERS = (
    ("traceparent", b"00-11111111111111111111111111111111-2222222222222222-01"),
    ("mine", b"\xff\x00"),
)


@dataclass(frozen=True)
class Bad:
    """A message, and what must come of it: the error kind, and whether its sender is answered."""

    kind: str
    value: bytes | None
    key: bytes | None = b"t"
    headers: tuple[tuple[str, bytes], ...] = SENT_HEADERS
    answered: bool = False


def command(**fields: Any) -> dict[str, Any]:
    """A good run command, but for `fields`; one that is None is left out."""
    told = {
        "version": 1,
        "type": "run",
        "command_id": str(new_command_id()),
        "thread_id": "t",
        "sent_at": "2026-01-01T00:00:00Z",
        "graph": {"id": "echo"},
        "state": {"n": 1},
    } | fields
    return {name: value for name, value in told.items() if value is not None}


def encoded(**fields: Any) -> bytes:
    return json.dumps(command(**fields)).encode()


def undecodable() -> Iterator[Bad]:
    rng = random.Random(7)
    for size in (0, 1, 7, 300, 50_000):
        yield Bad("undecodable", rng.randbytes(size))
    yield Bad("undecodable", None)  # a tombstone
    whole = encoded()
    for cut in (1, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        yield Bad("undecodable", whole[:cut])
    yield Bad("undecodable", whole + b"}")
    yield Bad("undecodable", b"\xef\xbb\xbf" + whole)
    yield Bad("undecodable", whole.decode().encode("utf-16"))
    yield Bad("undecodable", b"\x00" * 100)
    yield Bad("undecodable", b"[" * 100_000)
    yield Bad("undecodable", b'{"a":' * 3_000 + b"1" + b"}" * 3_000)
    yield Bad("undecodable", whole.replace(b'"n": 1', b'"n": NaN'))
    yield Bad("undecodable", whole.replace(b'"n": 1', b'"n": "\\ud800"'))


def invalid() -> Iterator[Bad]:
    for value in (b"null", b"[]", b"7", b'"run"', b"true"):
        yield Bad("invalid", value)
    yield Bad("invalid", b"{}")
    wrong: tuple[dict[str, Any], ...] = (
        {"thread_id": 7},
        {"thread_id": ""},
        {"thread_id": "x" * 257},
        {"thread_id": "a\nb"},
        {"command_id": 7},
        {"command_id": "no-uuid"},
    )
    for fields in wrong:
        yield Bad("invalid", encoded(**fields))
    yield Bad("invalid", encoded(type=None), answered=False)
    wrong = (
        {"sent_at": "yesterday"},
        {"sent_at": 0},
        {"sent_at": None},
        {"graph": None},
        {"graph": "echo"},
        {"graph": {"id": ""}},
        {"graph": {"id": "echo", "verison": "1"}},
        {"state": None},
        {"deadline": "soon"},
        {"on_existing": "overwrite"},
        {"reply_to": ""},
        {"reply_to": 5},
        {"typo": 1},
        {"metadata": {"a": 1}},
        {"metadata": []},
        {"state": {"n": 10**30}},
    )
    for fields in wrong:
        yield Bad("invalid", encoded(**fields), answered=True)
    for kind in ("resume", "signal", "wake", "recover", "end", "cancel"):  # fields of a run
        yield Bad("invalid", encoded(type=kind), answered=True)
    contradicts = (*SENT_HEADERS, ("outcrop-type", b"cancel"))
    yield Bad("invalid", encoded(), headers=contradicts, answered=True)


def refused() -> Iterator[Bad]:
    yield Bad("unsupported_version", encoded(version=2), answered=True)
    yield Bad("unsupported_version", encoded(version="1"), answered=True)
    yield Bad("invalid", encoded(version=None), answered=True)
    yield Bad("unknown_type", encoded(type="dance"))
    yield Bad("invalid_metadata", encoded(metadata={"outcrop.token": "7"}), answered=True)
    yield Bad("invalid_metadata", encoded(metadata={"error_kind": "x"}), answered=True)
    yield Bad("no_key", encoded(), key=None, answered=True)
    yield Bad("key_mismatch", encoded(), key=b"", answered=True)
    yield Bad("key_mismatch", encoded(), key=b"T", answered=True)
    yield Bad("key_mismatch", encoded(), key=b"\xff\xfe", answered=True)
    yield Bad("key_mismatch", encoded(), key=b"k" * 30_000, answered=True)
    yield Bad("unknown_graph", encoded(thread_id="u1", graph={"id": "nobody's"}), key=b"u1", answered=True)
    version = {"id": "echo", "version": "99"}
    yield Bad("unknown_graph", encoded(thread_id="u2", graph=version), key=b"u2", answered=True)
    yield Bad("state", encoded(thread_id="u3", state=[1, 2]), key=b"u3", answered=True)
    yield Bad("too_large", encoded(state={"big": "x" * 1_100_000}), answered=True)
    yield Bad("too_large", encoded(state={"big": "x" * 10_000_000}), answered=True)
    yield Bad("too_large", random.Random(8).randbytes(10_000_000))
    yield Bad("undecodable", b"x", headers=(("big", b"y" * 900_000),))


def echo() -> Graph[dict[str, Any]]:
    graph: Graph[dict[str, Any]] = Graph(dict, id="echo")

    @graph.node
    async def say(state: dict[str, Any]) -> None:
        state["said"] = True

    return graph


def produce(bootstrap: str, topic: str, messages: Iterable[Bad]) -> dict[tuple[str, str], Bad]:
    """Send the messages as a stranger would; returns them by partition and offset."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.max.bytes": TOPIC_LIMIT, "partitioner": "murmur2_random"}
    )
    places: dict[tuple[str, str], Bad] = {}

    def remember(bad: Bad, message: Message) -> None:
        places[(str(message.partition()), str(message.offset()))] = bad

    for bad in messages:

        def report(error: Any, message: Message, bad: Bad = bad) -> None:
            assert error is None, error
            remember(bad, message)

        producer.produce(topic, value=bad.value, key=bad.key, headers=list(bad.headers), on_delivery=report)
    assert producer.flush(60) == 0
    return places


def read_letters(bootstrap: str, topic: str, partitions: int, count: int) -> list[Message]:
    """The first `count` messages of a topic; fails when a minute brings no further one."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"letters-{topic}"})
    try:
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Message] = []
        while len(found) < count:
            message = reader.poll(60)
            assert message is not None, f"only {len(found)} of {count} dead letters came"
            assert message.error() is None, message.error()
            found.append(message)
        assert reader.poll(0.5) is None, "more dead letters than bad messages"
        return found
    finally:
        reader.close()


def headers_of(letter: Message) -> list[tuple[str, bytes]]:
    """A message's headers; the client's stub says much more of them than comes."""
    return cast("list[tuple[str, bytes]]", letter.headers())


def check_letter(letter: Message, bad: Bad, topic: str) -> None:
    told = headers_of(letter)
    headers = dict(told)
    case = f"{bad.kind} {(bad.value or b'')[:60]!r}"
    assert headers["outcrop-source-topic"] == topic.encode(), case
    assert headers["outcrop-error-kind"].decode() == bad.kind, case
    assert headers["outcrop-error"], case
    assert headers["outcrop-attempts"] == b"1", case
    assert headers["outcrop-failed-at"], case
    kept = sum(len(name) + len(value) for name, value in bad.headers) <= KEPT // 2
    room = KEPT - sum(len(name) + len(value) for name, value in bad.headers) * kept
    key = None if bad.key is None else bad.key[:room]
    assert letter.key() == key, case
    assert letter.value() == (None if bad.value is None else bad.value[: room - len(key or b"")]), case
    if kept:
        assert tuple(told[: len(bad.headers)]) == bad.headers, case


async def test_every_bad_message_is_a_dead_letter_and_the_worker_goes_on(kafka_bootstrap: str) -> None:
    bad = [*undecodable(), *invalid(), *refused()]
    here = Deployment(kafka_bootstrap).create(max_message_bytes=TOPIC_LIMIT)
    settings = here.settings(dead_letter_limit=KEPT)
    drain = Drain()
    worker = asyncio.create_task(
        serve(settings, [echo().compile(checkpoints=CheckpointPolicy.EVERY_NODE)], drain=drain)
    )
    async with ThreadsClient(kafka_bootstrap, topics=settings.topics) as client:
        places = await asyncio.to_thread(produce, kafka_bootstrap, here.commands, bad)
        assert len(places) == len(bad) > 60
        good = [
            await client.run(f"good-{number}", graph=GraphRef(id="echo"), state={"n": number})
            for number in range(16)
        ]
        for handle in good:
            assert (await handle.outcome(timeout=60)).status is OutcomeStatus.COMPLETED
        # the thread that all the bad messages were about is free, and its lane goes on
        same = await client.run("t", graph="echo", state={"n": 1})
        assert (await same.outcome(timeout=60)).status is OutcomeStatus.COMPLETED
    letters = await asyncio.to_thread(
        read_letters, kafka_bootstrap, f"dead-{here.tag}", here.partitions, len(bad)
    )
    drain.ask()
    assert await worker == ExitCode.CLEAN
    told = [dict(headers_of(letter)) for letter in letters]
    coordinates = [
        (one["outcrop-source-partition"].decode(), one["outcrop-source-offset"].decode()) for one in told
    ]
    assert sorted(coordinates) == sorted(places), "one dead letter for each message"
    for letter, place in zip(letters, coordinates, strict=True):
        check_letter(letter, places[place], here.commands)
    outcomes = await asyncio.to_thread(outcomes_of, kafka_bootstrap, f"outcomes-{here.tag}")
    answered = sorted(outcome.error.kind for outcome in outcomes if outcome.error is not None)
    assert answered == sorted(one.kind for one in bad if one.answered)
