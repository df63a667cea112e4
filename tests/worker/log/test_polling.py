"""The poll thread over a client that misbehaves in ways no broker does on demand."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError

from outcrop.worker.client_values import received
from outcrop.worker.polling import Poller
from outcrop.worker.ports import Message, Partition

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

    from outcrop.worker.polling import Ears


class Fetched:
    """A message as the client hands it out."""

    def __init__(self, error: KafkaError | None = None, broken: Exception | None = None) -> None:
        self._error = error
        self._broken = broken

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "commands"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7

    def key(self) -> bytes:
        return b"t"

    def value(self) -> bytes:
        return b"{}"

    def headers(self) -> list[tuple[str, bytes | None]]:
        if self._broken is not None:
            raise self._broken
        return [("a", None), ("b", b"x")]


def test_a_fetched_message_is_taken_over() -> None:
    headers = (("a", b""), ("b", b"x"))
    assert received(cast("KafkaMessage", Fetched())) == Message(
        Partition("commands", 2), 7, b"t", b"{}", headers
    )


@pytest.mark.parametrize(
    "broken", [SystemError("a result with an exception set"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")]
)
def test_headers_that_the_client_can_not_tell_do_not_end_the_worker(broken: Exception) -> None:
    """A header whose name isn't UTF-8: confluent-kafka 2.16 raises SystemError."""
    assert received(cast("KafkaMessage", Fetched(broken=broken))).headers == ()


class Heard:
    """Remembers failures."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


async def test_partitions_that_come_while_it_leaves_are_no_lost_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client assigns them itself, finds no offset, and says so: that is no alarm."""
    polled, closing = threading.Event(), threading.Event()

    class Client:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def poll(self, _: float) -> Fetched | None:
            if polled.is_set():
                return None
            polled.set()
            assert closing.wait(30)
            return Fetched(KafkaError(KafkaError._AUTO_OFFSET_RESET))

        def subscribe(self, *_: object, **__: object) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr("outcrop.worker.polling.Consumer", Client)
    heard = Heard()
    ears: Any = heard
    poller = Poller(
        {}, ["commands"], cast("Ears", ears), asyncio.get_running_loop(), patience=30, eager=False
    )
    poller.start()
    await asyncio.to_thread(polled.wait, 30)
    leaving = asyncio.create_task(poller.close())
    await asyncio.sleep(0)
    closing.set()
    await leaving
    assert heard.failures == []
