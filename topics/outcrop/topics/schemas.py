"""JSON Schemas of the messages and an AsyncAPI document of the topics, from the models.

`python -m outcrop.topics.schemas FOLDER` writes them; the models are the source, a test fails when
the folder's files differ. Pure but for `main`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from . import headers
from .events import Event
from .messages import VERSION, Cancel, End, Outcome, Recover, Rerun, Resume, Run, Signal, Update, Wake
from .names import TopicNames

if TYPE_CHECKING:
    from pydantic import BaseModel

_Object: TypeAlias = dict[str, Any]

COMMANDS: Final[tuple[type[BaseModel], ...]] = (
    Run,
    Resume,
    Signal,
    Update,
    Rerun,
    End,
    Cancel,
    Wake,
    Recover,
)
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_FORMAT: Final = "application/schema+json;version=draft-2020-12"


def documents() -> dict[str, _Object]:
    """Every document by its file name."""
    files = {_file(model): _schema(model, ("version", "type")) for model in COMMANDS}
    files[_file(Outcome)] = _schema(Outcome, ("version",))
    files[_file(Event)] = _schema(Event, ("version",))
    files["asyncapi.json"] = _asyncapi()
    return files


def render(document: _Object) -> bytes:
    """The document as the text that is kept in a repository."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _file(model: type[BaseModel]) -> str:
    return f"{model.__name__.lower()}.schema.json"


def _schema(model: type[BaseModel], always: tuple[str, ...]) -> _Object:
    """The model's schema; `always` have defaults in Python and must be on the wire all the same."""
    schema = model.model_json_schema()
    schema["required"] = [*always, *schema["required"]]
    return {"$schema": _DIALECT, **schema}


def _asyncapi() -> _Object:
    names = TopicNames()
    commands = [model.__name__ for model in COMMANDS]
    messages = {model.__name__: _message(model) for model in COMMANDS}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Outcrop threads",
            "version": str(VERSION),
            "description": "Commands to durable threads, their outcomes and events. A key is a thread ID.",
        },
        "defaultContentType": headers.JSON.decode(),
        "channels": {
            "commands": _channel(names.commands, "What clients and drivers ask of threads.", commands),
            "outcomes": _channel(names.outcomes, "One answer for each command.", ["Outcome"]),
            "events": _channel(names.events, "What happens in runs; off unless asked for.", ["Event"]),
            "dead": _channel(names.dead, "Messages that can never be handled.", ["DeadLetter"]),
        },
        "operations": {
            "receiveCommand": _operation("receive", "commands"),
            "sendOutcome": _operation("send", "outcomes"),
            "sendEvent": _operation("send", "events"),
            "sendDeadLetter": _operation("send", "dead"),
        },
        "components": {
            "messages": {
                **messages,
                "Outcome": _message(Outcome),
                "Event": _message(Event, "/run_id"),
                "DeadLetter": _dead_letter(),
            }
        },
    }


def _channel(address: str, description: str, messages: list[str]) -> _Object:
    return {
        "address": address,
        "description": description,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
    }


def _operation(action: str, channel: str) -> _Object:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}


def _message(model: type[BaseModel], correlation: str = "/command_id") -> _Object:
    return {
        "summary": (model.__doc__ or "").partition("\n")[0],
        "correlationId": {"location": f"$message.payload#{correlation}"},
        "headers": _headers((headers.CONTENT_TYPE, headers.TYPE), (headers.TRACEPARENT,)),
        "payload": {"schemaFormat": _FORMAT, "schema": {"$ref": f"./{_file(model)}"}},
        "bindings": _KEY,
    }


def _dead_letter() -> _Object:
    return {
        "summary": "A message as it came (its value cut at a limit), with why and from where in its headers.",
        "headers": _headers(headers.DEAD_LETTER, ()),
        "payload": {},
    }


def _headers(required: tuple[str, ...], optional: tuple[str, ...]) -> _Object:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in (*required, *optional)},
        "required": list(required),
    }


_KEY: Final[_Object] = {"kafka": {"key": {"type": "string", "description": "The thread ID, in UTF-8."}}}


def main(folder: str) -> None:
    """Write every document into a folder."""
    for name, document in documents().items():
        (Path(folder) / name).write_bytes(render(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
