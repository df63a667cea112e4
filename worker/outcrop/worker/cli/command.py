"""The entry point: builds the parser, runs one command, turns what went wrong into one line.

The only place that ends with an exit code or shows a traceback (on request).
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from outcrop.stores import OutcropError

from . import checkpoints, demonstration, events, graphs, outcomes, send, stores, threads, topics, workers
from .exits import EPILOG, Exit, exit_of
from .options import Parser
from .terminal import complain

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEBUG = "OUTCROP_DEBUG"
_GROUPS = (demonstration, workers, topics, send, outcomes, events, threads, checkpoints, graphs, stores)
_DESCRIPTION = """\
Durable threads on Kafka: run workers, send them commands, look at what they did.

start here:
  outcrop demo                            everything at once, on this machine
  outcrop dev MODULE:NAME                 your own graphs, on an embedded broker
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; usage errors raise `SystemExit(2)`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a thread ID may hold what the terminal's encoding doesn't
            stream.reconfigure(errors="backslashreplace")
    _quieten()
    arguments = _parser().parse_args(argv)
    try:
        done = arguments.act(arguments)
        return int(asyncio.run(done) if asyncio.iscoroutine(done) else done)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; what is buffered must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except OutcropError as error:
        _show_traceback()
        complain(error.code, " ".join((str(error), *getattr(error, "__notes__", ()))))
        return exit_of(error)
    except Exception as error:  # noqa: BLE001 - the last resort: one line instead of a traceback
        _show_traceback()
        complain("OUTCROP_INTERNAL", f"{type(error).__name__}: {error} (OUTCROP_DEBUG=1 shows where)")
        return Exit.FAILED


def _quieten() -> None:
    """Keep the Kafka client's own complaints off standard error: the one line says it better."""
    if os.environ.get(_DEBUG) != "1":
        logging.getLogger("aiokafka").addHandler(logging.NullHandler())


def _parser() -> Parser:
    parser = Parser(prog="outcrop", description=_DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"outcrop {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in _GROUPS:
        group.add_commands(commands)
    return parser


def _version() -> str:
    try:
        return version("outcrop")
    except PackageNotFoundError:
        return "(not installed)"


def _show_traceback() -> None:
    if os.environ.get(_DEBUG) == "1":
        traceback.print_exc()
