"""The entry point: help, exit codes and the one line that an error gets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import CorruptRow, InvalidRequest, NewerSchema, OutcropError, StoreError, Unavailable
from outcrop.topics import BrokerUnreachable, OutcomeTimeout, TopicMissing
from outcrop.topics.ids import new_command_id
from outcrop.worker.cli import command, main
from outcrop.worker.cli.exits import Exit, NotFound, UsageError, exit_of
from outcrop.worker.errors import GraphsNotFound, SettingsInvalid, TopicsMissing

if TYPE_CHECKING:
    from argparse import Namespace

COMMANDS = [
    ["demo"],
    ["worker"],
    ["dev"],
    ["topics", "create"],
    ["topics", "check"],
    *(["send", verb] for verb in ("run", "resume", "signal", "end", "cancel")),
    ["outcomes"],
    ["store", "check"],
    ["store", "copy"],
    ["thread", "list"],
    ["thread", "inspect"],
    *(["checkpoint", verb] for verb in ("log", "diff", "replay")),
]


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*argv, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "examples:\n  " in said
    assert "exit codes:" in said


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (InvalidRequest("x"), 2),
        (SettingsInvalid("x"), 2),
        (GraphsNotFound("x"), 2),
        (StoreError("x"), 3),
        (Unavailable("x"), 3),
        (BrokerUnreachable("b", "x"), 3),
        (NotFound("x"), 4),
        (TopicMissing("x"), 4),
        (TopicsMissing(["x"]), 4),
        (OutcomeTimeout("t", new_command_id(), 1.0), 5),
        (CorruptRow("x"), 1),
        (NewerSchema("x"), 1),
        (OutcropError("x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes(error: OutcropError, code: int) -> None:
    assert exit_of(error) == code


def _acting(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    class _Parser:
        def parse_args(self, _: object) -> Namespace:
            from argparse import Namespace  # noqa: PLC0415 - the other import is for types only

            return Namespace(act=act)

    monkeypatch.setattr(command, "_parser", _Parser)


def _raising(error: BaseException) -> Any:
    def act(_: object) -> int:
        raise error

    return act


def test_an_error_is_one_line_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _acting(monkeypatch, _raising(NotFound("no thread 'a\nb'")))
    assert main([]) == Exit.NOT_FOUND
    assert capsys.readouterr().err == "outcrop: no thread 'a\\nb' [OUTCROP_NOT_FOUND]\n"


def test_a_bug_is_one_line_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _acting(monkeypatch, _raising(ZeroDivisionError("oops")))
    assert main([]) == Exit.FAILED
    assert capsys.readouterr().err.startswith("outcrop: ZeroDivisionError: oops")
    monkeypatch.setenv("OUTCROP_DEBUG", "1")
    assert main([]) == Exit.FAILED
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    _acting(monkeypatch, _raising(error))
    assert main([]) == Exit.INTERRUPTED


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Any) -> None:
    script = f"{sys.executable} -m outcrop.worker.cli --help | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: outcrop")
    assert "Traceback" not in done.stderr
