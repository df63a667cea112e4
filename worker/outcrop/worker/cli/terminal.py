"""What the command shows: tables and fields for people, JSON for programs.

A terminal gets rich tables (with the extra `cli`), a pipe gets plain lines with tabs
between the columns, `--json` gets JSON only. No text reaches a terminal with control
characters or markup in it: thread IDs and metadata are whatever a client sent.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from typing import TYPE_CHECKING, TextIO

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_INVISIBLE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def escape(text: str) -> str:
    """The text with every character that doesn't print written as its escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def to_json(value: object, *, indent: bool = False) -> str:
    """JSON text that is safe on a terminal: what doesn't print is escaped inside its strings."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None).decode()
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Screen:
    """Standard output, as this call is to use it."""

    def __init__(self, out: TextIO | None = None, *, as_json: bool = False) -> None:
        self.out = out or sys.stdout
        self.as_json = as_json
        self.draws = not as_json and self.out.isatty() and importlib.util.find_spec("rich") is not None

    def line(self, text: str = "") -> None:
        """One line for people; flushed, so that a follower sees it at once."""
        self.out.write(f"{escape(text)}\n")
        self.out.flush()

    def note(self, text: str) -> None:
        """A remark for people, on standard error so that it never mixes with the answer."""
        sys.stderr.write(f"{escape(text)}\n")
        sys.stderr.flush()

    def columns(self, cells: Sequence[str]) -> None:
        """One line of a stream, with tabs between its cells."""
        self.out.write("\t".join(map(escape, cells)) + "\n")
        self.out.flush()

    def document(self, value: object) -> None:
        """The one JSON document of the call."""
        self.out.write(f"{to_json(value, indent=True)}\n")
        self.out.flush()

    def item(self, value: object) -> None:
        """One JSON line of a stream."""
        self.out.write(f"{to_json(value)}\n")
        self.out.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Rows under their column names."""
        safe = [[escape(cell) for cell in row] for row in rows]
        if not self.draws:
            self.out.writelines("\t".join(row) + "\n" for row in [list(columns), *safe])
            self.out.flush()
            return
        from rich.console import Console  # noqa: PLC0415 - an extra
        from rich.table import Table  # noqa: PLC0415 - an extra
        from rich.text import Text  # noqa: PLC0415 - an extra

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in safe:
            table.add_row(*(Text(cell) for cell in row))
        Console(file=self.out).print(table)

    def fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values, a line each."""
        shown = list(pairs)
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            self.line(f"{name:<{width}}  {value}")


def complain(code: str, message: str) -> None:
    """One line on standard error: what happened, and its stable code."""
    sys.stderr.write(f"outcrop: {escape(message)} [{code}]\n")
