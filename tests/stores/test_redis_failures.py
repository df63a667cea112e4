"""A Redis server that hangs up, stalls, restarts or loses answers: what each call comes to."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ResponseError

from outcrop.stores import (
    Acquired,
    Checkpoint,
    InvalidRequest,
    NotLatest,
    Saved,
    Status,
    StoreError,
    Unavailable,
)
from outcrop.stores.contract import sample
from outcrop.stores.options import DeltaOptions, RetryOptions
from outcrop.stores.redis import RedisStore
from outcrop.stores.redis.classify import broken_error, connect_error, reply_error
from outcrop.stores.redis.pipeline import Pipeline
from outcrop.stores.redis.scripts import SAVE
from outcrop.stores.retries import InDoubt
from support.proxy import proxied
from support.redis import RedisBinding, client, redis_process

if TYPE_CHECKING:
    from pathlib import Path

LONG = timedelta(minutes=5)
QUICK = RetryOptions(max_attempts=5, initial_delay=timedelta(milliseconds=1))


def numbered(n: int, thread_id: str = "t") -> Checkpoint:
    return sample(thread_id, frozen_state=json.dumps({"n": n}))


async def numbers(store: RedisStore, thread_id: str = "t") -> list[int]:
    page = await store.get_log(thread_id, limit=1000)
    return [json.loads(row.checkpoint.frozen_state)["n"] for row in page.entries]


@pytest.fixture
def binding(redis_server: str) -> RedisBinding:
    return RedisBinding(redis_server, retries=QUICK)


@pytest.mark.parametrize("code", ["LOADING", "BUSY", "TRYAGAIN", "READONLY", "OOM", "MISCONF", "NOREPLICAS"])
def test_passing_replies_are_worth_a_retry(code: str) -> None:
    """H1: and nothing of the call was done."""
    error = reply_error(ResponseError(f"{code} wait a little"))
    assert isinstance(error, Unavailable)
    assert not isinstance(error, InDoubt)


@pytest.mark.parametrize("code", ["WRONGTYPE", "ERR", "NOSCRIPT", "NOPERM"])
def test_other_replies_are_not(code: str) -> None:
    """H1."""
    error = reply_error(ResponseError(f"{code} no"))
    assert str(error) == f"{code} no"
    assert not isinstance(error, Unavailable)


def test_a_failure_without_words_is_told_by_its_kind() -> None:
    assert str(broken_error(ConnectionResetError())).endswith("broke: ConnectionResetError")
    assert str(connect_error(ConnectionRefusedError())).endswith("reached: ConnectionRefusedError")
    assert str(broken_error(ValueError("the URL, perhaps"))).endswith("broke: ValueError")


def test_what_a_server_repeats_of_a_command_is_not_told() -> None:
    error = reply_error(ResponseError("ERR unknown command 'EVALSHA', with args beginning with: 'secret'"))
    assert str(error) == "ERR unknown command 'EVALSHA'"


@pytest.mark.parametrize("how", ["plain", "conditional", "fenced", "fenced and conditional", "freeing"])
async def test_a_lost_answer_saves_once(how: str, binding: RedisBinding) -> None:
    """H7: committed, and its answer lost: looked up, and answered Saved."""
    async with proxied(binding.url) as proxy, binding.open() as other:
        binding.url = proxy.url(binding.url)
        async with binding.open() as store:
            acquired = await store.acquire_lease("t", "worker", LONG)
            assert isinstance(acquired, Acquired)
            await store.save(numbered(0))
            conditions: dict[str, Any] = {}
            if "conditional" in how:
                conditions["expected"] = 0
            if how.startswith(("fenced", "freeing")):
                conditions["lease"] = acquired.lease
            if how == "freeing":
                conditions["release"] = True
            proxy.drop_answers(containing=SAVE.sha.encode())
            assert await store.save(numbered(1), **conditions) == Saved(1)
            assert proxy.dropped == 1
            assert await numbers(other) == [0, 1]
            assert (await other.get_lease("t") is None) == (how == "freeing")


async def test_a_lost_request_saves_once(binding: RedisBinding) -> None:
    """H8: it never happened: looked up, and saved again."""
    async with proxied(binding.url) as proxy:
        binding.url = proxy.url(binding.url)
        async with binding.open() as store:
            await store.save(numbered(0))
            proxy.drop_requests(2, containing=SAVE.sha.encode())
            assert await store.save(numbered(1), expected=0) == Saved(1)
            proxy.drop_requests(containing=SAVE.sha.encode())
            assert await store.save(numbered(2)) == Saved(2)
            assert proxy.dropped == 3
            assert await numbers(store) == [0, 1, 2]


async def test_where_connections_cannot_be_ended_a_plain_save_in_doubt_is_not_sent_again(
    tmp_path: Path,
) -> None:
    """It may come late, after its repetition; a conditional one would then be refused."""
    async with redis_process(tmp_path) as server, client(server.url) as redis:
        await redis.acl_setuser(
            "app", enabled=True, nopass=True, keys="*", categories=["+@all"], commands=["-client"]
        )
        async with proxied(server.url.replace("redis://", "redis://app:any@")) as proxy:
            binding = RedisBinding(
                proxy.url(server.url.replace("redis://", "redis://app:any@")), retries=QUICK
            )
            async with binding.open() as store:
                await store.save(numbered(0))
                proxy.drop_requests(containing=SAVE.sha.encode())
                assert await store.save(numbered(1), expected=0) == Saved(1)
                proxy.drop_requests(containing=SAVE.sha.encode())
                with pytest.raises(Unavailable, match="may come late"):
                    await store.save(numbered(2))
                assert await numbers(store) == [0, 1]


async def test_another_row_in_its_place_is_a_refusal(binding: RedisBinding) -> None:
    """H8: while a conditional save was in doubt, somebody else's got there."""
    async with proxied(binding.url) as proxy, binding.open() as other:
        binding.url = proxy.url(binding.url)
        async with binding.open() as store:
            await store.save(numbered(0))

            async def sleep(_: float) -> None:
                await other.save(numbered(7))

            store._retries = replace(store._retries, sleep=sleep)
            proxy.drop_requests(containing=SAVE.sha.encode())
            assert await store.save(numbered(1), expected=0) == NotLatest()
            assert await numbers(other) == [0, 7]


