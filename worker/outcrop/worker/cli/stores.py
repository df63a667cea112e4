"""`outcrop store`: is a store fit for use, making it so, and copying threads from one to another."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from outcrop.stores import open_store
from outcrop.stores.copying import WHOLE, CopyResult, copy_threads, count_threads
from outcrop.stores.url import diagnose, migrate

from .bar import bar_on
from .exits import Exit
from .filters import add_filters, query_of
from .options import add_command, add_json
from .reading import STORAGE_VARIABLE, STORE_URLS, reading, stored_at
from .terminal import Screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncGenerator

    from outcrop.stores import Store
    from outcrop.stores.copying import CopyReport, ThreadCopy
    from outcrop.stores.diagnosis import Diagnosis

    from .bar import Bar
    from .options import Subparsers
    from .views import Document

_CLOCK_TOLERANCE: Final = 1.0
_CHECK_EXAMPLES = """
outcrop store check threads.db
outcrop store check postgres://app@db/threads
outcrop store check 'redis://cache:6379/1?prefix=orders' --json | jq .missing
"""
_MIGRATE_EXAMPLES = "outcrop store migrate postgres://owner@db/threads"
_COPY_EXAMPLES = """
outcrop store copy threads.db postgres://app@db/threads
outcrop store copy threads.db sqlite:///archive.db --status completed --updated-before 2026-01-01T00:00:00Z
outcrop store copy redis://cache 'postgres://app@db/threads?group_commit=true' --meta tenant=acme --json
"""
_COPY_DETAILS = """\

It copies the whole log of every thread that matches, row by row, and reads back what it wrote.
A copy that was broken off goes on where it stopped when the same command runs again; a thread
that has other rows in TO is told as a conflict and left as it is. FROM is only read.

