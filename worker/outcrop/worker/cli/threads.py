"""`outcrop thread`: list threads and look at one. Reads the store, never writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from outcrop.stores import ThreadPage, ThreadQuery, ThreadState
from outcrop.stores.query import MAX_PAGE

from .exits import Exit, NotFound
from .options import add_command, add_json, count, graph_ref, text_pair
from .reading import add_storage, reading
from .terminal import Screen
from .views import (
    THREAD_COLUMNS,
    inspection_document,
    inspection_fields,
    thread_document,
    thread_row,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from outcrop.stores import CheckpointQuery

    from .options import Parser, Subparsers

_LIST_EXAMPLES = """
outcrop thread list --storage threads.db
outcrop thread list --storage threads.db --status interrupted --meta tenant=acme --limit 20
outcrop thread list --storage threads.db --graph orders@2 --due --json
"""
_INSPECT_EXAMPLES = """
outcrop thread inspect order-1042 --storage threads.db
outcrop thread inspect order-1042 --storage threads.db --json | jq .frozen_state
"""


def add_commands(commands: Subparsers) -> None:
    """`thread list` and `thread inspect`."""
    group = commands.add_parser("thread", help="list threads and look at one")
    verbs = group.add_subparsers(metavar="VERB", required=True)
    listing = add_command(
        verbs,
        "list",
        "list threads, newest first",
        examples=_LIST_EXAMPLES,
        details="A dead thread that was recovered too often stays `running`: its recoveries are shown.",
    )
    add_storage(listing)
    _add_filters(listing)
    add_json(listing)
    listing.set_defaults(act=_list)

    inspect = add_command(
        verbs, "inspect", "show a thread's latest checkpoint in full", examples=_INSPECT_EXAMPLES
    )
    inspect.add_argument("thread_id", metavar="THREAD")
    add_storage(inspect)
    add_json(inspect)
    inspect.set_defaults(act=_inspect)


def _add_filters(parser: Parser) -> None:
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
    parser.add_argument("--due", action="store_true", help="only threads whose timer or timeout is due")
    parser.add_argument(
        "--limit", type=count, default=100, metavar="N", help="at most N threads (default 100)"
    )
    parser.add_argument("--cursor", help="go on where an earlier listing ended (its next_cursor)")


async def _list(arguments: Namespace) -> Exit:
    graph_id, graph_version = arguments.graph or (None, None)
    query = ThreadQuery(
        states=frozenset(ThreadState(state) for state in arguments.status),
        metadata=dict(arguments.meta),
        due_by=datetime.now(UTC) if arguments.due else None,
        graph_id=graph_id,
        graph_version=graph_version,
        limit=min(arguments.limit, MAX_PAGE),
        cursor=arguments.cursor,
    )
    async with reading(arguments.storage) as store:
        page = await _collect(store, query, arguments.limit)
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(
            {
                "threads": [thread_document(thread) for thread in page.threads],
                "next_cursor": page.next_cursor,
            }
        )
        return Exit.OK
    screen.table(THREAD_COLUMNS, (thread_row(thread) for thread in page.threads))
    if page.next_cursor is not None:
        screen.note(f"more threads follow: --limit, or --cursor {page.next_cursor}")
    return Exit.OK


async def _collect(store: CheckpointQuery, query: ThreadQuery, limit: int) -> ThreadPage:
    page = await store.list_threads(query)
    threads = list(page.threads)
    while page.next_cursor is not None and len(threads) < limit:
        wanted = min(limit - len(threads), MAX_PAGE)
        page = await store.list_threads(replace(query, cursor=page.next_cursor, limit=wanted))
        threads.extend(page.threads)
    return ThreadPage(tuple(threads), page.next_cursor)


async def _inspect(arguments: Namespace) -> Exit:
    thread_id: str = arguments.thread_id
    async with reading(arguments.storage) as store:
        row = await store.load(thread_id)
        if row is None:
            raise NotFound(f"the store has no thread '{thread_id}'")
        lease = await store.get_lease(thread_id)
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(inspection_document(row, lease))
    else:
        screen.fields(inspection_fields(row, lease))
    return Exit.OK