async def test_an_acquisition_in_doubt_is_not_repeated(binding: RedisBinding) -> None:
    """H9: the lease may stand; the caller gets the error."""
    async with proxied(binding.url) as proxy, binding.open() as other:
        binding.url = proxy.url(binding.url)
        async with binding.open() as store:
            proxy.drop_answers(containing=b"worker-1")
            with pytest.raises(Unavailable, match="the connection to the Redis server broke"):
                await store.acquire_lease("t", "worker-1", LONG)
            lease = await other.get_lease("t")
            assert lease is not None
            assert (lease.owner, lease.token) == ("worker-1", 1)


async def test_an_acquisition_that_was_refused_is_repeated(binding: RedisBinding) -> None:
    """H9: nothing was sent."""
    async with proxied(binding.url) as proxy:
        binding.url = proxy.url(binding.url)
        async with binding.open() as store:
            slept = asyncio.Event()

            async def sleep(_: float) -> None:
                slept.set()
                proxy.resume()

            store._retries = replace(store._retries, sleep=sleep)
            proxy.refuse()
            await asyncio.sleep(0.05)  # until the store's end of the connection has seen it
            answer = await store.acquire_lease("t", "worker-1", LONG)
            assert slept.is_set()
            assert isinstance(answer, Acquired)
            assert answer.lease.token == 1


async def test_an_idle_connection_that_was_closed_is_made_again(binding: RedisBinding) -> None:
    """H5: before anything is sent, so that not even an acquisition is in doubt."""
    binding.options["retries"] = RetryOptions(max_attempts=1)
    async with proxied(binding.url) as proxy:
        binding.url = proxy.url(binding.url)
        async with binding.open() as store:
            for token in (1, 2):
                proxy.cut()
                await asyncio.sleep(0.05)
                answer = await store.acquire_lease("t", "worker-1", LONG)
                assert isinstance(answer, Acquired)
                assert answer.lease.token == token
                await store.release_lease(answer.lease)


async def test_a_stalled_server_is_given_up(redis_server: str) -> None:
    """The call ends as Unavailable, and late replies reach nobody: the connection isn't used again."""
    binding = RedisBinding(redis_server, retries=RetryOptions(max_attempts=1))
    async with proxied(binding.url) as proxy:
        binding.url = f"{proxy.url(binding.url)}?socket_timeout=0.2"
        async with binding.open() as store:
            await store.save(numbered(0, "a"))
            await store.save(numbered(1, "b"))
            proxy.stall()
            for call in (store.load("a"), store.save(numbered(2, "a"))):
                with pytest.raises(Unavailable, match="in time"):
                    await call
            proxy.resume()
            assert await numbers(store, "b") == [1]
            loaded = await store.load("b")
            assert loaded is not None
            assert loaded.checkpoint.thread_id == "b"


async def test_a_late_reply_reaches_nobody(redis_server: str) -> None:
    async with proxied(redis_server) as proxy:
        pipeline = Pipeline(f"{proxy.url(redis_server)}?socket_timeout=0.2")
        assert await pipeline.call("ECHO", "before") == b"before"
        proxy.stall()
        with pytest.raises(Unavailable, match="the Redis server didn't answer in time"):
            await pipeline.call("ECHO", "late")
        proxy.resume()
        assert await pipeline.call("ECHO", "after") == b"after"
        await pipeline.close()


