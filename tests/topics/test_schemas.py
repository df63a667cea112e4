from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from outcrop.topics import decode_command, encode_command, encode_outcome
from outcrop.topics.errors import BadCommand
from outcrop.topics.ids import new_command_id
from outcrop.topics.messages import (
    AnyCommand,
    Cancel,
    DecisionBody,
    End,
    GraphRef,
    Recover,
    Rerun,
    Resume,
    Run,
    Signal,
    Update,
    Wake,
)
from outcrop.topics.names import TopicNames
from outcrop.topics.schemas import COMMANDS, documents, main, render
from support.embedded import outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[2] / "schema"
COMMON: dict[str, Any] = {
    "command_id": new_command_id(),
    "thread_id": "order-1",
    "sent_at": outcome_of(new_command_id()).started_at,
    "metadata": {"tenant": "acme"},
}
EXAMPLES: list[AnyCommand] = [
    Run(
        **COMMON, graph=GraphRef(id="orders", version="1"), state={"amount": None}, deadline=COMMON["sent_at"]
    ),
    Resume(**COMMON),
    Resume(**COMMON, decision=DecisionBody(approved=True), boundary="approve", expected_sequence=3),
    Resume(**COMMON, answers={"colour": None, "price": {"amount": 3}}, value=[1]),
    Signal(**COMMON, event="paid", payload={"receipt": "r"}, reply_to="replies"),
    Update(**COMMON, values={"amount": 1}, as_node="quote", at_sequence=2, expected_sequence=5),
    Rerun(**COMMON, at_sequence=2, expected_sequence=5),
    End(**COMMON, by="ann"),
    Cancel(**COMMON),
    Wake(**COMMON, sequence=3),
    Recover(**COMMON, sequence=0),
]


def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(documents()[f"{name}.schema.json"], format_checker=FormatChecker())


@pytest.mark.parametrize("name", sorted(documents()))
def test_kept_file_is_what_the_models_say(name: str) -> None:
    """Write them anew with `python -m outcrop.topics.schemas schema`."""
    assert (FOLDER / name).read_bytes() == render(documents()[name])


def test_main_writes_every_document(tmp_path: Path) -> None:
    main(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == set(documents())


@pytest.mark.parametrize("name", [name for name in sorted(documents()) if name.endswith(".schema.json")])
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(documents()[name])


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command.type.value)
def test_what_we_write_fits_its_schema(command: AnyCommand) -> None:
    written = json.loads(encode_command(command))
    _validator(command.type.value).validate(written)
    for always in ("version", "type", "command_id", "thread_id", "sent_at"):
        lacking = {name: value for name, value in written.items() if name != always}
        assert not _validator(command.type.value).is_valid(lacking)
        with pytest.raises(BadCommand):
            decode_command(b"order-1", json.dumps(lacking).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"thread_id": ""},
        {"thread_id": "a\nb"},
        {"version": 2},
        {"type": "resume"},
        {"state": None},
        {"metadata": {"outcrop.token": "1"}},
        {"metadata": {"attempts": "1"}},
        {"metadata": {"": "x"}},
        {"metadata": {"n": 1}},
        {"command_id": "nope"},
        {"graph": {"id": ""}},
    ],
)
def test_schema_and_codec_refuse_alike(change: dict[str, Any]) -> None:
    written = json.loads(encode_command(EXAMPLES[0])) | change
    assert not _validator("run").is_valid(written)
    with pytest.raises(BadCommand):
        decode_command(b"order-1", json.dumps(written).encode())


def test_metadata_key_that_only_looks_reserved_is_free() -> None:
    written = json.loads(encode_command(EXAMPLES[0])) | {
        "metadata": {"errors": "1", "outcrops": "2", "x.error": "3"}
    }
    assert _validator("run").is_valid(written)
    assert decode_command(b"order-1", json.dumps(written).encode())


def test_outcome_fits_its_schema_whatever_a_newer_worker_adds() -> None:
    outcome = outcome_of(new_command_id(), wait={"kind": "event", "event": "paid"}, graph={"id": "orders"})
    _validator("outcome").validate(json.loads(encode_outcome(outcome)) | {"added_later": 1})


def test_asyncapi_names_every_message_and_all_its_references_resolve() -> None:
    document = documents()["asyncapi.json"]
    assert set(document["components"]["messages"]) == {
        *(model.__name__ for model in COMMANDS),
        "Outcome",
        "Event",
        "DeadLetter",
    }
    assert {channel["address"] for channel in document["channels"].values()} == {
        TopicNames().commands,
        TopicNames().outcomes,
        TopicNames().dead,
        TopicNames().events,
    }
    for reference in _references(document):
        file, _, pointer = reference.partition("#")
        target: Any = documents()[file.removeprefix("./")] if file else document
        for step in pointer.strip("/").split("/") if pointer else ():
            target = target[step]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
