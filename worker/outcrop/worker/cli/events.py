"""`outcrop events`: follow what happens in runs, and what their nodes stream, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from outcrop.topics.events import EventType, encode_event

from .configuration import BROKER, add_settings, settings_of
from .difference import raw_json
from .exits import Exit
from .options import add_command, add_json, count
from .terminal import Screen, to_json

if TYPE_CHECKING:
    from argparse import Namespace

    from outcrop.topics.events import Event

    from .options import Subparsers

_EXAMPLES = """
outcrop events --thread order-1042
outcrop events --type node_completed --type run_completed --json
"""


def add_commands(commands: Subparsers) -> None:
    """`events`."""
    parser = add_command(
        commands,
        "events",
        "follow what happens in runs, until Ctrl-C",
        examples=_EXAMPLES,
        details="Workers tell it if their setting `events` says so. Columns: time, thread, type, node, data.",
    )
    parser.add_argument("--thread", metavar="THREAD", help="only of this thread")
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        choices=[each.value for each in EventType],
        dest="types",
        help="only of this type (repeat)",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="stop after N events")
    add_settings(parser, BROKER)
    add_json(parser, "one JSON line for each event")
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
        client.events(arguments.thread) as events,
    ):
        if not screen.as_json:
            screen.note(f"following {settings.events_topic}")
        async for event in events:
            if arguments.types and event.type not in arguments.types:
                continue
            if screen.as_json:
                screen.item(event_document(event))
            else:
                screen.columns(event_columns(event))
            shown += 1
            if shown == arguments.limit:
                return


def event_document(event: Event) -> object:
    """The event as it is on the wire."""
    return raw_json(encode_event(event).decode())


def event_columns(event: Event) -> tuple[str, ...]:
    """The event as one line's cells."""
    text = event.data.get("content") if event.type == EventType.TOKEN else None
    data = event.model_dump_json(include={"data"}).removeprefix('{"data":').removesuffix("}")
    return (
        f"{event.at:%Y-%m-%dT%H:%M:%S.%f}Z",
        event.thread_id,
        event.type,
        event.node or "-",
        text if isinstance(text, str) else to_json(raw_json(data)),
    )
