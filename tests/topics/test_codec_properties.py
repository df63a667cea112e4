"""Any bytes are a command or a refusal, and what is read can be written again."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from outcrop.topics import BadCommand, BadOutcome, decode_command, decode_outcome, encode_command
from outcrop.topics.errors import BadKind
from outcrop.topics.keys import is_thread_id
from outcrop.topics.messages import CommandType

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ZONES = st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours)))
TYPES = st.sampled_from([kind.value for kind in CommandType])
WELL_FORMED: dict[str, st.SearchStrategy[Any]] = {
    "version": st.just(1),
    "type": TYPES,
    "command_id": st.uuids().map(str),
    "thread_id": st.just("t"),
    "sent_at": st.datetimes(timezones=ZONES).map(lambda at: at.isoformat()),
    "metadata": st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
    "graph": st.fixed_dictionaries({"id": st.text(max_size=4)}),
    "state": JSON,
    "decision": st.fixed_dictionaries({"approved": st.booleans()}),
    "event": st.text(max_size=4),
    "payload": st.dictionaries(st.text(max_size=4), JSON, max_size=2),
    "sequence": st.integers(-1, 2**70),
    "deadline": st.text(max_size=30),
}
# Near misses: each field right, of another type, or not there.
NEARLY = st.fixed_dictionaries({}, optional={name: right | JSON for name, right in WELL_FORMED.items()})
RIGHT = st.fixed_dictionaries(
    {name: WELL_FORMED[name] for name in ("version", "type", "command_id", "thread_id", "sent_at")},
    optional={name: WELL_FORMED[name] for name in ("metadata", "graph", "state", "event", "sequence")},
)
KEYS = st.none() | st.just(b"t") | st.binary(max_size=8)


def _check(key: bytes | None, value: bytes | None, limit: int = 1_000_000) -> None:
    try:
        command = decode_command(key, value, limit=limit)
    except BadCommand as error:
        refusal = error
    else:
        written = encode_command(command)
        assert decode_command(key, written, limit=len(written)) == command
        return
    assert refusal.kind in BadKind
    assert refusal.message.isprintable()
    assert len(refusal.message) < 500
    assert refusal.thread_id is None or is_thread_id(refusal.thread_id)


@settings(max_examples=1500, deadline=None)
@given(KEYS, st.none() | st.binary(max_size=200))
@example(b"t", b"\x00")
def test_any_bytes(key: bytes | None, value: bytes | None) -> None:
    _check(key, value)


@settings(max_examples=800, deadline=None)
@given(KEYS, JSON)
def test_any_json(key: bytes | None, value: Any) -> None:
    _check(key, json.dumps(value).encode())


@settings(max_examples=1000, deadline=None)
@given(KEYS, NEARLY | RIGHT, st.integers(0, 400) | st.just(1_000_000))
def test_near_misses(key: bytes | None, fields: dict[str, Any], limit: int) -> None:
    _check(key, json.dumps(fields).encode(), limit)


@settings(max_examples=500, deadline=None)
@given(RIGHT, st.integers(0, 500), st.binary(max_size=4))
def test_damaged_commands(fields: dict[str, Any], place: int, damage: bytes) -> None:
    value = json.dumps(fields, ensure_ascii=False).encode(errors="surrogatepass")
    _check(b"t", value[:place] + damage)
    _check(b"t", value[:place] + damage + value[place:])


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=100) | (JSON | NEARLY).map(lambda value: json.dumps(value).encode()))
def test_any_outcome_bytes(value: bytes) -> None:
    try:
        decode_outcome(value)
    except BadOutcome as error:
        told = str(error)
    else:
        return
    assert told.isprintable()
