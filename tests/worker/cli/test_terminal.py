"""What may reach a terminal, and what a pipe gets."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

from outcrop.topics.events import Event
from outcrop.worker.cli.events import event_columns, event_document
from outcrop.worker.cli.terminal import Screen, escape, to_json


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_text_that_prints_stays() -> None:
    assert escape("Ünïcode 日本 [bold]x[/] \\n") == "Ünïcode 日本 [bold]x[/] \\n"


def test_what_does_not_print_is_escaped() -> None:
    assert escape("a\x1b[2J\nb\t\u2028\x7f\ud800") == "a\\x1b[2J\\nb\\t\\u2028\\x7f\\ud800"


def test_json_keeps_its_value_and_loses_its_controls() -> None:
    value = {"id": "\x1b[2J\u202e\x9b\x7f", "text": "日本"}
    text = to_json(value)
    assert json.loads(text) == value
    assert text.isprintable()


def test_a_pipe_gets_tabs() -> None:
    out = io.StringIO()
    Screen(out).table(("A", "B"), [("1", "x\ty")])
    assert out.getvalue() == "A\tB\n1\tx\\ty\n"


def test_a_terminal_gets_a_table_without_markup() -> None:
    out = _Tty()
    Screen(out).table(("A", "B"), [("[red]1[/red]", "\x1b[2J")])
    assert "[red]1[/red]" in out.getvalue()
    assert "\\x1b[2J" in out.getvalue()
    assert "A\tB" not in out.getvalue()


def test_fields_line_up() -> None:
    out = io.StringIO()
    Screen(out).fields([("a", "1"), ("long", "2\n")])
    assert out.getvalue() == "a     1\nlong  2\\n\n"


def test_an_event_is_shown_whatever_its_node_streamed() -> None:
    """Python's JSON writer takes integers that orjson doesn't."""
    number = 2**70
    event = Event(
        type="token", thread_id="t", run_id="r", sequence=1, at=datetime.now(UTC), data={"content": number}
    )
    assert event_columns(event)[-1] == f'{{"content":{number}}}'
    assert json.loads(to_json(event_document(event)))["data"] == {"content": number}
