"""How arguments are read."""

from __future__ import annotations

import argparse
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.worker.cli import main, options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_json_comes_from_the_argument_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"a": 1}')

    class _In:
        buffer = io.BytesIO(b"[2]")

    monkeypatch.setattr("sys.stdin", _In())
    assert options.json_source('"x"') == "x"
    assert options.json_source(f"@{file}") == {"a": 1}
    assert options.json_source("-") == [2]


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (options.text_pair, "a=b=c", ("a", "b=c")),
        (options.text_pair, "a=", ("a", "")),
        (options.json_pair, "a=[1]", ("a", [1])),
        (options.graph_ref, "orders", ("orders", None)),
        (options.graph_ref, "orders@2@x", ("orders", "2@x")),
        (options.count, "7", 7),
        (options.sequence, "0", 0),
        (options.seconds, "1.5", 1.5),
        (options.instant, "2026-01-31T09:30:00Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
    ],
)
def test_reads(read: Callable[[str], Any], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (options.text_pair, "a"),
        (options.text_pair, "=b"),
        (options.json_pair, "a=b"),
        (options.json_source, "{"),
        (options.json_source, "NaN"),
        (options.json_source, "@/no/such/file"),
        (options.json_object, "[1]"),
        (options.graph_ref, "orders@"),
        (options.graph_ref, "@1"),
        (options.count, "0"),
        (options.count, "²"),
        (options.sequence, "-1"),
        (options.seconds, "0"),
        (options.seconds, "nan"),
        (options.seconds, "inf"),
        (options.instant, "2026-01-31T09:30:00"),
        (options.instant, "tomorrow"),
        (options.command_id, "1"),
    ],
)
def test_refuses(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


def test_a_bad_state_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["send", "run", "t", "--graph", "g", "--state", '{"password": hunter2}'])
    assert ended.value.code == 2
    assert "hunter2" not in capsys.readouterr().err


def test_control_characters_in_arguments_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["thread", "list", "--meta", "\x1b[2J"])
    assert "\x1b" not in capsys.readouterr().err


def test_abbreviations_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["thread", "list", "--stat", "failed"])
