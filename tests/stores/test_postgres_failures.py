"""What breaks on the way to Postgres, and that a save happens once whatever is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from outcrop.stores import (
    Acquired,
    InvalidRequest,
    LeaseLost,
    NotLatest,
    Saved,
    Status,
    StoreError,
    ThreadState,
    Unavailable,
)
from outcrop.stores.contract import sample
from outcrop.stores.options import GroupCommitOptions, OffloadOptions, RetryOptions
from outcrop.stores.postgres import PostgresStore
from outcrop.stores.postgres.classify import is_passing
from outcrop.stores.postgres.database import Access
from support.postgres import fresh_database, own_server
from support.proxy import proxied

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from pathlib import Path

    from outcrop.stores import Checkpoint
    from support.postgres import OwnProgram
    from support.proxy import Proxy

TTL = timedelta(seconds=30)


@asynccontextmanager
async def behind_a_proxy(server: str, **options: Any) -> AsyncGenerator[tuple[PostgresStore, Proxy, str]]:
    """A store whose wire a test can break, and the URL that goes around the proxy."""
    async with fresh_database(server) as url, proxied(url) as proxy:
        store = await PostgresStore.open(f"{proxy.url(url)}?connect_timeout=2", **options)
        try:
            await store.save(sample("t", metadata={"by": "warm-up"}))  # and the statement is prepared
            yield store, proxy, url
        finally:
            proxy.resume()
            await store.close()


def marked(mark: str) -> Checkpoint:
    return sample("t", metadata={"by": mark})


async def marks(store: PostgresStore) -> list[str]:
    rows = (await store.get_log("t", limit=1000)).entries
    assert [row.sequence for row in rows] == list(range(len(rows)))
    return [(row.checkpoint.metadata or {})["by"] for row in rows]


def between_attempts(store: PostgresStore, act: Callable[[], Awaitable[None]]) -> None:
    """Do this instead of waiting before an attempt is repeated."""

    async def sleep(_: float) -> None:
        await act()

    store._database.retries = replace(store._database.retries, sleep=sleep)


async def heard_of_the_end(store: PostgresStore) -> None:
    while not all(session.is_closed for session in store._database._idle):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)


@pytest.mark.parametrize("code", ["08006", "08001", "57P01", "57P02", "57P03", "40001", "40P01", "53300"])
def test_codes_that_pass(code: str) -> None:
    """H1."""
    assert is_passing(code)


@pytest.mark.parametrize("code", ["23505", "42P01", "22001", "28P01", "53100", None])
def test_codes_that_stay(code: str | None) -> None:
    """H1."""
    assert not is_passing(code)


async def test_a_server_that_is_not_there() -> None:
    """F1."""
    begun = time.monotonic()
    with pytest.raises(Unavailable) as refused:
        await PostgresStore.open("postgres://somebody:secret@127.0.0.1:1/x")
    assert time.monotonic() - begun < 30
    assert "secret" not in str(refused.value)
    assert "somebody" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://somebody:secret@127.0.0.1/x",
        "postgres://somebody:sec/ret@127.0.0.1:1/x",
        "postgres://somebody:sec#ret@127.0.0.1:1/x",
        "postgres://somebody:secret@127.0.0.1:1/x?sslmode=bogus",
        "postgres://somebody:secret@127.0.0.1:1/x?connect_timeout=soon",
    ],
)
async def test_a_bad_url(url: str) -> None:
    """F1: and not a word of it in the error."""
    with pytest.raises(InvalidRequest) as refused:
        await PostgresStore.open(url)
    assert "sec" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_no_limit_for_a_connection_to_come_about(postgres_server: str) -> None:
    """As libpq reads it."""
    async with fresh_database(postgres_server) as url:
        store = await PostgresStore.open(f"{url}?connect_timeout=0")
        assert await store.load("t") is None
        await store.close()


async def test_a_server_without_tls(postgres_server: str) -> None:
    with pytest.raises(StoreError, match="refused TLS") as refused:
        await PostgresStore.open(f"{postgres_server}?sslmode=require")
    assert not isinstance(refused.value, Unavailable)


def test_what_is_known_of_a_database_shows_no_url() -> None:
    assert "secret" not in repr(Access(url="postgres://somebody:secret@127.0.0.1/x"))


async def test_a_database_that_is_not_there(postgres_server: str) -> None:
    with pytest.raises(StoreError, match="does not exist") as refused:
        await PostgresStore.open(f"{postgres_server}_nowhere")
    assert not isinstance(refused.value, Unavailable)


async def test_a_stalled_server_is_given_up_and_its_connection_too(postgres_server: str) -> None:
    """Unavailable in time; afterwards the store works, and the log has each acknowledged row once."""
    options = {"answer_timeout": timedelta(seconds=0.3), "retries": RetryOptions(max_attempts=1)}
    async with behind_a_proxy(postgres_server, **options) as (store, proxy, _):
        proxy.stall()
        calls = [store.save(marked("stalled")), store.load("t"), store.acquire_lease("t", "w", TTL)]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, Unavailable)
        opened = proxy.accepted
        proxy.resume()
        assert isinstance(await store.save(marked("after")), Saved)
        assert proxy.accepted > opened
        assert (await marks(store)).count("after") == 1


async def test_a_cut_connection_is_replaced(postgres_server: str) -> None:
    async with behind_a_proxy(postgres_server) as (store, proxy, _):
        for at in range(5):
            proxy.cut()
            assert await store.save(marked(str(at)), expected=at) == Saved(at + 1)
        assert await marks(store) == ["warm-up", *"01234"]


async def test_idle_connections_may_go_without_anybody_noticing(postgres_server: str) -> None:
    """H5: even without retries, once this side has heard of it."""
    async with behind_a_proxy(postgres_server, retries=RetryOptions(max_attempts=1)) as (store, proxy, _):
        await asyncio.gather(*(store.load("t") for _ in range(8)))
        proxy.cut()
        await heard_of_the_end(store)
        assert await store.save(marked("after")) == Saved(1)


async def test_a_request_that_never_arrived_is_sent_again(postgres_server: str) -> None:
    """H6."""
    async with behind_a_proxy(postgres_server) as (store, proxy, _):
        proxy.drop_requests(2, containing=b"lost")
        assert await store.save(marked("lost")) == Saved(1)
        assert proxy.dropped == 2
        assert await marks(store) == ["warm-up", "lost"]


@pytest.mark.parametrize("kind", ["plain", "conditional", "fenced", "released"])
async def test_a_save_whose_answer_was_lost_is_there_once(postgres_server: str, kind: str) -> None:
    """H7."""
    async with behind_a_proxy(postgres_server) as (store, proxy, _):
        held = await store.acquire_lease("t", "w", TTL)
        assert isinstance(held, Acquired)
        proxy.drop_answers(containing=b"lost")
        ways: dict[str, dict[str, Any]] = {
            "plain": {},
            "conditional": {"expected": 0},
            "fenced": {"lease": held.lease},
            "released": {"expected": 0, "lease": held.lease, "release": True},
        }
        assert await store.save(marked("lost"), **ways[kind]) == Saved(1)
        assert proxy.dropped == 1
        assert await marks(store) == ["warm-up", "lost"]
        assert (await store.get_lease("t") is None) == (kind == "released")


async def test_a_fenced_save_that_was_committed_stays_saved_when_the_lease_moves_on(
    postgres_server: str,
) -> None:
    """H7: its row is there, so it isn't reported lost."""
    async with behind_a_proxy(postgres_server) as (store, proxy, url):
        other = await PostgresStore.open(url)
        held = await store.acquire_lease("t", "w", TTL)
        assert isinstance(held, Acquired)

        async def take_over() -> None:
            await other.release_lease(held.lease)
            taken = await other.acquire_lease("t", "w2", TTL)
            assert isinstance(taken, Acquired)
            assert await other.save(marked("next"), expected=1, lease=taken.lease) == Saved(2)

        between_attempts(store, take_over)
        proxy.drop_answers(containing=b"lost")
        assert await store.save(marked("lost"), expected=0, lease=held.lease) == Saved(1)
        assert await marks(store) == ["warm-up", "lost", "next"]
        assert await store.save(marked("late"), lease=held.lease) == LeaseLost()
        await other.close()


