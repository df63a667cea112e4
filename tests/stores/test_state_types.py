"""Every kind of value comes back from every store as it went in, or is refused, naming the field.

The table in stores/README.md says the same.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel

from outcrop.engine.errors import StateError
from outcrop.engine.state import codec_for
from outcrop.stores import InvalidRequest, MemoryStore, open_store
from outcrop.stores.contract import sample
from support.storages import KINDS

if TYPE_CHECKING:
    from support.storages import Places

T = TypeVar("T")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Mood(StrEnum):
    GOOD = "good"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Address:
    street: str
    lines: list[str]


class Box(BaseModel, Generic[T]):
    content: T


class Inner(BaseModel):
    amount: Decimal


KEPT: dict[str, tuple[Any, Any]] = {
    "text": (str, 'é 日本語 🚀 "quoted" \\ \n\t\x01\x7f\u2028'),
    "empty": (str, ""),
    "integer": (int, 9007199254740993),
    "largest unsigned": (int, 2**64 - 1),
    "smallest signed": (int, -(2**63)),
    "float": (float, 0.1),
    "whole float": (float, 100.0),
    "float past integers": (float, 1e16),
    "large float": (float, 1e21),
    "largest float": (float, 1.7976931348623157e308),
    "small float": (float, 2.5e-8),
    "smallest float": (float, 5e-324),
    "floats of no type": (Any, [1e16, 1.0, 1e300, -2.5e-7]),
    "text like a number": (Any, "1e16"),
    "bool": (bool, True),
    "true is not one": (Any, [True, 1, 1.0]),
    "none": (int | None, None),
    "nested dict": (dict[str, Any], {"a": {"b": [1, None, {"c": "d"}]}, "": 1}),
    "model": (Inner, Inner(amount=Decimal("10.50"))),
    "generic": (Box[Box[int]], Box[Box[int]](content=Box[int](content=7))),
    "generic of dates": (Box[list[date]], Box[list[date]](content=[date(2026, 1, 2)])),
    "dataclass": (Address, Address("high", ["a", "b"])),
    "enum": (Colour, Colour.RED),
    "integer enum": (Level, Level.HIGH),
    "text enum": (Mood, Mood.GOOD),
    "set": (set[int], {3, 1, 2}),
    "frozen set": (frozenset[str], frozenset({"a", "b"})),
    "tuple": (tuple[int, str], (1, "a")),
    "tuple of any length": (tuple[int, ...], (1, 2, 3)),
    "named tuple": (Point, Point(1, 2)),
    "deque": (deque[int], deque([1, 2])),
    "decimal": (Decimal, Decimal("1234567890.12345678901234567890")),
    "instant": (datetime, datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
    "instant elsewhere": (
        datetime,
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ),
    "date": (date, date(2026, 2, 28)),
    "time of day": (time, time(23, 59, 1)),
    "duration": (timedelta, timedelta(days=3, microseconds=7)),
    "uuid": (UUID, UUID("0198c1de-0000-7000-8000-000000000001")),
    "bytes of text": (bytes, "é".encode()),
    "path": (PurePosixPath, PurePosixPath("/a/b")),
    "fraction": (Fraction, Fraction(1, 3)),
    "complex": (complex, 1 + 2j),
    "counter": (Counter[str], Counter({"a": 2})),
    "default dict": (defaultdict[str, list[int]], defaultdict(list, a=[1])),
    "dict by integers": (dict[int, str], {1: "a"}),
}

REFUSED: dict[str, tuple[Any, Any]] = {
    "nan": (float, float("nan")),
    "infinity": (float, float("-inf")),
    "nan deep inside": (dict[str, list[float]], {"a": [1.0, float("nan")]}),
    "integer past 64 bits": (int, 2**64),
    "negative past 64 bits": (int, -(2**63) - 1),
    "integer past 64 bits of no type": (Any, [2**70]),
    "half a surrogate pair": (str, "\ud800"),
    "half a surrogate pair as a key": (dict[str, int], {"\udfff": 1}),
    "bytes that are no text": (bytes, b"\xff\xfe"),
    "set of no type": (Any, {1, 2}),
    "tuple of no type": (Any, (1, 2)),
    "decimal of no type": (Any, Decimal(1)),
    "instant of no type": (Any, datetime(2026, 1, 2, tzinfo=UTC)),
    "uuid of no type": (Any, UUID(int=1)),
    "bytes of no type": (Any, b"a"),
    "fraction of no type": (Any, Fraction(1, 3)),
    "complex of no type": (Any, 1j),
    "enum of no type": (Any, Mood.GOOD),
    "counter of no type": (Any, Counter("aab")),
    "model of no type": (Any, Inner(amount=Decimal(1))),
    "integer keys of no type": (Any, {1: "a"}),
    "ordered dict": (OrderedDict[str, int], OrderedDict(b=1, a=2)),
    "object": (Any, object()),
    "function": (Any, len),
}


@cache
def state_of(kind: Any) -> Any:
    """A state type with one field of that type."""
    return type("State", (BaseModel,), {"__annotations__": {"field": kind}, "__module__": __name__})


@pytest.mark.parametrize("form", ["plain", "encoded"])
@pytest.mark.parametrize("kind", ["memory", *KINDS])
async def test_what_is_kept(kind: str, form: str, places: Places) -> None:
    """All in one store: a thread a value."""
    if kind == "memory":
        await check_kept(MemoryStore())
        return
    async with places.fresh(kind) as storage:
        store = await open_store(storage.encoded.url if form == "encoded" else storage.url)
        try:
            await check_kept(store)
        finally:
            await store.close()


async def check_kept(store: Any) -> None:
    for name, (kind, value) in KEPT.items():
        states = codec_for(state_of(kind))
        before = state_of(kind)(field=value)
        await store.save(sample(name, frozen_state=states.freeze(before)))
        row = await store.load(name)
        after = states.thaw(row.checkpoint.frozen_state)
        assert after.field == value, name
        assert same_types(after.field, value), name


def same_types(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return all(same_types(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple, deque)):
        return all(map(same_types, one, other))
    return True


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    kind, value = REFUSED[name]
    state = state_of(kind).model_construct(field=value)
    with pytest.raises(StateError, match="field"):
        codec_for(state_of(kind)).freeze(state)


@pytest.mark.parametrize("kind", ["memory", *KINDS])
@pytest.mark.parametrize("state", ['{"a":{"b":["x","\\u0000"]}}', '{"a\\u0000":1}'])
async def test_nul_in_text_is_kept_or_refused(state: str, kind: str, places: Places) -> None:
    """Postgres has no NUL: it says so, and where, before anything is written."""
    if kind == "memory":
        await check_nul(MemoryStore(), state, is_kept=True)
        return
    async with places.fresh(kind) as storage:
        store = await open_store(storage.url)
        try:
            await check_nul(store, state, is_kept=kind != "postgres")
        finally:
            await store.close()


async def check_nul(store: Any, state: str, *, is_kept: bool) -> None:
    if is_kept:
        await store.save(sample("t", frozen_state=state))
        assert (await store.load("t")).checkpoint.frozen_state == state
        return
    with pytest.raises(InvalidRequest, match=r"thread 't'.*a"):
        await store.save(sample("t", frozen_state=state))
    assert await store.load("t") is None
