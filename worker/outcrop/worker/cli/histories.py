"""`outcrop thread history`: a thread's log as the tree that going back made of it. Only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.engine import tree_of
from outcrop.engine.history import history
from outcrop.stores.record import Row

from .exits import Exit, NotFound
from .options import add_command, add_json
from .reading import add_storage, reading
from .terminal import Screen
from .views import CHECKPOINT_COLUMNS, checkpoint_document, checkpoint_row, resume_point

if TYPE_CHECKING:
    from argparse import Namespace

    from outcrop.engine import HistoryEntry, HistoryTree

    from .options import Subparsers

_EXAMPLES = """
outcrop thread history order-1042 --storage threads.db --tree
outcrop thread history order-1042 --storage threads.db --json
"""


def add_history(verbs: Subparsers) -> None:
    """`thread history`."""
    parser = add_command(
        verbs,
        "history",
        "show a thread's checkpoints and which one each follows",
        examples=_EXAMPLES,
        details="An update, a fork or a rerun starts a branch; * marks the one that goes on.",
    )
    parser.add_argument("thread_id", metavar="THREAD")
    parser.add_argument("--tree", action="store_true", help="draw the branches")
    add_storage(parser)
    add_json(parser)
    parser.set_defaults(act=_history)


async def _history(arguments: Namespace) -> Exit:
    thread_id: str = arguments.thread_id
    async with reading(arguments.storage) as store:
        entries = await history(store, thread_id)
    if not entries:
        raise NotFound(f"the store has no thread '{thread_id}'")
    tree = tree_of(entries)
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        shown = [_document(entry, tree) for entry in entries]
        screen.document({"thread_id": thread_id, "checkpoints": shown})
    elif arguments.tree:
        for line in tree_lines(tree):
            screen.line(line)
    else:
        columns = ("", CHECKPOINT_COLUMNS[0], "FOLLOWS", *CHECKPOINT_COLUMNS[1:])
        screen.table(columns, (_row(entry, tree) for entry in entries))
    return Exit.OK


def tree_lines(tree: HistoryTree) -> list[str]:
    """A line for each checkpoint, older branches first; a row that one other follows stands above it."""
    lines = list[str]()
    open_ = [(root, "", "") for root in reversed(tree.roots)]
    while open_:
        at, lead, below = open_.pop()
        entry = tree.entries[at]
        lines.append(f"{_mark(entry, tree):<2}{lead}{_line(entry)}")
        children = tree.children.get(at, ())
        for child in reversed(children):
            if len(children) == 1:
                open_.append((child, below, below))
            elif child == children[-1]:
                open_.append((child, f"{below}└─ ", f"{below}   "))
            else:
                open_.append((child, f"{below}├─ ", f"{below}│  "))
    return lines


def _line(entry: HistoryEntry) -> str:
    checkpoint = entry.checkpoint
    node = "/".join(filter(None, checkpoint.waiting_at))
    place = " -> ".join(filter(None, (node, resume_point(checkpoint))))
    return "  ".join(filter(None, (str(entry.sequence), checkpoint.status, place, checkpoint.updated_at)))


def _row(entry: HistoryEntry, tree: HistoryTree) -> tuple[str, ...]:
    sequence, *rest = checkpoint_row(Row(entry.sequence, entry.checkpoint))
    return _mark(entry, tree), sequence, "-" if entry.parent is None else str(entry.parent), *rest


def _document(entry: HistoryEntry, tree: HistoryTree) -> dict[str, object]:
    row = checkpoint_document(Row(entry.sequence, entry.checkpoint))
    return {**row, "parent": entry.parent, "current": entry.sequence in tree.current}


def _mark(entry: HistoryEntry, tree: HistoryTree) -> str:
    return "*" if entry.sequence in tree.current else ""