async def test_another_writer_takes_the_place_of_a_lost_request(postgres_server: str) -> None:
    """H8: a conditional save is refused, a plain one comes behind."""
    async with behind_a_proxy(postgres_server) as (store, proxy, url):
        other = await PostgresStore.open(url)

        async def write() -> None:
            await other.save(marked("other"))

        between_attempts(store, write)
        proxy.drop_requests(containing=b"lost")
        assert await store.save(marked("lost-1"), expected=0) == NotLatest()
        proxy.drop_requests(containing=b"lost")
        assert await store.save(marked("lost-2")) == Saved(3)
        assert await marks(store) == ["warm-up", "other", "other", "lost-2"]
        await other.close()


async def test_a_statement_that_arrives_late_writes_nothing_twice(postgres_server: str) -> None:
    """The wire holds a save back, the retry goes another way, and then the wire lets go."""
    options = {"answer_timeout": timedelta(seconds=0.3)}
    async with behind_a_proxy(postgres_server, **options) as (store, proxy, _):
        proxy.stall(new_ones=False)
        assert await store.save(marked("late")) == Saved(1)
        proxy.resume()
        await asyncio.gather(*(store.load("t") for _ in range(4)))
        assert await store.save(marked("after")) == Saved(2)
        assert await marks(store) == ["warm-up", "late", "after"]


