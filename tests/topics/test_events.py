"""Events on the wire, and following them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from outcrop.topics import (
    BadEvent,
    Event,
    EventType,
    ThreadsClient,
    TopicNames,
    decode_event,
    encode_event,
)
from support.embedded import stand_in

if TYPE_CHECKING:
    from typing import Any

AT = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)


def event(thread_id: str = "t", sequence: int = 1, **fields: Any) -> Event:
    return Event(
        type=EventType.NODE_STARTED, thread_id=thread_id, run_id="r", sequence=sequence, at=AT, **fields
    )


def test_an_event_comes_back_as_it_was() -> None:
    for sent in (event(), event(node="Work/Draft", attempt=2, data={"error": "no", "keys": ["a", None]})):
        assert decode_event(encode_event(sent)) == sent


def test_a_newer_worker_may_say_more() -> None:
    text = encode_event(event()).replace(b'"node_started"', b'"dreamt","colour":"red"')
    assert decode_event(text).type == "dreamt"


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"{}", b'{"version":1,"type":"token"}', b"\xff"])
def test_what_is_no_event_is_refused(value: bytes | None) -> None:
    with pytest.raises(BadEvent, match="not an event"):
        decode_event(value)


async def test_a_client_follows_what_happens_from_the_block_on(embedded: str, names: TopicNames) -> None:
    async with stand_in(embedded, names) as worker, ThreadsClient(embedded, topics=names) as client:
        await worker.publish_to(names.events, b"t", encode_event(event(sequence=1)))
        async with client.events("t") as events:
            for key, value in (
                (b"t", encode_event(event(sequence=2))),
                (b"t", b"no event"),
                (b"u", encode_event(event("u", 1))),
                (b"t", encode_event(event(sequence=3))),
            ):
                await worker.publish_to(names.events, key, value)
            async with asyncio.timeout(20):
                seen = [(await anext(events)).sequence for _ in range(2)]
        assert seen == [2, 3]
