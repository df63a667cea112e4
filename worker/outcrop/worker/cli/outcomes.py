"""`outcrop outcomes`: follow what comes of commands, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from outcrop.topics import BadOutcome, OutcomeStatus, decode_outcome

from .answers import outcome_columns, outcome_document
from .configuration import BROKER, add_settings, settings_of
from .exits import Exit
from .options import add_command, add_json, count
from .terminal import Screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncGenerator

    from outcrop.topics import Outcome
    from outcrop.worker.settings import Settings

    from .options import Subparsers

_EXAMPLES = """
outcrop outcomes
outcrop outcomes --from-start --status failed --status refused --json
outcrop outcomes --thread order-1042 --limit 1
"""


def add_commands(commands: Subparsers) -> None:
    """`outcomes`."""
    parser = add_command(
        commands,
        "outcomes",
        "follow the outcomes of all commands, until Ctrl-C",
        examples=_EXAMPLES,
        details="Columns: finished, status, thread, command, node, sequence, reason.",
    )
    parser.add_argument("--from-start", action="store_true", help="begin with the oldest outcome kept")
    parser.add_argument(
        "--thread", action="append", default=[], metavar="THREAD", help="only of this thread (repeat)"
    )
    parser.add_argument(
        "--status",
        action="append",
        default=[],
        choices=[status.value for status in OutcomeStatus],
        help="only with this status (repeat)",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="stop after N outcomes")
    add_settings(parser, BROKER)
    add_json(parser, "one JSON line for each outcome")
    parser.set_defaults(act=_follow_until_interrupted)


def _follow_until_interrupted(arguments: Namespace) -> Exit:
    with contextlib.suppress(KeyboardInterrupt):  # the way to end it, so no failure
        asyncio.run(_follow(arguments))
    return Exit.OK


async def _follow(arguments: Namespace) -> None:
    from outcrop.topics.client import ThreadsClient  # noqa: PLC0415 - needs the extra `kafka`

    settings = settings_of(arguments)
    screen = Screen(as_json=arguments.as_json)
    shown = 0
    async with (
        ThreadsClient(settings.bootstrap, topics=settings.topics) as client,
        contextlib.aclosing(_from_start(settings) if arguments.from_start else client.outcomes()) as stream,
    ):
        async for outcome in stream:
            if not _wanted(outcome, arguments):
                continue
            if screen.as_json:
                screen.item(outcome_document(outcome))
            else:
                screen.columns(outcome_columns(outcome))
            shown += 1
            if shown == arguments.limit:
                return


async def _from_start(settings: Settings) -> AsyncGenerator[Outcome]:
    """All outcomes that the topic still has, and those to come; what can't be read is left out."""
    from outcrop.topics.transport import Connection, Reader  # noqa: PLC0415 - needs the extra `kafka`

    reader = Reader(Connection(settings.bootstrap, {}), settings.outcomes_topic)
    try:
        await reader.start_at({0: 0})  # it takes in the other partitions from their beginning
        while True:
            for value in await reader.read():
                with contextlib.suppress(BadOutcome):
                    yield decode_outcome(value)
    finally:
        await reader.close()


def _wanted(outcome: Outcome, arguments: Namespace) -> bool:
    return (not arguments.thread or outcome.thread_id in arguments.thread) and (
        not arguments.status or outcome.status.value in arguments.status
    )