async def test_a_save_waiting_for_its_lock_is_ended_before_it_is_repeated(postgres_server: str) -> None:
    """The server is at it still when the client gives up: it must not come after the retry."""
    options = {"answer_timeout": timedelta(seconds=0.3)}
    async with behind_a_proxy(postgres_server, **options) as (store, _, url):
        blocker = await asyncpg.connect(url)
        await blocker.execute("BEGIN")
        await blocker.execute("SELECT outcrop_lock_threads(ARRAY['t'])")

        async def unblock() -> None:
            await blocker.close()

        between_attempts(store, unblock)
        assert await store.save(marked("slow")) == Saved(1)
        assert await store.save(marked("after")) == Saved(2)
        assert await marks(store) == ["warm-up", "slow", "after"]


async def test_an_acquisition_in_doubt_is_not_tried_again(postgres_server: str) -> None:
    """H9: the lease stands until it expires; a request that could not be sent at all is repeated."""
    async with behind_a_proxy(postgres_server) as (store, proxy, _):
        held = await store.acquire_lease("other", "w", TTL)
        assert isinstance(held, Acquired)
        proxy.drop_answers(containing=b"lost")
        with pytest.raises(Unavailable):
            await store.acquire_lease("lost", "w", TTL)
        lease = await store.get_lease("lost")
        assert lease is not None
        assert (lease.owner, lease.token) == ("w", 1)

        async def resume() -> None:
            proxy.resume()

        between_attempts(store, resume)
        proxy.refuse()
        await heard_of_the_end(store)
        assert isinstance(await store.acquire_lease("third", "w", TTL), Acquired)