async def test_a_cut_fails_every_call_on_the_wire_and_each_is_settled(binding: RedisBinding) -> None:
    """H4: saves of many threads at once while connections break: each there once, all answered."""
    async with proxied(binding.url) as proxy:
        binding.url = proxy.url(binding.url)
        binding.options["retries"] = RetryOptions(max_attempts=50, initial_delay=timedelta(milliseconds=1))
        async with binding.open() as store:
            left = 20 * 20

            async def write(writer: int) -> None:
                nonlocal left
                for n in range(20):
                    assert await store.save(numbered(n, f"t{writer}"), expected=n - 1) == Saved(n)
                    left -= 1

            async def cut() -> None:
                while left:
                    await asyncio.sleep(0.01)
                    proxy.cut()

            await asyncio.gather(cut(), *map(write, range(20)))
            for writer in range(20):
                assert await numbers(store, f"t{writer}") == list(range(20))
        assert proxy.accepted > 2


async def test_a_killed_connection_is_made_again(binding: RedisBinding) -> None:
    """H4: CLIENT KILL in the middle of a run."""
    async with binding.open() as store, client(binding.url) as redis:
        for n in range(30):
            if n % 10 == 5:
                identity = await store._pipeline.call("CLIENT", "ID")
                await redis.client_kill_filter(_id=str(identity))
            assert await store.save(numbered(n), expected=n - 1) == Saved(n)
        assert await numbers(store) == list(range(30))


async def test_a_restarted_server_knows_no_scripts_and_learns_them(tmp_path: Path) -> None:
    """With its rows on disk: nothing is lost, and no call fails."""
    async with redis_process(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        store = await RedisStore.open(server.url, retries=QUICK)
        for n in range(6):
            if n % 2:
                server.kill()
                await server.start()
            assert await store.save(numbered(n), expected=n - 1) == Saved(n)
        assert await numbers(store) == list(range(6))
        await store.close()


async def test_flushed_scripts_are_sent_again(binding: RedisBinding) -> None:
    """For each call in a pipeline, among others that are known."""
    async with binding.open() as store, client(binding.url) as redis:
        await redis.script_flush()
        await asyncio.gather(*(store.save(numbered(n, f"t{n}")) for n in range(20)))
        await redis.script_flush()
        calls = [store.load(f"t{n}") for n in range(20)]
        found = await asyncio.gather(*calls, store.acquire_lease("t0", "worker", LONG))
        assert all(found)


async def test_an_error_reply_is_its_own_calls(binding: RedisBinding) -> None:
    async with binding.open() as store, client(binding.url) as redis:
        await redis.set(f"{binding.prefix}:checkpoints:bad", "not a list")
        answers = await asyncio.gather(
            *(store.save(numbered(n, "bad" if n == 3 else f"t{n}")) for n in range(8)),
            store.load("bad"),
            return_exceptions=True,
        )
        for n in (3, 8):
            refusal = answers.pop(3 if n == 3 else -1)
            assert isinstance(refusal, StoreError)
            assert not isinstance(refusal, Unavailable)
            assert str(refusal).startswith("WRONGTYPE")
        assert answers == [Saved(0)] * 7


async def test_a_value_that_cannot_be_sent_fails_its_own_call(binding: RedisBinding) -> None:
    async with binding.open() as store:
        await store.save(numbered(0))
        answers = await asyncio.gather(
            store.save(numbered(1)), store.load("\ud800"), store.load("t"), return_exceptions=True
        )
        assert answers[0] == Saved(1)
        assert isinstance(answers[1], InvalidRequest)
        assert answers[2] is not None
        with pytest.raises(InvalidRequest, match="isn't valid Unicode"):
            await store.acquire_lease("t", "\ud800", LONG)


async def test_a_cancelled_caller_leaves_the_store_in_step(binding: RedisBinding) -> None:
    """Alone on the wire or with others: their replies stay theirs, and its row is whole or absent."""
    async with binding.open() as store:
        for n in range(40):
            crowd = [asyncio.create_task(store.save(numbered(n, f"t{it}"))) for it in range(n % 4)]
            victim = asyncio.create_task(store.save(numbered(n, "victim")))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            victim.cancel()
            await asyncio.gather(*crowd)
            await asyncio.wait({victim})
            assert victim.cancelled() or victim.result() is not None
            row = await store.load(f"t{n % 3}")
            assert row is None or row.checkpoint.thread_id == f"t{n % 3}"
        seen = await numbers(store, "victim")
        assert seen == sorted(set(seen))


async def test_a_delta_in_doubt_is_found_by_its_value(binding: RedisBinding) -> None:
    """J6: and the next row is whole."""
    server = binding.url
    async with proxied(server) as proxy:
        binding.url = proxy.url(server)
        async with binding.open(deltas=DeltaOptions()) as store:
            for n in range(4):
                if n == 2:
                    proxy.drop_answers(containing=SAVE.sha.encode())
                row = sample(
                    status=Status.RUNNING,
                    schema_version="1.7.0",
                    frozen_state=json.dumps({"n": n, "kept": "x"}),
                )
                assert await store.save(row, expected=n - 1) == Saved(n)
            assert await numbers(store) == [0, 1, 2, 3]
    binding.url = server
    assert await binding.versions() == ["1.7.0", "1.8.0", "1.8.0", "1.7.0"]
