from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from outcrop.topics import (
    BadCommand,
    BadOutcome,
    decode_command,
    decode_outcome,
    encode_command,
    encode_outcome,
)
from outcrop.topics.errors import BadKind
from outcrop.topics.messages import (
    AnyCommand,
    Cancel,
    DecisionBody,
    End,
    GraphRef,
    Recover,
    Resume,
    Run,
    Signal,
    Wake,
)
from support.embedded import outcome_of

ID = UUID("01890000-0000-7000-8000-000000000001")
SENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
COMMANDS: list[AnyCommand] = [
    Run(command_id=ID, thread_id="t", sent_at=SENT, graph=GraphRef(id="orders"), state={"amount": None}),
    Run(
        command_id=ID,
        thread_id="t",
        sent_at=SENT,
        graph=GraphRef(id="orders", version="2"),
        state=[1, 2.5, "é", {"deep": [None]}],
        deadline=SENT,
        metadata={"tenant": "acme"},
        reply_to="replies",
    ),
    Resume(command_id=ID, thread_id="t", sent_at=SENT),
    Resume(
        command_id=ID,
        thread_id="t",
        sent_at=SENT,
        decision=DecisionBody(approved=False, by="ann", overrides={"amount": None}),
        boundary="approve",
        expected_sequence=4,
    ),
    Signal(command_id=ID, thread_id="t", sent_at=SENT, event="paid", payload={"receipt": None}),
    End(command_id=ID, thread_id="t", sent_at=SENT, by="ann"),
    Cancel(command_id=ID, thread_id="t", sent_at=SENT),
    Wake(command_id=ID, thread_id="t", sent_at=SENT, sequence=3),
    Recover(command_id=ID, thread_id="t", sent_at=SENT, sequence=0),
]


def _run(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "version": 1,
        "type": "run",
        "command_id": str(ID),
        "thread_id": "t",
        "sent_at": "2026-01-02T03:04:05Z",
        "graph": {"id": "orders"},
        "state": {"amount": 1},
    }
    return json.dumps(
        {name: value for name, value in (fields | changes).items() if value is not ...}
    ).encode()


def _refusal(key: bytes | None, value: bytes | None, **arguments: Any) -> BadCommand:
    with pytest.raises(BadCommand) as caught:
        decode_command(key, value, **arguments)
    return caught.value


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.type.value)
def test_command_comes_back_as_it_went(command: AnyCommand) -> None:
    assert decode_command(b"t", encode_command(command)) == command


def test_absent_fields_stay_off_the_wire_and_nulls_of_the_state_stay_on() -> None:
    assert json.loads(encode_command(COMMANDS[0])) == {
        "version": 1,
        "type": "run",
        "command_id": str(ID),
        "thread_id": "t",
        "sent_at": "2026-01-02T03:04:05Z",
        "metadata": {},
        "graph": {"id": "orders"},
        "state": {"amount": None},
        "on_existing": "refuse",
    }


def test_times_become_utc() -> None:
    command = decode_command(b"t", _run(sent_at="2026-01-02T05:04:05.25+02:00"))
    assert b'"2026-01-02T03:04:05.250000Z"' in encode_command(command)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, BadKind.UNDECODABLE),
        (b"", BadKind.UNDECODABLE),
        (b"\xff\xfe", BadKind.UNDECODABLE),
        (_run()[:-1], BadKind.UNDECODABLE),
        (b"\xef\xbb\xbf" + _run(), BadKind.UNDECODABLE),
        (b'{"state": NaN}', BadKind.UNDECODABLE),
        (_run().replace(b'"amount": 1', b'"amount": 1e999'), BadKind.UNDECODABLE),
        (_run().replace(b'"amount": 1', b'"amount": "\\ud800"'), BadKind.UNDECODABLE),
        (_run().replace(b'"amount": 1', b'"amount": ' + b"[" * 100_000), BadKind.UNDECODABLE),
        (_run().replace(b'"amount": 1', b'"amount": ' + b"[" * 500 + b"]" * 500), BadKind.UNDECODABLE),
        (_run().replace(b'"amount": 1', b'"amount": ' + b"9" * 20), BadKind.INVALID),
        (_run().replace(b'"amount": 1', b'"amount": ' + b"9" * 5000), BadKind.UNDECODABLE),
        (b"[]", BadKind.INVALID),
        (b'"run"', BadKind.INVALID),
        (_run(version=...), BadKind.INVALID),
        (_run(version=2), BadKind.UNSUPPORTED_VERSION),
        (_run(version=True), BadKind.UNSUPPORTED_VERSION),
        (_run(version="1"), BadKind.UNSUPPORTED_VERSION),
        (_run(version=1.0), BadKind.UNSUPPORTED_VERSION),
        (_run(type=...), BadKind.INVALID),
        (_run(type=1), BadKind.INVALID),
        (_run(type="replay"), BadKind.UNKNOWN_TYPE),
        (_run(tyep="run"), BadKind.INVALID),
        (_run(graph={"id": "orders", "verison": "1"}), BadKind.INVALID),
        (_run(graph="orders"), BadKind.INVALID),
        (_run(state=...), BadKind.INVALID),
        (_run(state=None), BadKind.INVALID),
        (_run(command_id="nope"), BadKind.INVALID),
        (_run(command_id=...), BadKind.INVALID),
        (_run(thread_id=""), BadKind.INVALID),
        (_run(thread_id="a\nb"), BadKind.INVALID),
        (_run(thread_id="x" * 257), BadKind.INVALID),
        (_run(sent_at="2026-01-02T03:04:05"), BadKind.INVALID),
        (_run(sent_at=1_767_323_045), BadKind.INVALID),
        (_run(deadline="3600"), BadKind.INVALID),
        (_run(deadline="0001-01-01T00:00:00+14:00"), BadKind.INVALID),
        (_run(on_existing="continue"), BadKind.INVALID),
        (_run(metadata={"tenant": 1}), BadKind.INVALID),
        (_run(metadata={"": "x"}), BadKind.INVALID_METADATA),
        (_run(metadata={"outcrop.token": "1"}), BadKind.INVALID_METADATA),
        (_run(metadata={"strata.recoveries": "1"}), BadKind.INVALID_METADATA),
        (_run(metadata={"error": "x"}), BadKind.INVALID_METADATA),
        (_run(metadata={"error_kind": "x"}), BadKind.INVALID_METADATA),
        (_run(metadata={"attempts": "1"}), BadKind.INVALID_METADATA),
        (_run(metadata={"cancel_reason": "x"}), BadKind.INVALID_METADATA),
    ],
)
def test_what_is_no_command_is_refused_by_kind(value: bytes | None, kind: BadKind) -> None:
    assert _refusal(b"t", value).kind is kind


