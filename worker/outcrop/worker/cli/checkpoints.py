"""`outcrop checkpoint`: a thread's timeline, what changed in it, and how it stood. Only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .difference import differences
from .exits import Exit, NotFound
from .options import add_command, add_json, count, sequence
from .reading import add_storage, reading
from .terminal import Screen, to_json
from .views import (
    CHECKPOINT_COLUMNS,
    checkpoint_document,
    checkpoint_row,
    replay_document,
    replay_fields,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from outcrop.stores import CheckpointQuery, Row

    from .difference import FieldChange
    from .options import Subparsers

_PAGE = 500
_LOG_EXAMPLES = """
outcrop checkpoint log order-1042 --storage threads.db
outcrop checkpoint log order-1042 --storage threads.db --after 100 --limit 50 --json
"""
_DIFF_EXAMPLES = "outcrop checkpoint diff order-1042 --seq-a 3 --seq-b 4 --storage threads.db"
_REPLAY_EXAMPLES = "outcrop checkpoint replay order-1042 --sequence 3 --storage threads.db"


def add_commands(commands: Subparsers) -> None:
    """`checkpoint log`, `checkpoint diff` and `checkpoint replay`."""
    group = commands.add_parser("checkpoint", help="a thread's timeline, and the state at any point of it")
    verbs = group.add_subparsers(metavar="VERB", required=True)

    log = add_command(verbs, "log", "show a thread's timeline, oldest first", examples=_LOG_EXAMPLES)
    log.add_argument("--after", type=sequence, metavar="N", help="only checkpoints above this sequence")
    log.add_argument("--limit", type=count, metavar="N", help="at most N checkpoints (default: all)")

    diff = add_command(
        verbs,
        "diff",
        "show the top-level state fields that changed between two checkpoints",
        examples=_DIFF_EXAMPLES,
    )
    diff.add_argument("--seq-a", type=sequence, required=True, metavar="N", help="the first checkpoint")
    diff.add_argument("--seq-b", type=sequence, required=True, metavar="M", help="the second")

    replay = add_command(
        verbs,
        "replay",
        "show the state, the decision in effect and the next node as of one checkpoint",
        examples=_REPLAY_EXAMPLES,
        details="It shows them only; no node runs.",
    )
    replay.add_argument("--sequence", type=sequence, required=True, metavar="N", help="the checkpoint")

    for parser, act in ((log, _log), (diff, _diff), (replay, _replay)):
        parser.add_argument("thread_id", metavar="THREAD")
        add_storage(parser)
        add_json(parser)
        parser.set_defaults(act=act)


async def _log(arguments: Namespace) -> Exit:
    thread_id: str = arguments.thread_id
    async with reading(arguments.storage) as store:
        if await store.load(thread_id) is None:
            raise NotFound(f"the store has no thread '{thread_id}'")
        rows = await _timeline(store, thread_id, after=arguments.after, limit=arguments.limit)
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document({"thread_id": thread_id, "checkpoints": [checkpoint_document(row) for row in rows]})
    else:
        screen.table(CHECKPOINT_COLUMNS, (checkpoint_row(row) for row in rows))
    return Exit.OK


async def _timeline(
    store: CheckpointQuery, thread_id: str, *, after: int | None, limit: int | None
) -> list[Row]:
    rows: list[Row] = []
    while limit is None or len(rows) < limit:
        wanted = _PAGE if limit is None else min(limit - len(rows), _PAGE)
        page = await store.get_log(thread_id, after=after, limit=wanted)
        rows.extend(page.entries)
        after = page.next_after
        if after is None:
            break
    return rows


async def _diff(arguments: Namespace) -> Exit:
    thread_id: str = arguments.thread_id
    async with reading(arguments.storage) as store:
        first = await _checkpoint(store, thread_id, arguments.seq_a)
        second = await _checkpoint(store, thread_id, arguments.seq_b)
    changes = differences(first.checkpoint.frozen_state, second.checkpoint.frozen_state)
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(
            {
                "thread_id": thread_id,
                "seq_a": first.sequence,
                "seq_b": second.sequence,
                "changes": [
                    {
                        "field": change.field,
                        "change": change.change.value,
                        "a": change.before,
                        "b": change.after,
                    }
                    for change in changes
                ],
            }
        )
    elif changes:
        screen.table(
            ("FIELD", "CHANGE", f"AT {first.sequence}", f"AT {second.sequence}"), map(_change_row, changes)
        )
    else:
        screen.line("the states are equal")
    return Exit.OK


def _change_row(change: FieldChange) -> tuple[str, ...]:
    return (
        "(the whole state)" if change.field is None else change.field,
        change.change.value,
        "-" if change.change == "added" else to_json(change.before),
        "-" if change.change == "removed" else to_json(change.after),
    )


async def _replay(arguments: Namespace) -> Exit:
    async with reading(arguments.storage) as store:
        row = await _checkpoint(store, arguments.thread_id, arguments.sequence)
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(replay_document(row))
    else:
        screen.fields(replay_fields(row))
    return Exit.OK


async def _checkpoint(store: CheckpointQuery, thread_id: str, wanted: int) -> Row:
    page = await store.get_log(thread_id, after=wanted - 1, limit=1)
    if not page.entries or page.entries[0].sequence != wanted:
        raise NotFound(f"thread '{thread_id}' has no checkpoint at sequence {wanted}")
    return page.entries[0]
