"""The history's contract, on every engine that is there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, TypeAlias, cast
from uuid import uuid4

import asyncpg
import pytest

from outcrop.stores import InvalidRequest
from outcrop.stores.history import HistoryStore, InProcessHistoryStore, Message, Role, SqliteHistoryStore
from outcrop.stores.history.postgres import PostgresHistoryStore
from outcrop.stores.history.redis import RedisHistoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[HistoryStore]]

START = datetime(2026, 11, 30, 10, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens stores on one place, all of which one test's stores share."""
    match request.param:
        case "memory":
            shared = InProcessHistoryStore()
            yield lambda: closing_store(lambda: returned(shared))
        case "sqlite":
            yield lambda: closing_store(lambda: SqliteHistoryStore.open(tmp_path / "history.db"))
        case "postgres":
            with schema(request.getfixturevalue("postgres_server")) as url:
                yield lambda: closing_store(lambda: PostgresHistoryStore.open(url))
        case _:
            url, prefix = request.getfixturevalue("redis_server"), f"history-{uuid4().hex}"
            yield lambda: closing_store(lambda: RedisHistoryStore.open(url, prefix=prefix))


@asynccontextmanager
async def closing_store(opening: Callable[[], Awaitable[HistoryStore]]) -> AsyncGenerator[HistoryStore]:
    store = await opening()
    try:
        yield store
    finally:
        await store.close()


async def returned(store: HistoryStore) -> HistoryStore:
    return store


@contextmanager
def schema(server: str) -> Generator[str]:
    """The URL of the server with a fresh schema to create tables in."""
    name = f"history_{uuid4().hex}"

    async def administer(statement: str) -> None:
        connection = await asyncpg.connect(server)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(administer(f"CREATE SCHEMA {name}"))
    try:
        yield f"{server}?search_path={name}"
    finally:
        asyncio.run(administer(f"DROP SCHEMA {name} CASCADE"))


def said(number: int, role: Role = Role.USER) -> Message:
    return Message(role, f"message {number}", START + timedelta(seconds=number))


async def test_the_most_recent_come_back_oldest_first(history: Opener) -> None:
    """M1."""
    async with history() as store:
        assert await store.get_history("nobody", 10) == ()
        messages = [said(number) for number in range(5)]
        for message in messages:
            await store.append("a", message)
        await store.append("b", said(9))
        assert await store.get_history("a", 5) == tuple(messages)
        assert await store.get_history("a", 2) == tuple(messages[3:])
        assert await store.get_history("a", 2**70) == tuple(messages)
        assert await store.get_history("a", 0) == ()
        assert await store.get_history("b", 5) == (said(9),)
        with pytest.raises(InvalidRequest, match="a history limit must be at least 0, not -1"):
            await store.get_history("a", -1)


async def test_the_order_is_of_appending_not_of_time(history: Opener) -> None:
    """M1."""
    async with history() as store:
        messages = (said(3), said(1), said(2))
        for message in messages:
            await store.append("a", message)
        assert await store.get_history("a", 3) == messages


@pytest.mark.parametrize("role", Role)
async def test_every_role_comes_back(history: Opener, role: Role) -> None:
    """M2."""
    async with history() as store:
        await store.append("a", said(1, role))
        assert await store.get_history("a", 1) == (said(1, role),)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "plain",
        'a "quoted" \\ back\nline\ttab',
        "é 日本語 🚀",
        '{"json": [1, null]}',
        "\u2028\x7f\x01",
        " x ",
    ],
)
async def test_every_text_comes_back(history: Opener, content: str) -> None:
    """M2."""
    async with history() as store:
        await store.append("session:%/é", Message(Role.USER, content, START))
        assert [each.content for each in await store.get_history("session:%/é", 1)] == [content]


@pytest.mark.parametrize("microsecond", [0, 123_000, 123_456, 1, 999_999])
async def test_a_timestamp_keeps_its_microseconds(history: Opener, microsecond: int) -> None:
    """M2."""
    async with history() as store:
        moment = START.replace(microsecond=microsecond)
        elsewhere = moment.astimezone(timezone(timedelta(hours=-3, minutes=-30)))
        await store.append("a", Message(Role.USER, "x", elsewhere))
        (message,) = await store.get_history("a", 1)
        assert message.timestamp == moment
        assert message.timestamp.tzinfo is UTC


async def test_what_can_not_be_kept_is_refused(history: Opener) -> None:
    """M2."""
    async with history() as store:
        with pytest.raises(InvalidRequest, match="needs a timestamp with a time zone"):
            await store.append("a", Message(Role.USER, "x", START.replace(tzinfo=None)))
        with pytest.raises(InvalidRequest, match="session 'a' has the unknown role 'boss'"):
            await store.append("a", Message(cast("Role", "boss"), "x", START))
        with pytest.raises(InvalidRequest, match="the message's content isn't valid Unicode"):
            await store.append("a", Message(Role.USER, "\ud800", START))
        with pytest.raises(InvalidRequest, match="the session's ID isn't valid Unicode"):
            await store.append("\ud800", said(1))
        assert await store.get_history("a", 9) == ()


async def test_concurrent_appenders_lose_nothing(history: Opener) -> None:
    """F7, G8: each writer's messages are all there, in its own order."""
    async with history() as one, history() as other:
        stores = (one, other)

        async def write(writer: int) -> None:
            for number in range(10):
                await stores[writer % 2].append("a", Message(Role.USER, f"{writer}/{number}", START))

        await asyncio.gather(*(write(writer) for writer in range(4)))
        seen = [each.content for each in await one.get_history("a", 100)]
        assert len(seen) == 40
        for writer in range(4):
            mine = [text for text in seen if text.startswith(f"{writer}/")]
            assert mine == [f"{writer}/{number}" for number in range(10)]
