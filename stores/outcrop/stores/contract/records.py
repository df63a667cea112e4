"""Rows come back with the values they were saved with, whatever their shape."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from outcrop.stores.codec import same_as
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.record import Status, Wait, WaitKind

from .case import Capability
from .refusal import refused
from .samples import RICH_STATE, SHAPES, sample

if TYPE_CHECKING:
    from outcrop.stores.port import Store

capability = Capability("records")


@capability.case
async def every_shape_comes_back(store: Store) -> None:
    """A2, A4 to A10: statuses, nodes, levels, decisions, waits and identities."""
    for row in SHAPES.values():
        await store.save(row)
        latest = await store.load("t")
        assert latest is not None
        assert same_as(latest.checkpoint, row)


@capability.case
async def a_row_inherits_nothing(store: Store) -> None:
    """A7, A10: no child, decision, wait or identity from the row before."""
    plain = sample()
    for name in ("nested wait", "decided", "timer", "identified", "resumed"):
        await store.save(SHAPES[name])
        await store.save(plain)
        latest = await store.load("t")
        assert latest is not None
        assert latest.checkpoint == plain


@capability.case
async def a_state_may_be_any_json(store: Store) -> None:
    for text in ("null", "true", "0", "-0.5", '""', '"é"', "[]", "{}", "[[],{}]", RICH_STATE):
        await store.save(sample(frozen_state=text))
        latest = await store.load("t")
        assert latest is not None
        assert orjson.loads(latest.checkpoint.frozen_state) == orjson.loads(text)


@capability.case
async def a_large_state_comes_back(store: Store) -> None:
    text = orjson.dumps({"blob": "é" * 500_000, "list": list(range(10_000))}).decode()
    await store.save(sample(frozen_state=text))
    latest = await store.load("t")
    assert latest is not None
    assert orjson.loads(latest.checkpoint.frozen_state) == orjson.loads(text)


@capability.case
async def metadata_is_text(store: Store) -> None:
    """One value of another type would break listings in every engine."""
    row = sample(metadata={"attempts": 1})
    await refused(store.save(row), InvalidRequest, "metadata 'attempts' isn't a string but int")
    half = sample(metadata={"name": "\ud800"})
    await refused(
        store.save(half), InvalidRequest, "metadata 'name' isn't valid Unicode: surrogates not allowed"
    )
    assert await store.load("t") is None


@capability.case
async def a_cancelled_caller_leaves_the_store_whole(store: Store) -> None:
    """A save whose caller gave up happened or didn't; the next one works either way."""
    for _ in range(20):
        waiting = sample(status=Status.INTERRUPTED, wait=Wait(WaitKind.EVENT, event_type="e"))
        task = asyncio.ensure_future(store.save(waiting))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    before = await store.load("t")
    await store.save(sample())
    latest = await store.load("t")
    assert latest is not None
    assert latest.checkpoint == sample()
    assert before is None or latest.sequence > before.sequence
    page = await store.get_log("t")
    assert [row.sequence for row in page.entries] == list(range(latest.sequence + 1))