def test_missing_and_other_keys_are_told_apart() -> None:
    assert _refusal(None, _run()).kind is BadKind.NO_KEY
    assert _refusal(b"other", _run()).kind is BadKind.KEY_MISMATCH
    assert _refusal(b"\xff", _run()).kind is BadKind.KEY_MISMATCH
    assert _refusal(b"", _run()).kind is BadKind.KEY_MISMATCH


def test_limit_is_in_the_refusal_and_counts_bytes() -> None:
    value = _run()
    assert decode_command(b"t", value, limit=len(value))
    refusal = _refusal(b"t", value, limit=len(value) - 1)
    assert refusal.kind is BadKind.TOO_LARGE
    assert f"limit is {len(value) - 1} bytes" in refusal.message
    assert (refusal.thread_id, refusal.command_id) == ("t", ID)


def test_header_that_contradicts_the_body_is_refused() -> None:
    assert decode_command(b"t", _run(), (("outcrop-type", b"run"),))
    assert _refusal(b"t", _run(), headers=(("outcrop-type", b"cancel"),)).kind is BadKind.INVALID


@pytest.mark.parametrize(
    ("key", "value", "thread_id", "command_id"),
    [
        (b"t", _run(type="replay"), "t", ID),
        (b"k", _run(), "t", ID),  # a mismatch: the sender said "t" itself
        (b"k", _run(thread_id=...), "k", ID),
        (b"k", _run(thread_id="a\nb"), None, ID),
        (b"\xff", _run(thread_id=...), None, ID),
        (b"t", _run(command_id=7), "t", None),
        (b"t", b"not JSON", "t", None),
        (None, b"[]", None, None),
    ],
)
def test_refusal_names_the_ids_that_can_be_read(
    key: bytes | None, value: bytes, thread_id: str | None, command_id: UUID | None
) -> None:
    refusal = _refusal(key, value)
    assert (refusal.thread_id, refusal.command_id) == (thread_id, command_id)


def test_refusal_names_the_field_and_never_the_value() -> None:
    secret = "hunter2-" * 40
    refusal = _refusal(b"t", _run(graph={"id": [secret]}, deadline=secret, metadata={"k": {"s": secret}}))
    assert "graph.id" in refusal.message
    assert "deadline" in refusal.message
    assert "metadata.k" in refusal.message
    assert "hunter2" not in refusal.message


def test_strangers_names_are_cut_and_made_printable() -> None:
    message = _refusal(b"t", _run(**{"\u202e\n" + "x" * 5000: 1})).message
    assert message.isprintable()
    assert len(message) < 400


def test_last_of_duplicate_json_keys_counts() -> None:
    command = decode_command(b"t", _run().replace(b'"amount": 1', b'"amount": 1, "amount": 2'))
    assert isinstance(command, Run)
    assert command.state == {"amount": 2}


def test_outcome_comes_back_and_absent_fields_stay_off_the_wire() -> None:
    outcome = outcome_of(ID, state={"receipt": None}, sequence=0, graph={"id": "orders"})
    value = encode_outcome(outcome)
    assert decode_outcome(value) == outcome
    assert json.loads(value) == {
        "version": 1,
        "command_id": str(ID),
        "command_type": "run",
        "thread_id": "t",
        "status": "completed",
        "sequence": 0,
        "state": {"receipt": None},
        "state_omitted": False,
        "graph": {"id": "orders"},
        "metadata": {},
        "worker": "test/1",
        "started_at": "2026-01-02T03:04:05Z",
        "finished_at": "2026-01-02T03:04:05Z",
        "recovered": False,
    }


def test_reader_ignores_what_newer_workers_add_to_outcomes() -> None:
    outcome = outcome_of(
        ID, graph={"id": "orders"}, wait={"kind": "timer"}, error={"kind": "k", "message": "m"}
    )
    fields = json.loads(encode_outcome(outcome))
    for part in (fields, fields["graph"], fields["wait"], fields["error"]):
        part["added_later"] = [1]
    assert decode_outcome(json.dumps(fields).encode()) == outcome


@pytest.mark.parametrize("value", [None, b"", b"[]", b"\xff", b'{"status": "completed"}', b"[" * 100_000])
def test_what_is_no_outcome_is_refused(value: bytes | None) -> None:
    with pytest.raises(BadOutcome):
        decode_outcome(value)


def test_unreadable_outcome_names_its_command() -> None:
    value = encode_outcome(outcome_of(ID)).replace(b'"completed"', b'"invented-later"')
    with pytest.raises(BadOutcome) as caught:
        decode_outcome(value)
    assert caught.value.command_id == ID
