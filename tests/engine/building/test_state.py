"""States and JSON: what is frozen thaws to the same, or is refused by the name of its field."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, computed_field, field_validator
from typing_extensions import TypedDict

from outcrop.engine import Graph, StateError
from outcrop.engine.state import StateCodec, apply_overrides, codec_for

if TYPE_CHECKING:
    from collections.abc import Callable


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


class Line(BaseModel):
    sku: str
    price: float = 0.0


class Order(BaseModel):
    amount: int
    paid: bool = False
    receipt: str | None = None
    lines: list[Line] = []
    extra: Any = None


@dataclass
class Plain:
    amount: int
    tags: list[str] = field(default_factory=list)
    extra: Any = None


class Shape(TypedDict):
    amount: int
    name: str


class Rich(BaseModel):
    when: datetime = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    day: date = date(2026, 1, 2)
    span: timedelta = timedelta(days=1, microseconds=3)
    price: Decimal = Decimal("1.50")
    key: UUID = UUID(int=7)
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    pair: tuple[int, str] = (1, "a")
    point: Point = Point(1, 2)
    members: frozenset[str] = frozenset({"a", "b"})
    numbers: set[int] = {1, 2}
    by_number: dict[int, str] = {1: "a", 2: "b"}
    queue: deque[int] = deque([1, 2])
    counts: defaultdict[str, int] = Field(default_factory=lambda: defaultdict(int, a=1))
    either: int | float | str = 1.0
    choice: Literal["x", 1] = 1
    plain: Plain = Plain(1, ["a"])
    shape: Shape = {"amount": 1, "name": "n"}
    ratio: float = 0.1 + 0.2
    biggest: int = 2**64 - 1
    lowest: int = -(2**63)


def refusal(state_type: type[Any], state: object) -> str:
    codec: StateCodec[Any] = codec_for(state_type)
    with pytest.raises(StateError) as caught:
        codec.freeze(state)
    return str(caught.value)


@pytest.mark.parametrize(
    ("state_type", "state", "text"),
    [
        (
            Order,
            Order(amount=3, lines=[Line(sku="é")]),
            '{"amount":3,"paid":false,"receipt":null,"lines":[{"sku":"é","price":0.0}],"extra":null}',
        ),
        (Plain, Plain(3, ["a"]), '{"amount":3,"tags":["a"],"extra":null}'),
        (dict, {"b": 1, "a": [1.5, None, True, "x", {}]}, '{"b":1,"a":[1.5,null,true,"x",{}]}'),
        (dict[str, Any], {"n": 2**64 - 1}, '{"n":18446744073709551615}'),
        (dict[str, int], {"a": 1}, '{"a":1}'),
        (Shape, {"name": "n", "amount": 1}, '{"name":"n","amount":1}'),
        (list[int], [1, 2], "[1,2]"),
        (int, 5, "5"),
    ],
)
def test_states_of_every_kind(state_type: type[Any], state: object, text: str) -> None:
    codec: StateCodec[Any] = codec_for(state_type)
    assert codec.freeze(state) == text
    thawed = codec.thaw(text)
    assert thawed == state
    assert type(thawed) is type(state)


def test_typed_fields_keep_their_types() -> None:
    codec = codec_for(Rich)
    thawed = codec.thaw(codec.freeze(Rich()))
    assert thawed == Rich()
    assert {name: type(value) for name, value in thawed} == {name: type(value) for name, value in Rich()}


def test_each_thaw_is_a_new_state() -> None:
    codec = codec_for(Order)
    text = codec.freeze(Order(amount=1, extra={"a": []}))
    codec.thaw(text).extra["a"].append(1)
    assert codec.thaw(text) == Order(amount=1, extra={"a": []})


def test_whole_number_in_a_float_field_means_the_same() -> None:
    line = Line(sku="a")
    line.price = 3
    assert codec_for(Line).thaw(codec_for(Line).freeze(line)).price == 3.0


LOSSES = [
    (math.nan, "is NaN or infinite, which JSON doesn't have"),
    (math.inf, "is NaN or infinite, which JSON doesn't have"),
    ((1, 2), "is a tuple and comes back from JSON as a list"),
    ({1, 2}, "is a set"),
    (b"raw", "is a bytes"),
    (datetime(2026, 1, 2, tzinfo=UTC), "is a datetime and comes back from JSON as a str"),
    (Decimal("1.5"), "is a Decimal"),
    (UUID(int=7), "is a UUID and comes back from JSON as a str"),
    (Colour.RED, "is a Colour and comes back from JSON as a str"),
    (Level.LOW, "is a Level and comes back from JSON as a int"),
    (2**64, "is an integer of more than 64 bits"),
    (-(2**63) - 1, "is an integer of more than 64 bits"),
    ("\ud800", "is text with half a surrogate pair"),
    (Line(sku="a"), "is a Line"),
    (Plain(1), "is a Plain"),
    (Point(1, 2), "is a Point"),
    (object(), "is a object that can't be written as JSON"),
    (len, "can't be written as JSON"),
    (defaultdict(list, a=[1]), "is a defaultdict and comes back from JSON as a dict"),
]


@pytest.mark.parametrize(("value", "what"), LOSSES)
def test_what_json_would_change_is_refused_in_a_model(value: object, what: str) -> None:
    message = refusal(Order, Order(amount=1, extra={"deep": [0, value]}))
    assert message.startswith("field 'extra.deep[1]' ")
    assert what in message


@pytest.mark.parametrize(("value", "what"), LOSSES)
def test_what_json_would_change_is_refused_in_a_dataclass(value: object, what: str) -> None:
    message = refusal(Plain, Plain(1, extra=[value]))
    assert message.startswith("field 'extra[0]' ")
    assert what in message


@pytest.mark.parametrize(("value", "what"), LOSSES)
def test_what_json_would_change_is_refused_in_a_dict(value: object, what: str) -> None:
    message = refusal(dict, {"a": {"b": [1, value]}})
    assert message.startswith("field 'a.b[1]' ")
    assert what in message or "can't be written as JSON" in message


@pytest.mark.parametrize("keys", [{1: "a"}, {None: "a"}, {(1, 2): "a"}, {"a": 1, 2: 3}, {Colour.RED: 1}])
def test_keys_that_are_no_text_are_refused(keys: dict[Any, Any]) -> None:
    assert refusal(dict, {"a": keys}).startswith("field 'a")
    assert refusal(Order, Order(amount=1, extra=keys)).startswith("field 'extra")


def test_members_of_another_type_are_refused() -> None:
    class Tagged(BaseModel):
        tags: set[Any] = set()

    assert "keys or members of type Colour" in refusal(Tagged, Tagged(tags={Colour.RED}))


@pytest.mark.parametrize("value", ["7", 7.0, True, None, [7]])
def test_assignment_of_another_type_is_refused(value: Any) -> None:
    """Pydantic doesn't check assignments; the commit does."""
    order = Order(amount=1)
    order.amount = value
    assert refusal(Order, order).startswith("field 'amount'")
    plain = Plain(1)
    plain.amount = value
    assert refusal(Plain, plain).startswith("field 'amount'")


