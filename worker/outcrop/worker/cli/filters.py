"""Which threads a command is about: the filters that listing and copying share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from outcrop.stores import ThreadQuery, ThreadState

from .options import graph_ref, instant, text_pair

if TYPE_CHECKING:
    from argparse import Namespace

    from .options import Parser


def add_filters(parser: Parser) -> None:
    """`--status`, `--meta`, `--graph`, `--updated-after`, `--updated-before` and `--due`."""
    parser.add_argument(
        "--status",
        action="append",
        default=[],
        choices=[state.value for state in ThreadState],
        help="only threads in this state (repeat for several)",
    )
    parser.add_argument(
        "--meta",
        action="append",
        default=[],
        type=text_pair,
        metavar="KEY=VALUE",
        help="only threads with this metadata (repeat: all must match)",
    )
    parser.add_argument("--graph", type=graph_ref, metavar="ID[@VERSION]", help="only threads of this graph")
    for when in ("after", "before"):
        parser.add_argument(
            f"--updated-{when}",
            type=instant,
            metavar="TIME",
            help=f"only threads last updated {when} this time (2026-01-31T09:30:00Z)",
        )
    parser.add_argument("--due", action="store_true", help="only threads whose timer or timeout is due")


def query_of(arguments: Namespace) -> ThreadQuery:
    """The query that the filters ask for."""
    graph_id, graph_version = arguments.graph or (None, None)
    return ThreadQuery(
        states=frozenset(ThreadState(state) for state in arguments.status),
        metadata=dict(arguments.meta),
        updated_after=arguments.updated_after,
        updated_before=arguments.updated_before,
        due_by=datetime.now(UTC) if arguments.due else None,
        graph_id=graph_id,
        graph_version=graph_version,
    )
