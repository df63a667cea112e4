"""`outcrop thread`: list threads and look at one. Reads the store, never writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from outcrop.engine.questions import questions_in
from outcrop.stores import ThreadPage
from outcrop.stores.query import MAX_PAGE

from .exits import Exit, NotFound
from .filters import add_filters, query_of
from .histories import add_history
from .options import add_command, add_json, count
from .reading import add_storage, reading
from .terminal import Screen
from .views import (
    THREAD_COLUMNS,
    inspection_document,
    inspection_fields,
    thread_document,
    thread_row,
    unreadable_document,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from outcrop.stores import CheckpointQuery, ThreadQuery

    from .options import Subparsers

_LIST_EXAMPLES = """
outcrop thread list --storage threads.db
outcrop thread list --storage threads.db --status interrupted --meta tenant=acme --limit 20
outcrop thread list --storage threads.db --graph orders@2 --due --json
outcrop thread list --storage postgres://app@db/threads --updated-before 2026-01-31T00:00:00Z
"""
_INSPECT_EXAMPLES = """
outcrop thread inspect order-1042 --storage threads.db
outcrop thread inspect order-1042 --storage threads.db --json | jq .frozen_state
"""


def add_commands(commands: Subparsers) -> None:
    """`thread list`, `thread inspect` and `thread history`."""
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
    add_filters(listing)
    listing.add_argument(
        "--limit", type=count, default=100, metavar="N", help="at most N threads (default 100)"
    )
    listing.add_argument("--cursor", help="go on where an earlier listing ended (its next_cursor)")
    add_json(listing)
    listing.set_defaults(act=_list)

    inspect = add_command(
        verbs, "inspect", "show a thread's latest checkpoint in full", examples=_INSPECT_EXAMPLES
    )
    inspect.add_argument("thread_id", metavar="THREAD")
    add_storage(inspect)
    add_json(inspect)
    inspect.set_defaults(act=_inspect)
    add_history(verbs)


async def _list(arguments: Namespace) -> Exit:
    query = replace(query_of(arguments), limit=min(arguments.limit, MAX_PAGE), cursor=arguments.cursor)
    async with reading(arguments.storage) as store:
        page = await _collect(store, query, arguments.limit)
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(
            {
                "threads": [thread_document(thread) for thread in page.threads],
                "next_cursor": page.next_cursor,
                "unreadable": [unreadable_document(thread) for thread in page.unreadable],
            }
        )
        return Exit.OK
    screen.table(THREAD_COLUMNS, (thread_row(thread) for thread in page.threads))
    for thread in page.unreadable:
        screen.note(f"row {thread.sequence} of thread '{thread.thread_id}' can't be read: {thread.reason}")
    if page.next_cursor is not None:
        screen.note(f"more threads follow: --limit, or --cursor {page.next_cursor}")
    return Exit.OK


async def _collect(store: CheckpointQuery, query: ThreadQuery, limit: int) -> ThreadPage:
    page = await store.list_threads(query)
    threads, unreadable = list(page.threads), list(page.unreadable)
    while page.next_cursor is not None and len(threads) < limit:
        wanted = min(limit - len(threads), MAX_PAGE)
        page = await store.list_threads(replace(query, cursor=page.next_cursor, limit=wanted))
        threads.extend(page.threads)
        unreadable.extend(page.unreadable)
    return ThreadPage(tuple(threads), page.next_cursor, tuple(unreadable))


async def _inspect(arguments: Namespace) -> Exit:
    thread_id: str = arguments.thread_id
    async with reading(arguments.storage) as store:
        row = await store.load(thread_id)
        if row is None:
            raise NotFound(f"the store has no thread '{thread_id}'")
        lease = await store.get_lease(thread_id)
        notes = await store.get_notes([row])
    questions = questions_in(notes.get(row.sequence, ()))
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(inspection_document(row, lease, questions))
    else:
        screen.fields(inspection_fields(row, lease, questions))
    return Exit.OK
