"""How the command ends: exit codes, and the error that carries one.

Scripts depend on the numbers, so they never change their meaning. A worker adds its own
(see `outcrop worker --help`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from outcrop.stores import CorruptRow, InvalidRequest, NewerSchema, OutcropError, StoreError
from outcrop.topics.errors import BadCommand, BrokerUnreachable, MessageTooLarge, OutcomeTimeout, TopicMissing
from outcrop.worker.errors import GraphsNotFound, SettingsInvalid, TopicsMissing


class Exit(IntEnum):
    """What the process tells its caller."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    TIMED_OUT = 5
    INTERRUPTED = 130


EPILOG = """\
exit codes:
  0    done
  1    failed: an error, an outcome that is failed or refused (with --wait), or a store
       (check, copy) that lacks something
  2    usage: an argument or a setting is off
  3    the broker or the store can't be reached
  4    no such thread, checkpoint or topic
  5    no outcome came in time (with --wait)
  130  stopped by Ctrl-C
errors are one line on stderr; OUTCROP_DEBUG=1 adds the traceback."""


class UsageError(OutcropError):
    """An argument or an environment variable is missing or off."""

    code: ClassVar[str] = "OUTCROP_USAGE"


class NotFound(OutcropError):
    """The store has no such thread or checkpoint."""

    code: ClassVar[str] = "OUTCROP_NOT_FOUND"


def exit_of(error: OutcropError) -> Exit:
    """The exit code that an error of the project ends the command with."""
    match error:
        case (
            UsageError()
            | BadCommand()
            | MessageTooLarge()
            | InvalidRequest()
            | SettingsInvalid()
            | GraphsNotFound()
        ):
            return Exit.USAGE
        case NotFound() | TopicMissing() | TopicsMissing():
            return Exit.NOT_FOUND
        case CorruptRow() | NewerSchema():
            return Exit.FAILED
        case StoreError() | BrokerUnreachable():
            return Exit.UNREACHABLE
        case OutcomeTimeout():
            return Exit.TIMED_OUT
        case _:
            return Exit.FAILED