def test_nan_in_a_float_field_is_called_that() -> None:
    assert refusal(Line, Line(sku="a", price=math.nan)).startswith("field 'price' is NaN or infinite")


def test_infinity_is_refused_even_where_pydantic_would_write_it() -> None:
    class Loose(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan="constants")
        ratio: float

    assert refusal(Loose, Loose(ratio=math.inf)).startswith("field 'ratio' is NaN or infinite")


@pytest.mark.parametrize("state", [{"amount": 1}, Line(sku="a"), None, "text"])
def test_state_of_another_type_is_refused(state: object) -> None:
    assert "the state" in refusal(Order, state) or "field" in refusal(Order, state)


def test_subclass_of_the_state_is_refused() -> None:
    class Special(Order):
        bonus: int = 5

    assert refusal(Order, Special(amount=1)).startswith(
        "the state is a Special and comes back from JSON as a"
    )
    assert refusal(dict, [1]).startswith("the state is not JSON of the graph's type")


def test_what_is_left_out_of_json_is_refused_unless_it_is_the_default() -> None:
    class Hidden(BaseModel):
        amount: int
        secret: str = Field(default="", exclude=True)
        _cache: dict[str, int] = PrivateAttr(default_factory=dict)

    codec = codec_for(Hidden)
    assert codec.thaw(codec.freeze(Hidden(amount=1))) == Hidden(amount=1)
    assert refusal(Hidden, Hidden(amount=1, secret="x")).startswith("field 'secret'")  # noqa: S106 - no password
    cached = Hidden(amount=1)
    cached._cache["a"] = 1
    assert refusal(Hidden, cached).startswith("field '_cache.a' is not kept")


