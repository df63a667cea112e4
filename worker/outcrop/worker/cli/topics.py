"""`outcrop topics`: make the topics of a deployment, and tell how they differ from the wanted ones."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from outcrop.topics.provisioning import TopicSettings

from .configuration import BROKER, add_settings, settings_of
from .exits import Exit
from .options import Parser, add_command, add_json, count, seconds
from .terminal import Screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from outcrop.topics.provisioning import Difference
    from outcrop.worker.settings import Settings

    from .options import Subparsers

_DEFAULTS = TopicSettings()
_DAY = timedelta(days=1)
_CREATE_EXAMPLES = """
outcrop topics create --bootstrap broker:9092
outcrop topics create --bootstrap broker:9092 --partitions 24 --replication 3
"""
_CHECK_EXAMPLES = "outcrop topics check --bootstrap broker:9092 --partitions 24 --replication 3"


def add_commands(commands: Subparsers) -> None:
    """`topics create` and `topics check`."""
    group = commands.add_parser("topics", help="make and check the topics of a deployment")
    verbs = group.add_subparsers(metavar="VERB", required=True)
    create = add_command(
        verbs,
        "create",
        "make the topics that are missing",
        examples=_CREATE_EXAMPLES,
        details="Topics that exist are never changed; how they differ is told, and fails the command.",
    )
    check = add_command(
        verbs, "check", "tell how the broker's topics differ from the wanted ones", examples=_CHECK_EXAMPLES
    )
    for parser, act in ((create, _create), (check, _check)):
        _add_settings(parser)
        add_settings(parser, BROKER)
        add_json(parser)
        parser.set_defaults(act=act)


def _add_settings(parser: Parser) -> None:
    parser.add_argument(
        "--partitions",
        type=count,
        default=_DEFAULTS.partitions,
        metavar="N",
        help=f"partitions of each topic (default {_DEFAULTS.partitions})",
    )
    parser.add_argument(
        "--replication", type=count, metavar="N", help="replicas of each partition (default: the broker's)"
    )
    parser.add_argument(
        "--retention-days",
        type=seconds,
        default=_DEFAULTS.retention / _DAY,
        metavar="DAYS",
        help=f"how long commands and outcomes are kept (default {_DEFAULTS.retention / _DAY:g})",
    )
    parser.add_argument(
        "--max-message-bytes",
        type=count,
        default=_DEFAULTS.max_message_bytes,
        metavar="N",
        help=f"the largest message (default {_DEFAULTS.max_message_bytes})",
    )
    parser.add_argument("--with-events", action="store_true", help="the topic of run events too")


def _wanted(arguments: Namespace, settings: Settings) -> TopicSettings:
    return TopicSettings(
        names=settings.topics,
        partitions=arguments.partitions,
        replication=arguments.replication,
        retention=timedelta(days=arguments.retention_days),
        max_message_bytes=arguments.max_message_bytes,
        with_events=arguments.with_events,
    )


async def _create(arguments: Namespace) -> Exit:
    from outcrop.topics.admin import TopicAdmin  # noqa: PLC0415 - needs the extra `kafka`

    settings = settings_of(arguments)
    report = await TopicAdmin(settings.bootstrap).create_topics(_wanted(arguments, settings))
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(
            {
                "created": list(report.created),
                "existing": list(report.existing),
                "differences": _documents(report.differences),
            }
        )
    else:
        for name in report.created:
            screen.line(f"created  {name}")
        for name in report.existing:
            screen.line(f"exists   {name}")
        _show(screen, report.differences)
    return Exit.FAILED if report.differences else Exit.OK


async def _check(arguments: Namespace) -> Exit:
    from outcrop.topics.admin import TopicAdmin  # noqa: PLC0415 - needs the extra `kafka`

    settings = settings_of(arguments)
    differences = await TopicAdmin(settings.bootstrap).check_topics(_wanted(arguments, settings))
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document({"differences": _documents(differences)})
    elif differences:
        _show(screen, differences)
    else:
        screen.line("the topics are as wanted")
    if any(difference.found is None for difference in differences):
        return Exit.NOT_FOUND
    return Exit.FAILED if differences else Exit.OK


def _show(screen: Screen, differences: Sequence[Difference]) -> None:
    for difference in differences:
        screen.line(f"differs  {difference}")


def _documents(differences: Sequence[Difference]) -> list[dict[str, str | None]]:
    return [
        {"topic": one.topic, "setting": one.setting, "wanted": one.wanted, "found": one.found}
        for one in differences
    ]