Leases and their tokens are not copied. Threads that are held (in either store) are left out:
they are moving. Stop the workers and run the command again before you use TO. Reading undoes
FROM's deltas and offloaded values; TO keeps rows as the options in its own URL say. Ends with 0
when everything that matches is whole in TO, with 1 when something is not. With --json, one line
for each thread and one with the totals; the results are copied, present (already whole there),
ahead (it went on in TO), held, conflict, mismatch (TO gave other values back) and failed"""


def add_commands(commands: Subparsers) -> None:
    """`store check`, `store migrate` and `store copy`."""
    group = commands.add_parser("store", help="check or migrate a store, and copy threads between stores")
    verbs = group.add_subparsers(metavar="VERB", required=True)
    check = add_command(
        verbs,
        "check",
        "tell a store's version, schema, latency, clock offset, and what is missing",
        examples=_CHECK_EXAMPLES,
        details="Changes nothing. Ends with 0 when nothing is missing, with 1 when something is, "
        "with 3 when it can't be reached.",
    )
    check.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help=f"{STORE_URLS} (default: ${STORAGE_VARIABLE}, else the workers' setting `store`)",
    )
    add_json(check)
    check.set_defaults(act=_check)

    migrating = add_command(
        verbs,
        "migrate",
        "create or upgrade a store's tables",
        examples=_MIGRATE_EXAMPLES,
        details="For workers that run with auto_migrate=false, under a role that may create nothing.",
    )
    migrating.add_argument("url", metavar="URL", help=STORE_URLS)
    migrating.set_defaults(act=_migrate)

    copy = add_command(
        verbs,
        "copy",
        "copy threads from one store to another",
        examples=_COPY_EXAMPLES,
        details=_COPY_DETAILS,
    )
    copy.add_argument("source", metavar="FROM", help=f"the store to read: {STORE_URLS}")
    copy.add_argument("target", metavar="TO", help="the store to copy to; its tables are made when missing")
    add_filters(copy)
    add_json(copy, "one JSON line for each thread, and one with the totals")
    copy.set_defaults(act=_copy)


async def _check(arguments: Namespace) -> Exit:
    diagnosis = await diagnose(stored_at(arguments.url))
    screen = Screen(as_json=arguments.as_json)
    if screen.as_json:
        screen.document(_diagnosis_document(diagnosis))
    else:
        screen.fields(_diagnosis_fields(diagnosis))
    if abs(diagnosis.clock_offset) > _CLOCK_TOLERANCE:
        screen.note(
            f"the store's clock and this host's are {abs(diagnosis.clock_offset):.1f} s apart: due times and "
            "the times in rows go by the hosts' clocks"
        )
    return Exit.OK if diagnosis.fit else Exit.FAILED


def _diagnosis_document(diagnosis: Diagnosis) -> Document:
    return {
        "engine": diagnosis.engine,
        "server_version": diagnosis.server_version,
        "schema": dict(diagnosis.schema),
        "expected": dict(diagnosis.expected),
        "latency": diagnosis.latency,
        "clock_offset": diagnosis.clock_offset,
        "missing": list(diagnosis.missing),
        "unknown": list(diagnosis.unknown),
    }


def _diagnosis_fields(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    components = sorted({*diagnosis.schema, *diagnosis.expected})
    return [
        ("engine", diagnosis.engine),
        ("version", diagnosis.server_version or "-"),
        *((f"schema {name}", _versions(diagnosis, name)) for name in components),
        ("latency", f"{diagnosis.latency * 1000:.1f} ms"),
        ("clock offset", f"{diagnosis.clock_offset:+.3f} s"),
        *(("missing", sentence) for sentence in diagnosis.missing or ("nothing",)),
        *(("unknown", sentence) for sentence in diagnosis.unknown),
    ]


def _versions(diagnosis: Diagnosis, component: str) -> str:
    found, needed = diagnosis.schema.get(component), diagnosis.expected.get(component)
    told = "none" if found is None else str(found)
    return told if needed in {None, found} else f"{told} (this build needs {needed})"


async def _migrate(arguments: Namespace) -> Exit:
    await migrate(stored_at(arguments.url))
    return Exit.OK


async def _copy(arguments: Namespace) -> Exit:
    query = query_of(arguments)
    screen = Screen(as_json=arguments.as_json)
    async with reading(arguments.source) as source, _writing(arguments.target) as target:
        with bar_on(screen, await count_threads(source, query)) as bar:
            report = await copy_threads(source, target, query, _Watcher(screen, bar))
    if screen.as_json:
        screen.item(_report_document(report))
    else:
        screen.fields(_report_fields(report))
    if report.moved_on:
        screen.note("threads moved on in FROM while they were copied: run the command again")
    return Exit.OK if report.complete else Exit.FAILED


@asynccontextmanager
async def _writing(url: str) -> AsyncGenerator[Store]:
    store = await open_store(stored_at(url))
    try:
        yield store
    finally:
        await store.close()


class _Watcher:
    """Shows how a copy goes: the bar, and a line for each thread that isn't whole (with JSON, for each)."""

    def __init__(self, screen: Screen, bar: Bar) -> None:
        self._screen = screen
        self._bar = bar
        self._threads = self._rows = self._size = 0

    def appended(self, rows: int, size: int) -> None:
        """Count rows."""
        self._rows += rows
        self._size += size
        self._show()

    def finished(self, thread: ThreadCopy) -> None:
        """Count a thread, and tell of it."""
        self._threads += 1
        if self._screen.as_json:
            self._screen.item(_thread_document(thread))
        elif thread.result not in WHOLE:
            self._bar.columns((thread.thread_id, thread.result.value, thread.reason or "-"))
        self._show()

    def _show(self) -> None:
        self._bar.show(self._threads, f"threads, {self._rows} rows, {_size_text(self._size)}")


def _thread_document(thread: ThreadCopy) -> Document:
    return {
        "thread_id": thread.thread_id,
        "result": thread.result.value,
        "rows": thread.rows,
        "bytes": thread.size,
        "reason": thread.reason,
    }


def _report_document(report: CopyReport) -> Document:
    return {
        "complete": report.complete,
        "threads": {result.value: report.results[result] for result in CopyResult},
        "rows": report.rows,
        "bytes": report.size,
        "moved_on": report.moved_on,
    }


def _report_fields(report: CopyReport) -> list[tuple[str, str]]:
    told = [result for result in CopyResult if result is CopyResult.COPIED or report.results[result]]
    return [
        *((result.value, f"{report.results[result]} threads") for result in told),
        ("rows", f"{report.rows} copied and read back, {_size_text(report.size)}"),
    ]


def _size_text(size: int) -> str:
    return f"{size / 1_000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"  # noqa: PLR2004 - a megabyte
