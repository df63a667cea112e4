"""The history in Redis: a list a session, one JSON element a message.

An append whose answer was lost is not repeated: the message would be there twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

import orjson

from outcrop.stores.calls import Calls
from outcrop.stores.codec import parse
from outcrop.stores.errors import CorruptRow
from outcrop.stores.opening import closed_on_failure
from outcrop.stores.options import DEFAULT_RETRIES
from outcrop.stores.redis.pipeline import Pipeline
from outcrop.stores.retries import Retries

from .port import Message, check_history_limit, check_message, role_of
from .timestamps import parse_timestamp, timestamp_text

if TYPE_CHECKING:
    from outcrop.stores.options import RetryOptions

    from .port import HistoryStore


class RedisHistoryStore:
    """A history under one prefix; see `open`. Belongs to the event loop that opened it."""

    def __init__(self, pipeline: Pipeline, prefix: str, retries: Retries) -> None:
        self._pipeline = pipeline
        self._prefix = prefix
        self._retries = retries
        self._calls = Calls()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        prefix: str = "strata",
        retries: RetryOptions = DEFAULT_RETRIES,
    ) -> Self:
        """Connect. Raises `StoreError`."""
        pipeline = Pipeline(url)
        store = cls(pipeline, prefix, Retries(options=retries))
        async with closed_on_failure(store):
            await store._retries.run(lambda: pipeline.call("PING"))
        return store

    async def append(self, session_id: str, message: Message) -> None:
        check_message(session_id, message)
        element = orjson.dumps(
            {
                "content": message.content,
                "role": str(message.role),
                "timestamp": timestamp_text(message.timestamp, zone="Z"),
            }
        )
        await self._calls.whole(
            self._retries.run_at_most_once(
                lambda: self._pipeline.call("RPUSH", self._key(session_id), element)
            )
        )

    async def get_history(self, session_id: str, limit: int) -> tuple[Message, ...]:
        check_history_limit(limit)
        if limit == 0:
            return ()
        first = -min(limit, 2**63 - 1)
        elements: list[bytes] = await self._retries.run(
            lambda: self._pipeline.call("LRANGE", self._key(session_id), first, -1)
        )
        return tuple(_message(element) for element in elements)

    async def close(self) -> None:
        """Disconnect after the calls before; idempotent."""
        await self._calls.close()
        await self._pipeline.close()

    def _key(self, session_id: str) -> str:
        return f"{self._prefix}:history:{session_id}"


def _message(element: bytes) -> Message:
    fields: object = parse(element, "a history element")

    def field(name: str) -> str:
        value = cast("dict[str, object]", fields).get(name) if isinstance(fields, dict) else None
        if not isinstance(value, str):
            raise CorruptRow(f"history element is missing string '{name}'")
        return value

    return Message(role_of(field("role")), field("content"), parse_timestamp(field("timestamp")))


if TYPE_CHECKING:
    _conforms: type[HistoryStore] = RedisHistoryStore
