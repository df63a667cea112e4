"""The canonical JSON of a checkpoint: golden rows, versions, refusals, and its JSON Schema."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.stores import (
    Checkpoint,
    CorruptRow,
    Decision,
    GraphIdentity,
    InvalidRequest,
    Status,
    Wait,
    WaitKind,
)
from outcrop.stores.codec import (
    READABLE_VERSIONS,
    decode,
    encode,
    same_as,
    schema_version_for,
)
from outcrop.stores.contract import SHAPES, sample

GOLDEN = Path(__file__).parents[1] / "golden" / "rows"
SCHEMA = Path(__file__).parents[2] / "schema" / "checkpoint.schema.json"
DECISION = Decision(
    boundary="B", is_approved=True, reviewer="", overrides={}, decided_at="2026-01-02T03:04:05Z"
)
WAIT = Wait(WaitKind.TIMER, wake_at="2026-01-02T03:04:05Z")


@pytest.mark.parametrize("name", SHAPES)
def test_golden_rows_are_written_and_read(name: str) -> None:
    text = (GOLDEN / f"{name.replace(' ', '-')}.json").read_text(encoding="utf-8").removesuffix("\n")
    assert encode(SHAPES[name]) == text
    assert decode(text) == decode(text.encode())
    assert same_as(decode(text), SHAPES[name])


def test_every_golden_row_has_a_shape() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {name.replace(" ", "-") for name in SHAPES}


def test_keys_are_in_the_structs_order_and_optional_ones_absent() -> None:
    assert list(json.loads(encode(sample()))) == [
        "schema_version", "thread_id", "status", "suspended_node", "next_node", "frozen_state",
        "metadata", "created_at", "resumed_at",
    ]  # fmt: skip
    everything = sample(nested=sample("W"), decision=DECISION, wait=WAIT, graph=GraphIdentity("g"))
    assert list(json.loads(encode(everything)))[9:] == ["nested", "decision", "wait", "graph"]


def test_text_is_raw_utf8_with_short_escapes() -> None:
    text = encode(sample(metadata={"k": 'é 日本語 🚀 / \u2028 \x7f " \\ \b\t\n\f\r \x01'}))
    assert 'é 日本語 🚀 / \u2028 \x7f \\" \\\\ \\b\\t\\n\\f\\r \\u0001' in text


def test_readers_take_any_order_whitespace_and_unknown_keys() -> None:
    text = """ { "future": {"a": 1}, "created_at": "2026-01-02T03:04:05Z", "frozen_state": { "a" : 1 },
                 "status": "running", "thread_id": "t", "schema_version": "1.7.0" } """
    row = decode(text)
    assert row == Checkpoint(
        schema_version="1.7.0", thread_id="t", status=Status.RUNNING, suspended_node=None,
        next_node=None, frozen_state='{"a":1}', metadata=None, created_at="2026-01-02T03:04:05Z",
    )  # fmt: skip


def test_null_optional_keys_are_absent_ones() -> None:
    fields = json.loads(encode(sample()))
    nulls = dict.fromkeys(("nested", "decision", "wait", "graph"))
    assert decode(json.dumps(fields | nulls)) == sample()


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "status": ({"status": "paused"}, "unknown checkpoint status 'paused' in the checkpoint log"),
    "kind": (
        {"wait": {"kind": "owl", "event_type": None, "wake_at": None}},
        "unknown wait kind 'owl' in the checkpoint log",
    ),
    "metadata value": ({"metadata": {"n": 1}}, "metadata 'n' in the checkpoint log isn't a string"),
    "metadata": ({"metadata": []}, "metadata in the checkpoint log isn't an object"),
    "thread": ({"thread_id": 7}, "'thread_id' in the checkpoint log isn't a text"),
    "created_at": ({"created_at": None}, "'created_at' in the checkpoint log isn't a text"),
    "node": ({"next_node": 1}, "'next_node' in the checkpoint log isn't a text"),
    "decision": ({"decision": {}}, "a decision in the checkpoint log has no boolean 'is_approved'"),
    "graph": ({"graph": {"version": "1"}}, "'id' in the checkpoint log isn't a text"),
    "nested": ({"nested": []}, "a checkpoint in the checkpoint log isn't an object"),
    "nested status": (
        {"nested": json.loads(encode(sample())) | {"status": "x"}},
        "unknown checkpoint status 'x' in the checkpoint log",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_row_is_refused_and_invalid_by_the_schema(name: str) -> None:
    changes, message = BROKEN[name]
    fields = json.loads(encode(sample())) | changes
    with pytest.raises(CorruptRow) as refusal:
        decode(json.dumps(fields))
    assert str(refusal.value) == message
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(fields, json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("key", ["schema_version", "thread_id", "status", "frozen_state", "created_at"])
def test_a_required_key_is_required_by_codec_and_schema(key: str) -> None:
    fields = json.loads(encode(sample()))
    del fields[key]
    with pytest.raises(CorruptRow):
        decode(json.dumps(fields))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(fields, json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("text", ["", "{", "nul", '{"a":NaN}', "[1]", '"text"', "\ufeff{}"])
def test_what_is_no_row_is_refused(text: str) -> None:
    with pytest.raises(CorruptRow):
        decode(text)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_valid_by_the_schema(name: str) -> None:
    jsonschema.validate(json.loads(encode(SHAPES[name])), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("at", ["2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05+00:00", "2026-01-02"])
def test_the_schema_refuses_times_that_missort(at: str) -> None:
    fields = json.loads(encode(sample())) | {"created_at": at}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(fields, json.loads(SCHEMA.read_text()))


def test_the_schema_is_shipped_with_the_package() -> None:
    from importlib.resources import files  # noqa: PLC0415 - what this test is about

    shipped = files("outcrop.stores").joinpath("checkpoint.schema.json").read_text(encoding="utf-8")
    assert shipped == SCHEMA.read_text(encoding="utf-8")
    jsonschema.Draft202012Validator.check_schema(json.loads(shipped))


VERSIONS: dict[str, tuple[Checkpoint, str]] = {
    "completed": (sample(), "1.0.0"),
    "running beats everything": (
        sample(status=Status.RUNNING, graph=GraphIdentity("g"), decision=DECISION, nested=sample()), "1.7.0"
    ),
    "graph": (sample(status=Status.ENDED, graph=GraphIdentity("g")), "1.6.0"),
    "nested graph": (sample(status=Status.FAILED, nested=sample(graph=GraphIdentity("g"))), "1.6.0"),
    "ended": (sample(status=Status.ENDED, wait=WAIT, decision=DECISION), "1.4.0"),
    "wait": (sample(status=Status.INTERRUPTED, wait=WAIT, decision=DECISION), "1.5.0"),
    "nested wait": (sample(status=Status.INTERRUPTED, nested=sample(wait=WAIT, decision=DECISION)), "1.5.0"),
    "decision": (sample(status=Status.CANCELLED, decision=DECISION), "1.3.0"),
    "nested decision": (sample(status=Status.FAILED, nested=sample(decision=DECISION)), "1.3.0"),
    "cancelled": (sample(status=Status.CANCELLED), "1.2.0"),
    "failed over cancelled": (sample(status=Status.FAILED, nested=sample(status=Status.CANCELLED)), "1.2.0"),
    "nested": (sample(status=Status.FAILED, nested=sample(status=Status.FAILED)), "1.1.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", VERSIONS)
def test_a_level_gets_the_lowest_version_that_fits(name: str) -> None:
    row, version = VERSIONS[name]
    assert schema_version_for(row) == version


def test_engines_read_eight_versions() -> None:
    assert sorted(READABLE_VERSIONS) == [f"1.{minor}.0" for minor in range(8)]


def test_same_values_in_other_words_are_the_same() -> None:
    """H10."""
    row = sample(frozen_state='{"a":[1.0,2],"b":{"c":null}}', metadata={"x": "1", "y": "2"})
    other = replace(row, frozen_state='{ "b": {"c": null}, "a": [1.00, 2] }', metadata={"y": "2", "x": "1"})
    assert same_as(row, other)


@pytest.mark.parametrize(
    "changes",
    [
        {"frozen_state": '{"n":1.0}'},
        {"frozen_state": '{"n":true}'},
        {"metadata": {}},
        {"resumed_at": "2026-01-02T03:04:05Z"},
        {"nested": sample()},
        {"status": Status.FAILED},
    ],
)
def test_another_value_is_not_the_same(changes: dict[str, Any]) -> None:
    """H10."""
    assert not same_as(sample(), replace(sample(), **changes))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"deep": [float("-inf")]}])
def test_overrides_that_json_cannot_hold_are_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="the overrides at 'B' have no JSON form"):
        encode(sample(decision=replace(DECISION, overrides={"x": value})))


names = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
states = st.recursive(
    st.none() | st.booleans() | numbers | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
rows = st.recursive(
    st.builds(
        sample,
        names,
        st.sampled_from(Status),
        suspended_node=st.none() | names,
        next_node=st.none() | names,
        frozen_state=states.map(lambda state: json.dumps(state, ensure_ascii=False)),
        metadata=st.none() | st.dictionaries(names, names, max_size=3),
        wait=st.none() | st.builds(Wait, st.sampled_from(WaitKind), st.none() | names, st.none() | names),
        graph=st.none() | st.builds(GraphIdentity, names, st.none() | names),
    ),
    lambda inner: st.builds(lambda row, child: replace(row, nested=child), inner, inner),
    max_leaves=3,
)


@given(rows)
@settings(max_examples=150, deadline=None)
def test_any_row_comes_back(row: Checkpoint) -> None:
    assert same_as(decode(encode(row)), row)


@given(st.binary(max_size=64) | states.map(json.dumps).map(str.encode))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_row_or_refused(data: bytes) -> None:
    with suppress(CorruptRow):
        decode(data)


def test_a_state_nested_too_deep_is_a_corrupt_row() -> None:
    text = encode(sample("t", frozen_state="0")).replace(
        '"frozen_state":0', f'"frozen_state":{"[" * 600}{"]" * 600}'
    )
    with pytest.raises(CorruptRow, match="can't be written again"):
        decode(text)
