"""Arguments that several commands share, and how their texts are read.

Every reader raises `ArgumentTypeError` with what was expected, never the text of a state.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

import orjson

from .exits import EPILOG
from .terminal import escape

if TYPE_CHECKING:
    from typing import TypeAlias

    from outcrop.stores import Json

    Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - argparse gives it no other name  # pyright: ignore[reportPrivateUsage]


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations and keeps control characters off the terminal."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # handed through to argparse as they came  # pyright: ignore[reportArgumentType]

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and end with the usage exit code."""
        super().error(escape(message))


def add_command(
    commands: Subparsers, name: str, summary: str, *, examples: str = "", details: str = ""
) -> Parser:
    """A command with its help: what it does, examples, exit codes."""
    shown = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.{f' {details}' if details else ''}",
        epilog=f"examples:\n{shown}\n\n{EPILOG}" if shown else EPILOG,
    )


def add_json(parser: argparse.ArgumentParser, what: str = "one JSON document") -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", dest="as_json", help=f"print {what}")


def text_pair(text: str) -> tuple[str, str]:
    """`KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, not '{text}'")
    return key, value


def json_pair(text: str) -> tuple[str, Json]:
    """`FIELD=JSON`."""
    key, value = text_pair(text)
    return key, parse_json(value, f"the value of '{key}'")


def json_source(text: str) -> Json:
    """JSON itself, `@FILE` for a file that holds it, or `-` for standard input."""
    if text == "-":
        return parse_json(sys.stdin.buffer.read(), "standard input")
    if not text.startswith("@"):
        return parse_json(text, "the argument")
    try:
        content = Path(text[1:]).read_bytes()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't read '{text[1:]}': {error.strerror}") from error
    return parse_json(content, f"'{text[1:]}'")


def json_object(text: str) -> dict[str, Json]:
    """A JSON object, given as `json_source` says."""
    value = json_source(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return value


def parse_json(text: str | bytes, what: str) -> Json:
    """The value of a JSON text."""
    try:
        value: Json = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(
            f"{what} isn't JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    return value


def graph_ref(text: str) -> tuple[str, str | None]:
    """`ID` or `ID@VERSION`."""
    graph, at, version = text.partition("@")
    if not graph or (at and not version):
        raise argparse.ArgumentTypeError(f"expected ID or ID@VERSION, not '{text}'")
    return graph, version or None


def count(text: str) -> int:
    """A whole number from 1."""
    return _whole(text, 1)


def sequence(text: str) -> int:
    """A whole number from 0."""
    return _whole(text, 0)


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, not '{text}'")
    return value


def instant(text: str) -> datetime:
    """An RFC 3339 time with its offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 2026-01-31T09:30:00Z, not '{text}'")
    return moment


def command_id(text: str) -> UUID:
    """A UUID."""
    try:
        return UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a UUID, not '{text}'") from None


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"expected a whole number from {least}, not '{text}'")
    return int(text)
