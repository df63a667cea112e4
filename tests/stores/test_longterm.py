"""The long-term memory's contract, on every engine that is there."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from outcrop.stores import InvalidRequest
from outcrop.stores.longterm import Embedding, Hnsw, Listing, Purge, Record, RecordKey, Search
from support.longterm import (
    START,
    HandClock,
    in_file,
    in_hashes,
    in_process,
    in_table,
    pgvector_server,
    query_engine_server,
    record,
    use_extensible_sqlite,
)

if TYPE_CHECKING:
    from pathlib import Path

    from outcrop.stores.longterm import LongTermStore
    from support.longterm import Opener

SECOND = START.replace(microsecond=0)


@pytest.fixture(params=["memory", "sqlite", "postgres", "postgres hnsw", "redis", "redis hnsw"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
    unique = f"t{uuid4().hex}"
    match request.param.split():
        case ["memory"]:
            return in_process()
        case ["sqlite"]:
            use_extensible_sqlite(monkeypatch)
            return in_file(tmp_path / "memory.db")
        case ["postgres", *index]:
            return in_table(pgvector_server(), table=unique, hnsw=Hnsw() if index else None)
        case [_, *index]:
            return in_hashes(query_engine_server(), prefix=unique, hnsw=Hnsw() if index else None)
        case _:
            raise AssertionError(request.param)


def search(*vector: float, **changes: Any) -> Search:
    return replace(Search(namespace="notes", embedding=Embedding("m", vector)), **changes)


async def found(store: LongTermStore, wanted: Search) -> list[str]:
    return [match.record.id for match in await store.search(wanted)]


async def test_a_record_comes_back_as_written(engine: Opener) -> None:
    """N1, N2."""
    written = Record(
        namespace="notes",
        tenant="acme:%",
        id="a/é 🚀",
        embedding=Embedding("m", (0.125, -0.5, 0.25, 0.75)),
        content={"z": 1, "a": [True, None, 1.5, "x"], "n": {"é": "🚀"}},
        text='quotes " and \\ and\nlines',
        metadata={"kind": "fact", 'a.b"c': "1"},
        created_at=datetime(1999, 1, 1, tzinfo=UTC),
        updated_at=datetime(1999, 1, 1, tzinfo=UTC),
    )
    async with engine(4, HandClock()) as store:
        await store.upsert(written)
        assert await store.get(written.key) == replace(written, created_at=SECOND, updated_at=SECOND)
        assert await store.get(RecordKey(namespace="notes", id="a/é 🚀")) is None


async def test_a_bare_record_comes_back_bare(engine: Opener) -> None:
    """N1: absent is not empty."""
    async with engine(2, HandClock()) as store:
        await store.upsert_many([record("none"), replace(record("empty"), content={}, text="")])
        none = await store.get(record("none").key)
        empty = await store.get(record("empty").key)
        assert none is not None
        assert empty is not None
        assert (none.content, none.text, none.metadata) == (None, None, {})
        assert (empty.content, empty.text, empty.metadata) == ({}, "", {})


async def test_replacing_keeps_when_it_was_created(engine: Opener) -> None:
    """N1, N2."""
    clock = HandClock()
    async with engine(2, clock) as store:
        await store.upsert(replace(record("a"), content={"v": 1}, text="one", metadata={"kind": "old"}))
        clock.advance(timedelta(seconds=5))
        await store.upsert(record("a", 0.0, 1.0))
        now = await store.get(record("a").key)
        assert now == replace(
            record("a", 0.0, 1.0), created_at=SECOND, updated_at=SECOND + timedelta(seconds=5)
        )
        assert await found(store, search(1.0, 0.0, metadata={"kind": "old"})) == []


async def test_of_two_with_one_key_in_a_batch_the_later_is_kept(engine: Opener) -> None:
    """N8."""
    async with engine(2, HandClock()) as store:
        await store.upsert_many([record("a", 1.0, 0.0), record("b"), record("a", 0.0, 1.0)])
        kept = await store.get(record("a").key)
        assert kept is not None
        assert kept.embedding.vector == (0.0, 1.0)
        assert await found(store, search(0.0, 1.0)) == ["a", "b"]
        await store.upsert_many([])


async def test_deleting_says_whether_there_was_one(engine: Opener) -> None:
    """N1."""
    async with engine(2, HandClock()) as store:
        await store.upsert(record("a"))
        assert await store.delete(record("a").key)
        assert not await store.delete(record("a").key)
        assert await store.get(record("a").key) is None
        assert await found(store, search(1.0, 0.0)) == []
        assert (await store.list_records(Listing(namespace="notes"))).records == ()


async def test_the_most_alike_come_first(engine: Opener) -> None:
    """N1."""
    async with engine(2, HandClock()) as store:
        await store.upsert_many(
            [
                record("far", -1.0, 0.0),
                record("near", 3.0, 0.1),
                record("same", 2.0, 0.0),
                record("side", 0.0, 1.0),
            ]
        )
        matches = await store.search(search(1.0, 0.0))
        assert [match.record.id for match in matches] == ["same", "near", "side", "far"]
        expected = [1.0, 3 / math.hypot(3, 0.1), 0.0, -1.0]
        assert [match.similarity for match in matches] == pytest.approx(expected, abs=1e-5)


async def test_ties_are_by_id_in_byte_order(engine: Opener) -> None:
    """N1."""
    ids = ["b", "a", "é", "Z", "~", "aa", "\N{ROCKET}", "\uffee"]
    async with engine(2, HandClock()) as store:
        await store.upsert_many([record(each, 0.6, 0.8) for each in ids])
        ordered = sorted(ids, key=str.encode)
        assert await found(store, search(1.0, 0.0)) == ordered
        assert await found(store, search(1.0, 0.0, limit=3)) == ordered[:3]


async def test_a_minimum_similarity_includes_itself(engine: Opener) -> None:
    """N1."""
    async with engine(2, HandClock()) as store:
        await store.upsert_many([record("same"), record("side", 0.0, 1.0), record("far", -1.0, 0.0)])
        assert await found(store, search(1.0, 0.0, min_similarity=1.0)) == ["same"]
        assert await found(store, search(1.0, 0.0, min_similarity=0.0)) == ["same", "side"]
        assert await found(store, search(1.0, 0.0, min_similarity=-1.0)) == ["same", "side", "far"]


async def test_filters_leave_out_before_the_ranking(engine: Opener) -> None:
    """N1, N6: with a limit of one, the best of what is left is found."""
    async with engine(2, HandClock()) as store:
        quoted = {'a.b"c\\,{': "x|y", "kind": "fact"}
        await store.upsert_many(
            [
                record("best"),
                replace(record("good", 1.0, 0.1), metadata=quoted),
                replace(record("fair", 1.0, 0.2), metadata={"kind": "fact"}),
            ]
        )
        assert await found(store, search(1.0, 0.0, limit=1)) == ["best"]
        assert await found(store, search(1.0, 0.0, limit=1, exclude={"best"})) == ["good"]
        assert await found(store, search(1.0, 0.0, exclude={"best", "good", "nobody"})) == ["fair"]
        assert await found(store, search(1.0, 0.0, metadata={"kind": "fact"})) == ["good", "fair"]
        assert await found(store, search(1.0, 0.0, metadata=quoted)) == ["good"]
        assert await found(store, search(1.0, 0.0, metadata={"kind": "Fact"})) == []


async def test_namespaces_tenants_and_models_are_apart(engine: Opener) -> None:
    """N1."""
    async with engine(2, HandClock()) as store:
        other_model = replace(record("model"), embedding=Embedding("other", (1.0, 0.0)))
        await store.upsert_many(
            [
                record("mine"),
                record("tenant", tenant="acme"),
                record("space", namespace="notes:"),
                record("notes", namespace="n", tenant="otes"),
                other_model,
            ]
        )
        assert await found(store, search(1.0, 0.0)) == ["mine"]
        assert await found(store, search(1.0, 0.0, tenant="acme")) == ["tenant"]
        assert await found(store, search(1.0, 0.0, namespace="notes:")) == ["space"]
        assert await found(store, replace(search(), embedding=other_model.embedding)) == ["model"]
        assert [each.id for each in (await store.list_records(Listing(namespace="notes"))).records] == [
            "mine",
            "model",
        ]


async def test_listing_pages_follow_each_other(engine: Opener) -> None:
    """N1."""
    ids = sorted(["b", "a", "é", "Z", "\N{ROCKET}"], key=str.encode)
    async with engine(2, HandClock()) as store:
        await store.upsert_many([replace(record(each), metadata={"kind": "x"}) for each in ids])
        await store.upsert(record("aa"))
        listing = Listing(namespace="notes", metadata={"kind": "x"}, limit=2)
        pages: list[list[str]] = []
        while True:
            page = await store.list_records(listing)
            pages.append([each.id for each in page.records])
            if page.next_cursor is None:
                break
            listing = replace(listing, cursor=page.next_cursor)
        assert pages == [ids[:2], ids[2:4], ids[4:]]
        whole = await store.list_records(Listing(namespace="notes", limit=6))
        assert (len(whole.records), whole.next_cursor) == (6, None)
        assert (await store.list_records(Listing(namespace="nobody"))).records == ()


async def test_a_cursor_is_the_last_id(engine: Opener) -> None:
    """N1: base64url of the compact JSON array, without padding."""
    async with engine(2, HandClock()) as store:
        await store.upsert_many([record("a"), record("b")])
        page = await store.list_records(Listing(namespace="notes", limit=1))
        assert page.next_cursor == "WyJhIl0"


async def test_purging_takes_the_oldest_first(engine: Opener) -> None:
    """N1, N2."""
    clock = HandClock()
    async with engine(2, clock) as store:
        await store.upsert_many(
            [record("z", namespace="a"), record("b"), record("a"), record("a", tenant="t")]
        )
        clock.advance(timedelta(seconds=1))
        await store.upsert(record("next"))
        clock.advance(timedelta(seconds=1))
        await store.upsert(record("b"))  # written again, and so young
        at = SECOND + timedelta(seconds=1)

        async def left() -> set[tuple[str, str, str]]:
            spaces = [("a", ""), ("notes", ""), ("notes", "t")]
            pages = [await store.list_records(Listing(namespace=n, tenant=t)) for n, t in spaces]
            return {(each.namespace, each.tenant, each.id) for page in pages for each in page.records}

        assert await store.purge(Purge(older_than=at, namespace="notes", tenant="t")) == 1
        assert await store.purge(Purge(older_than=at, limit=1)) == 1
        assert await left() == {("notes", "", "a"), ("notes", "", "next"), ("notes", "", "b")}
        assert await store.purge(Purge(older_than=at)) == 1  # `next` is exactly at the cut-off
        assert await store.purge(Purge(older_than=at)) == 0
        assert await store.purge(Purge(older_than=at + timedelta(hours=1), namespace="nobody")) == 0
        assert await left() == {("notes", "", "next"), ("notes", "", "b")}
        assert await found(store, search(1.0, 0.0)) == ["b", "next"]


LONG = "é" * 129  # 258 bytes in 129 characters

BAD_RECORDS = [
    (replace(record(""), namespace=""), "the namespace is empty"),
    (record("", namespace="x" * 257), "the namespace is longer than 256 bytes"),
    (record("", tenant=LONG), "the tenant is longer than 256 bytes"),
    (replace(record(""), embedding=Embedding("", ())), "the id is empty"),
    (record(LONG), "the id is longer than 256 bytes"),
    (replace(record("a"), embedding=Embedding("", ())), "the model is empty"),
    (record("a", 1.0), "the vector has 1 dimensions, and this store has 2"),
    (record("a", 0.0, math.nan), "the vector has a value that isn't finite"),
    (record("a", 0.0, 1e300), "the vector has a value that isn't finite"),
    (record("a", 0.0, 1e-60), "the vector is all zeros"),
    (replace(record("a", 0.0, -0.0), metadata={"": "x"}), "the vector is all zeros"),
    (replace(record("a"), metadata={"x": "1", "": "x"}), "a metadata key is empty"),
    (
        replace(record("a"), metadata={"é" * 65: "x"}),
        f"the metadata key '{'é' * 65}' is longer than 128 bytes",
    ),
]


@pytest.mark.parametrize(("bad", "refusal"), BAD_RECORDS)
async def test_a_bad_record_is_refused_before_any_is_written(
    engine: Opener, bad: Record, refusal: str
) -> None:
    """N1, N9."""
    async with engine(2, HandClock()) as store:
        with pytest.raises(InvalidRequest) as caught:
            await store.upsert_many([record("good"), bad])
        assert str(caught.value) == refusal
        assert await store.get(record("good").key) is None
        await store.upsert(replace(record("é" * 128), metadata={"é" * 64: ""}))  # just short enough


@pytest.mark.parametrize(
    ("bad", "refusal"),
    [
        (replace(search(), namespace="", limit=0), "the namespace is empty"),
        (search(1.0, limit=0), "the vector has 1 dimensions, and this store has 2"),
        (search(1.0, 0.0, limit=0, min_similarity=2.0), "the limit is 0; it must be from 1 to 1000"),
        (search(1.0, 0.0, limit=1001), "the limit is 1001; it must be from 1 to 1000"),
        (search(1.0, 0.0, min_similarity=1.5), "the minimum similarity is 1.5; it must be from -1 to 1"),
        (
            search(1.0, 0.0, min_similarity=-2.0, metadata={"": ""}),
            "the minimum similarity is -2; it must be from -1 to 1",
        ),
        (search(1.0, 0.0, metadata={"": ""}), "a metadata key is empty"),
    ],
)
async def test_a_bad_search_is_refused(engine: Opener, bad: Search, refusal: str) -> None:
    """N1, N9."""
    async with engine(2, HandClock()) as store:
        with pytest.raises(InvalidRequest) as caught:
            await store.search(bad)
        assert str(caught.value) == refusal


@pytest.mark.parametrize(
    ("bad", "refusal"),
    [
        (Listing(namespace=""), "the namespace is empty"),
        (Listing(namespace="n", metadata={"": ""}, limit=0), "a metadata key is empty"),
        (Listing(namespace="n", limit=0, cursor="nope!"), "the limit is 0; it must be from 1 to 1000"),
        (Listing(namespace="n", limit=1001), "the limit is 1001; it must be from 1 to 1000"),
        (Listing(namespace="n", cursor="nope!"), "'nope!' is not a memory listing cursor"),
        (Listing(namespace="n", cursor="WzFd"), "'WzFd' is not a memory listing cursor"),
    ],
)
async def test_a_bad_listing_is_refused(engine: Opener, bad: Listing, refusal: str) -> None:
    """N1."""
    async with engine(2, HandClock()) as store:
        with pytest.raises(InvalidRequest) as caught:
            await store.list_records(bad)
        assert str(caught.value) == refusal


@pytest.mark.parametrize(
    ("bad", "refusal"),
    [
        (Purge(older_than=START, namespace="", limit=0), "the namespace is empty"),
        (Purge(older_than=START, tenant=LONG, limit=0), "the tenant is longer than 256 bytes"),
        (Purge(older_than=START, limit=0), "the limit is 0; it must be at least 1"),
    ],
)
async def test_a_bad_purge_is_refused(engine: Opener, bad: Purge, refusal: str) -> None:
    """N1."""
    async with engine(2, HandClock()) as store:
        with pytest.raises(InvalidRequest) as caught:
            await store.purge(bad)
        assert str(caught.value) == refusal


@pytest.mark.parametrize(
    "content", [{"x": math.nan}, {"x": (1, 2)}, {1: "x"}, {"x": {1}}, {"x": 1 << 64}, {"x": "\ud800"}]
)
async def test_content_that_json_would_change_is_refused(engine: Opener, content: dict[str, Any]) -> None:
    async with engine(2, HandClock()) as store:
        with pytest.raises(InvalidRequest, match="the content of record 'a'"):
            await store.upsert(replace(record("a"), content=content))


async def test_a_key_is_checked_before_it_is_looked_up(engine: Opener) -> None:
    async with engine(2, HandClock()) as store:
        with pytest.raises(InvalidRequest, match="the id is empty"):
            await store.get(record("").key)
        with pytest.raises(InvalidRequest, match="the namespace is empty"):
            await store.delete(record("a", namespace="").key)


async def test_what_a_caller_does_to_a_record_afterwards_is_his_own(engine: Opener) -> None:
    async with engine(2, HandClock()) as store:
        content: dict[str, Any] = {"list": [1]}
        metadata = {"k": "v"}
        await store.upsert(replace(record("a"), content=content, metadata=metadata))
        content["list"].append(2)
        metadata["k"] = "changed"
        kept = await store.get(record("a").key)
        assert kept is not None
        assert (kept.content, kept.metadata) == ({"list": [1]}, {"k": "v"})