async def test_a_terminated_backend(postgres_server: str) -> None:
    """H4: by an administrator, in the middle of saves."""
    async with fresh_database(postgres_server) as url:
        store = await PostgresStore.open(url, pool_size=3)
        administrator = await asyncpg.connect(url)

        async def terminate() -> None:
            for _ in range(10):
                await administrator.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )

        async def run(thread_id: str) -> None:
            for at in range(20):
                row = sample(thread_id, Status.RUNNING, next_node="N", metadata={"at": str(at)})
                assert await store.save(row, expected=at - 1) == Saved(at)

        between_attempts(store, lambda: asyncio.sleep(0.02))
        store._database.retries = replace(store._database.retries, options=RetryOptions(max_attempts=50))
        await asyncio.gather(terminate(), *(run(f"t{at}") for at in range(5)))
        for at in range(5):
            log = (await store.get_log(f"t{at}")).entries
            assert [(row.checkpoint.metadata or {})["at"] for row in log] == [str(at) for at in range(20)]
        await administrator.close()
        await store.close()


@pytest.fixture(scope="module")
def server_to_break() -> Generator[tuple[str, OwnProgram]]:
    with own_server() as server:
        yield server


class Savers:
    """Tasks that save numbered rows, each to its own thread, through whatever happens."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.said: dict[str, list[int]] = {f"t{at}": [] for at in range(8)}
        self.enough = False

    async def run(self) -> None:
        await asyncio.gather(*map(self._save_on, self.said))

    async def saved(self, more: int) -> None:
        """Return once that many more rows are said to be saved."""
        goal = sum(map(len, self.said.values())) + more
        while sum(map(len, self.said.values())) < goal:  # noqa: ASYNC110 - several tasks add to it
            await asyncio.sleep(0.005)

    async def check(self) -> None:
        """Whatever was said to be saved is there, and nothing is there twice."""
        for thread_id, numbers in self.said.items():
            stored: list[int] = []
            after: int | None = None
            while True:
                page = await self._store.get_log(thread_id, after=after, limit=1000)
                stored += [int((row.checkpoint.metadata or {})["number"]) for row in page.entries]
                if (after := page.next_after) is None:
                    break
            assert len(stored) == len(set(stored))
            assert set(numbers) <= set(stored)

    async def _save_on(self, thread_id: str) -> None:
        number = 0
        while not self.enough:
            number += 1
            with suppress(Unavailable):  # anything else ends the test
                answer = await self._store.save(sample(thread_id, metadata={"number": str(number)}))
                assert isinstance(answer, Saved)
                self.said[thread_id].append(number)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("options", [{}, {"prepared": False}, {"group_commit": GroupCommitOptions()}])
async def test_a_restarted_server(
    server_to_break: tuple[str, OwnProgram], how: signal.Signals, options: dict[str, Any]
) -> None:
    """Whatever was reported saved is there afterwards, nothing is twice, and errors say whether to retry."""
    server, program = server_to_break
    async with fresh_database(server) as url:
        store = await PostgresStore.open(url, **options)
        savers = Savers(store)

        async def restart() -> None:
            for _ in range(2):
                await savers.saved(50)
                await asyncio.to_thread(program.stop, how)
                await asyncio.to_thread(program.start)
            await savers.saved(50)
            savers.enough = True

        await asyncio.gather(restart(), savers.run())
        await savers.check()
        await store.close()


def folders(place: Path) -> list[Path]:
    return list(place.iterdir())


async def test_a_purge_whose_answer_was_lost_leaves_no_blob_behind(
    postgres_server: str, tmp_path: Path
) -> None:
    offload = OffloadOptions(threshold=8, folder=tmp_path)
    async with behind_a_proxy(postgres_server, offload=offload) as (store, proxy, _):
        for thread in ("warm-up", "to-be-purged"):  # the first has the statement prepared
            await store.save(sample(thread, Status.COMPLETED, frozen_state='{"text":"large enough"}'))
            assert folders(tmp_path)
            if thread != "warm-up":
                proxy.drop_answers(containing=thread.encode())
            await store.purge(datetime.now(UTC) + timedelta(days=1), states={ThreadState.COMPLETED})
            assert await store.load(thread) is None
            assert not folders(tmp_path)
        assert proxy.dropped == 1