def test_undeclared_keys_of_a_typed_dict_are_refused() -> None:
    assert refusal(Shape, {"amount": 1, "name": "n", "more": 2}).startswith("field 'more' is not kept")


def test_computed_and_cached_properties_are_no_part_of_the_state() -> None:
    class Sum(BaseModel):
        model_config = ConfigDict(extra="forbid")
        a: int

        @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorators on properties
        @property
        def double(self) -> int:
            return self.a * 2

        @cached_property
        def half(self) -> float:
            return self.a / 2

    codec = codec_for(Sum)
    state = Sum(a=2)
    assert state.half == 1.0
    assert codec.freeze(state) == '{"a":2}'


def test_extra_fields_that_a_model_allows_are_kept() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

    codec = codec_for(Open)
    state = Open.model_validate({"a": 1, "b": [2]})
    assert codec.thaw(codec.freeze(state)) == state
    assert refusal(Open, Open.model_validate({"a": 1, "b": (2,)})).startswith("field 'b' is a tuple")


def test_aliases_are_the_names_in_json() -> None:
    class Aliased(BaseModel):
        order_id: str = Field(alias="orderId")

    codec = codec_for(Aliased)
    assert codec.freeze(Aliased(orderId="a")) == '{"orderId":"a"}'
    assert codec.thaw('{"orderId":"a"}').order_id == "a"


def test_state_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for state_type, state in ((dict, {"a": loop}), (Order, Order(amount=1, extra=loop))):
        assert refusal(state_type, state) == "the state is nested too deeply for JSON, or holds itself"


def test_state_nested_beyond_reading_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert refusal(dict, {"a": deep}) == "the state is nested too deeply for JSON, or holds itself"


def test_validator_that_changes_what_it_reads_is_refused() -> None:
    class Growing(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def grow(cls, value: int) -> int:
            return value + 1

    assert refusal(Growing, Growing(amount=1)).startswith(
        "field 'amount' comes back from JSON with another value"
    )


def test_validator_that_raises_anything_is_a_misfit() -> None:
    class Fussy(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def look_up(cls, value: int) -> int:
            return {1: 1}[value]

    with pytest.raises(StateError, match="KeyError"):
        codec_for(Fussy).thaw('{"amount":2}')


# --- thawing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"amount":"7"}', "field 'amount': Input should be a valid integer"),
        ('{"amount":true}', "field 'amount': Input should be a valid integer"),
        ('{"amount":1.0}', "field 'amount': Input should be a valid integer"),
        ("{}", "field 'amount': Field required"),
        ('{"lines":[{"sku":1}]}', "field 'amount': Field required (and 1 more)"),
        ('{"amount":1,"lines":[{"sku":1}]}', "field 'lines.0.sku': Input should be a valid string"),
        ("[]", "the state: Input should be an object"),
    ],
)
def test_json_is_read_strictly(text: str, message: str) -> None:
    """C007, F004: what doesn't fit is named."""
    with pytest.raises(StateError) as caught:
        codec_for(Order).thaw(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"a":NaN}'])
