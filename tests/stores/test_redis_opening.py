"""Opening a Redis prefix: the index, reading only, bad servers and options, and the check of a server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import InvalidRequest, Saved, StoreError, ThreadQuery, ThreadState, Unavailable
from outcrop.stores.codec import encode
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.options import RetryOptions
from outcrop.stores.redis import RedisStore
from outcrop.stores.redis.diagnosis import diagnose
from support.redis import RedisBinding, client, redis_process

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

NOWHERE = "redis://user:s3cret@127.0.0.1:1/0"


@pytest.fixture
def binding(redis_server: str) -> RedisBinding:
    return RedisBinding(redis_server)


async def push_every_shape(binding: RedisBinding) -> None:
    """Rows as a writer that knows no index leaves them."""
    async with client(binding.url) as redis:
        for name, row in SHAPES.items():
            await redis.rpush(f"{binding.prefix}:checkpoints:{name}", encode(sample(name)))
            await redis.rpush(
                f"{binding.prefix}:checkpoints:{name}", encode(row).replace('"t"', json.dumps(name))
            )


async def test_a_prefix_without_an_index_gets_one(binding: RedisBinding) -> None:
    """G5: when it is first opened for writing; and only then."""
    await push_every_shape(binding)
    async with binding.open() as store:
        page = await store.list_threads(ThreadQuery())
        assert {thread.thread_id for thread in page.threads} == set(SHAPES)
        async with client(binding.url) as redis:
            assert await redis.get(f"{binding.prefix}:threads:indexed") == "1"
            await redis.rpush(f"{binding.prefix}:checkpoints:later", encode(sample("later")))
    async with binding.open() as store:
        assert len((await store.list_threads(ThreadQuery())).threads) == len(SHAPES)


async def test_a_rebuild_makes_the_same_sets(binding: RedisBinding) -> None:
    """G4, G10: as the saves made them; threads without a list go, and the rest is counted."""
    async with binding.open() as store, client(binding.url) as redis:
        for name, row in SHAPES.items():
            await store.save(replace(row, thread_id=name))
        saved = await binding.sets()
        await redis.delete(*(f"{binding.prefix}:{key}" for key in saved))
        for key in ("threads", "threads:ended", "threads:waking"):
            await redis.zadd(f"{binding.prefix}:{key}", {"gone": 20250101000000})
        assert await store.rebuild_index() == len(SHAPES)
        assert await binding.sets() == saved


async def test_a_row_that_cannot_be_read_is_told_and_left_out(
    binding: RedisBinding, caplog: pytest.LogCaptureFixture
) -> None:
    async with client(binding.url) as redis:
        for thread_id, element in {"a": "[", "b": "5", "c": "{}", "d": encode(sample("d"))}.items():
            await redis.rpush(f"{binding.prefix}:checkpoints:{thread_id}", element)
    async with binding.open() as store:
        assert [it.thread_id for it in (await store.list_threads(ThreadQuery())).threads] == ["d"]
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"thread '{thread_id}' isn't listed: its latest row can't be read" for thread_id in "abc"
    ]


async def test_reading_only_changes_nothing(binding: RedisBinding) -> None:
    """No index is built, no lost thread removed, nothing saved."""
    with pytest.raises(StoreError, match=f"nothing is indexed under the prefix '{binding.prefix}'"):
        await RedisStore.open_read_only(binding.url, prefix=binding.prefix)
    async with binding.open() as store, client(binding.url) as redis:
        await store.save(sample("kept"))
        await store.save(sample("lost"))
        await redis.delete(f"{binding.prefix}:checkpoints:lost")
        before = await binding.sets(), await binding.keys()
        reader = await RedisStore.open_read_only(binding.url, prefix=binding.prefix)
        assert [it.thread_id for it in (await reader.list_threads(ThreadQuery())).threads] == ["kept"]
        assert await reader.load("kept") is not None
        assert await reader.get_lease("kept") is None
        lease = (await store.acquire_lease("other", "worker", timedelta(minutes=1))).lease  # type: ignore[union-attr]  # it is free
        writing: list[Callable[[], Coroutine[None, None, object]]] = [
            lambda: reader.save(sample("kept")),
            lambda: reader.acquire_lease("kept", "worker", timedelta(minutes=1)),
            lambda: reader.renew_lease(lease, timedelta(minutes=1)),
            lambda: reader.release_lease(lease),
            lambda: reader.purge(datetime(2027, 1, 1, tzinfo=UTC), states={ThreadState.COMPLETED}),
            reader.rebuild_index,
        ]
        for call in writing:
            with pytest.raises(StoreError, match="the Redis store is open for reading only"):
                await call()
        await reader.close()
        await store.release_lease(lease)
        assert (await binding.sets(), await binding.keys() - {"lease-tokens:other"}) == before


async def test_an_unreachable_server_is_told_quickly() -> None:
    """G1: without what is secret in the URL."""
    began = time.monotonic()
    with pytest.raises(Unavailable, match="the Redis server can't be reached") as refusal:
        await RedisStore.open(NOWHERE, retries=RetryOptions(max_attempts=1))
    assert time.monotonic() - began < 5
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:s3cret@127.0.0.1:port/0",
        "http://u:s3cret@127.0.0.1",
        "redis://u:s3cret@127.0.0.1/0?no_such_option=1",
        "redis://u:s3cret@127.0.0.1/0?socket_timeout=soon",
        "s3cret",
    ],
)
async def test_a_bad_url_is_a_callers_bug(url: str) -> None:
    """G1."""
    with pytest.raises(InvalidRequest, match="the Redis store's URL") as refusal:
        await RedisStore.open(url)
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__cause__ is None


async def test_wrong_credentials_are_told_and_not_tried_again(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as server:
        async with client(server.url) as redis:
            await redis.config_set("requirepass", "right")
        for credentials in ("", ":s3cret@", "nobody:s3cret@"):
            with pytest.raises(StoreError, match="the Redis server refuses the credentials") as refusal:
                await RedisStore.open(server.url.replace("//", f"//{credentials}"))
            assert not isinstance(refusal.value, Unavailable)
            assert "s3cret" not in str(refusal.value)
        store = await RedisStore.open(server.url.replace("//", "//:right@"))
        await store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wait_replicas": -1}, "a store can't wait for -1 replicas"),
        ({"wait_timeout": timedelta(0)}, "a wait for replicas must be at least a millisecond"),
    ],
)
async def test_bad_options_are_refused(
    options: dict[str, object], message: str, binding: RedisBinding
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        async with binding.open(**options):
            pass
    assert str(refusal.value) == message


async def test_a_closed_store_says_so(binding: RedisBinding) -> None:
    async with binding.open() as store:
        assert await store.save(sample()) == Saved(0)
    await store.close()
    with pytest.raises(StoreError, match="the Redis store is closed"):
        await store.load("t")


def test_a_missing_extra_is_named() -> None:
    program = "import sys; sys.modules['hiredis'] = None; import outcrop.stores.redis"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "StoreError: hiredis is not installed: run pip install 'outcrop[redis]'" in done.stderr


async def test_a_check_of_a_good_server(tmp_path: Path) -> None:
    async with redis_process(tmp_path, "--appendonly", "yes") as server:
        store = await RedisStore.open(server.url)
        await store.close()
        found = await diagnose(server.url)
    assert found.fit
    assert found.engine == "redis"
    assert found.server_version is not None
    assert found.server_version[0].isdigit()
    assert 0 < found.latency < 1
    assert abs(found.clock_offset) < 1


async def test_a_check_tells_what_is_missing(tmp_path: Path) -> None:
    arguments = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--replicaof", "127.0.0.1 1")
    async with redis_process(tmp_path, *arguments) as server:
        found = await diagnose(server.url, prefix="mine")
    assert found.missing == (
        "the server is a replica: rows can only be written on its primary",
        "the server keeps no data over a restart: turn on appendonly, or save points",
        "the server evicts keys when its memory is full (allkeys-lru): set maxmemory-policy noeviction",
        "nothing is indexed under the prefix 'mine': check the prefix, or open the store once for writing",
    )


async def test_a_check_says_what_it_cannot_know(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as server:
        async with client(server.url) as redis:
            await redis.acl_setuser(
                "looker",
                enabled=True,
                passwords=["+pw"],
                keys=["*"],
                categories=["+@all"],
                commands=["-config"],
            )
        found = await diagnose(server.url.replace("redis://", "redis://looker:pw@"))
    assert found.unknown == (
        "whether the server keeps its data over a restart: it doesn't let CONFIG be read",
    )
    assert not any("restart" in sentence for sentence in found.missing)


async def test_a_check_of_no_server_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await diagnose(NOWHERE)