def test_dict_states_are_json_objects(text: str) -> None:
    with pytest.raises(StateError, match="the state is not JSON of the graph's type"):
        codec_for(dict).thaw(text)


def test_errors_don_t_tell_what_is_in_a_state() -> None:
    with pytest.raises(StateError) as caught:
        codec_for(Order).thaw('{"amount":"hunter2"}')
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    order = Order(amount=1)
    order.amount = "hunter2"  # type: ignore[assignment]  # the mistake under test
    assert "hunter2" not in refusal(Order, order)

    class Login(BaseModel):
        password: SecretStr

    assert "hunter2" not in refusal(Login, Login(password=SecretStr("hunter2")))


def test_type_that_is_no_state_is_refused_with_the_graph() -> None:
    class Opaque:
        pass

    with pytest.raises(StateError, match="Opaque can't be the type of a graph's states"):
        Graph(Opaque)


# --- overrides


def test_overrides_replace_top_level_fields_as_they_are() -> None:
    """F001: the JSON type of each is kept, null included."""
    text = '{"amount":1,"receipt":"r","lines":[{"sku":"a"}]}'
    overrides: dict[str, Any] = {"amount": 2, "receipt": None, "lines": [], "new": {"a": True}, "text": "5"}
    assert orjson.loads(apply_overrides(text, overrides)) == {
        "amount": 2,
        "receipt": None,
        "lines": [],
        "new": {"a": True},
        "text": "5",
    }


@pytest.mark.parametrize("text", ["[1]", "5", "null", '"text"'])
def test_state_that_is_no_object_ignores_overrides(text: str) -> None:
    """engine.md 5.2."""
    assert apply_overrides(text, {"a": 1}) == text


def test_no_overrides_leave_the_text_alone() -> None:
    assert apply_overrides('{ "a" : 1.50 }', {}) == '{ "a" : 1.50 }'


def test_override_that_is_no_json_is_refused() -> None:
    bad: Any = {"price": math.nan}
    with pytest.raises(StateError, match="field 'price' is NaN or infinite"):
        apply_overrides("{}", bad)


# --- anything at all

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), children, max_size=4)
    ),
    max_leaves=12,
)
any_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.uuids()
    | st.sampled_from([Colour.RED, Level.LOW]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.tuples(children)
        | st.dictionaries(st.text() | st.integers(), children, max_size=3)
    ),
    max_leaves=8,
)


def same(before: Any, after: Any) -> bool:
    """Equal all the way down, types included: written apart from the engine's own comparison."""
    if type(before) is not type(after):
        return False
    if isinstance(before, dict):
        return [(type(k), k) for k in before] == [(type(k), k) for k in after] and all(
            same(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(same, before, after))
    return bool(before == after)


def round_trip_in_a_dict(value: Any) -> Any:
    codec = codec_for(dict)
    return codec.thaw(codec.freeze({"v": value}))["v"]


def round_trip_in_a_model(value: Any) -> Any:
    codec = codec_for(Order)
    return codec.thaw(codec.freeze(Order(amount=1, extra=value))).extra


@pytest.mark.parametrize("round_trip", [round_trip_in_a_dict, round_trip_in_a_model])
@settings(max_examples=150, deadline=None)
@given(value=json_values)
def test_every_json_value_survives(round_trip: Callable[[Any], Any], value: Any) -> None:
    assert same(round_trip(value), value)


@pytest.mark.parametrize("round_trip", [round_trip_in_a_dict, round_trip_in_a_model])
@settings(max_examples=200, deadline=None)
@given(value=any_values)
def test_any_value_survives_or_is_refused(round_trip: Callable[[Any], Any], value: Any) -> None:
    with contextlib.suppress(StateError):
        assert same(round_trip(value), value)
