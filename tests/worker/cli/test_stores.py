"""`outcrop store`, and the reading commands on every engine that it copies to."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sqlite3
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores import Acquired, StoreError, open_store
from outcrop.stores.contract import sample
from outcrop.stores.diagnosis import Diagnosis
from outcrop.worker.cli import main, stores
from outcrop.worker.cli.bar import PlainBar, bar_on
from outcrop.worker.cli.terminal import Screen
from support.storages import KINDS, Places, with_option

if TYPE_CHECKING:
    from collections.abc import Generator

FIXTURE = Path(__file__).parents[2] / "interop/fixtures/sqlite.db"
INDEX: dict[str, Any] = json.loads(FIXTURE.with_name("index.json").read_text(encoding="utf-8"))
THREADS = sorted(thread["thread_id"] for thread in INDEX["threads"])


@pytest.fixture(params=KINDS)
def empty(request: pytest.FixtureRequest, places: Places) -> Generator[str]:
    """The URL of an empty store of each engine."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        yield runner.run(stack.enter_async_context(places.fresh(request.param))).url
        runner.run(stack.aclose())


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A copy of the file that another engine wrote, with no thread held any more."""
    file = Path(shutil.copyfile(FIXTURE, tmp_path / "threads.db"))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE checkpoint_leases SET owner = NULL, expires_at = NULL")
    return file


class Command:
    """Runs a command line and keeps what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def lines(self, *argv: str, code: int = 0) -> list[str]:
        assert main(argv) == code
        said = self._capsys.readouterr()
        self.err = said.err
        return said.out.splitlines()

    def json(self, *argv: str, code: int = 0) -> Any:
        return json.loads("\n".join(self.lines(*argv, "--json", code=code)))

    def items(self, *argv: str, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self.lines(*argv, "--json", code=code)]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def reading_commands() -> list[list[str]]:
    threads = [["thread", "inspect", thread] for thread in THREADS]
    logs = [["checkpoint", "log", thread] for thread in THREADS]
    return [
        ["thread", "list"],
        ["thread", "list", "--due"],
        ["thread", "list", "--status", "failed", "--status", "interrupted", "--limit", "7"],
        ["thread", "list", "--meta", "tenant=acme"],
        ["thread", "list", "--graph", "press@2026-11"],
        ["thread", "list", "--updated-after", "2020-12-31T00:00:00Z"],
        ["thread", "list", "--updated-before", "2020-12-31T00:00:00Z"],
        ["checkpoint", "diff", "order-1040", "--seq-a", "1", "--seq-b", "2"],
        ["checkpoint", "replay", "order-1041", "--sequence", "3"],
        *threads,
        *logs,
    ]


def test_every_engine_tells_the_same(command: Command, database: Path, empty: str) -> None:
    *_, totals = command.items("store", "copy", str(database), empty)
    assert totals["complete"]
    for argv in reading_commands():
        here = command.json(*argv, "--storage", str(database))
        there = command.json(*argv, "--storage", empty)
        if "threads" in here:  # the cut of a page and its cursor are each engine's own
            here, there = ([thread["thread_id"] for thread in told["threads"]] for told in (here, there))
        assert here == there, argv


def test_reading_an_empty_place_creates_nothing(command: Command, empty: str) -> None:
    before = command.json("store", "check", empty, code=1)
    assert command.lines("thread", "list", "--storage", empty, code=3) == []
    after = command.json("store", "check", empty, code=1)
    assert (before["schema"], before["missing"]) == (after["schema"], after["missing"])


def test_copy_tells_each_thread_and_the_totals(command: Command, database: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "to.db")
    *threads, totals = command.items("store", "copy", str(database), target)
    assert sorted(thread["thread_id"] for thread in threads) == THREADS
    assert {thread["result"] for thread in threads} == {"copied"}
    rows = sum(thread["latest"]["rows"] for thread in INDEX["threads"])
    assert totals["rows"] == rows == sum(thread["rows"] for thread in threads)
    assert totals["bytes"] == sum(thread["bytes"] for thread in threads) > 0
    assert totals["threads"]["copied"] == len(THREADS)
    *threads, totals = command.items("store", "copy", str(database), target)
    assert {thread["result"] for thread in threads} == {"present"}
    assert totals["rows"] == 0


def test_copy_filters_as_listing_does(command: Command, database: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "to.db")
    filters = ["--status", "interrupted", "--meta", "tenant=acme"]
    command.lines("store", "copy", str(database), target, *filters)
    listed = command.json("thread", "list", "--storage", str(database), *filters)["threads"]
    there = command.json("thread", "list", "--storage", target)["threads"]
    assert 0 < len(there) < len(THREADS)
    assert there == listed


def test_copy_tells_people_what_is_left_out_and_why(command: Command, tmp_path: Path) -> None:
    source, target = str(tmp_path / "from.db"), str(tmp_path / "to.db")

    async def fill() -> None:
        store, other = await open_store(source), await open_store(target)
        await store.save(sample("held\x1b"))
        assert isinstance(await store.acquire_lease("held\x1b", "worker-1", timedelta(minutes=1)), Acquired)
        await store.save(sample("torn"))
        await other.save(sample("torn", frozen_state='"other"'))
        await store.save(sample("fine"))
        await store.close()
        await other.close()

    asyncio.run(fill())
    lines = command.lines("store", "copy", source, target, code=1)
    assert sorted(lines[:2]) == [
        "held\\x1b\theld\t'worker-1' holds it in the source",
        "torn\tconflict\tthe target has another row at sequence 0",
    ]
    assert [line.split("  ", 1)[0] for line in lines[2:]] == ["copied", "held", "conflict", "rows"]
    assert lines[2].split() == ["copied", "1", "threads"]


def test_copy_from_nothing_or_memory_is_refused(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "to.db"
    assert command.lines("store", "copy", str(tmp_path / "no.db"), str(target), code=3) == []
    assert command.lines("store", "copy", "memory:", str(target), code=2) == []
    assert not target.exists()


def test_copy_leaves_its_source_untouched(command: Command, database: Path, tmp_path: Path) -> None:
    before = database.read_bytes()
    writer = sqlite3.connect(database, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")  # as a worker in the middle of a save
    command.lines("store", "copy", str(database), str(tmp_path / "to.db"))
    writer.execute("ROLLBACK")
    writer.close()
    assert database.read_bytes() == before


def test_check_finds_a_store_fit_that_was_opened_once(command: Command, empty: str) -> None:
    async def touch() -> None:
        await (await open_store(empty)).close()

    missing = command.json("store", "check", empty, code=1)["missing"]
    asyncio.run(touch())
    operators = _operators_choice(empty, missing)
    told = command.json("store", "check", empty, code=1 if operators else 0)
    assert told["missing"] == operators
    assert told["missing"] != missing
    assert told["engine"] == empty.split(":", maxsplit=1)[0]
    assert told["schema"] == told["expected"]
    assert told["server_version"]
    assert 0 < told["latency"] < 5
    assert abs(told["clock_offset"]) < 5
    last = command.lines("store", "check", empty, code=1 if operators else 0)[-1]
    assert last.split(maxsplit=1) == ["missing", operators[-1] if operators else "nothing"]


def test_migrate_makes_what_workers_may_not(command: Command, empty: str) -> None:
    async def open_as_a_worker() -> None:
        options = "auto_migrate=false" if empty.startswith("postgres") else ""
        await (await open_store(with_option(empty, options) if options else empty)).close()

    if empty.startswith("postgres"):
        with pytest.raises(StoreError, match="run its migration"):
            asyncio.run(open_as_a_worker())
    command.lines("store", "migrate", empty)
    command.lines("store", "migrate", empty)
    asyncio.run(open_as_a_worker())


def _operators_choice(url: str, missing: list[str]) -> list[str]:
    """What is missing of the server rather than of the store in it: a test's Redis may persist nothing."""
    return (
        [sentence for sentence in missing if "over a restart" in sentence] if url.startswith("redis") else []
    )


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgres://user:secret@127.0.0.1:1/db?retry_max_attempts=1", 3),
        ("postgres://user:sec?ret@127.0.0.1:1/db", 2),
        ("postgres://user:se/cret@127.0.0.1:x/db", 2),
        ("redis://:secret@127.0.0.1:1/0?retry_max_attempts=1", 3),
        ("redis://:sec?ret@127.0.0.1:1/0", 2),
        ("redis://:secret@127.0.0.1:1/0?nonsense=secret", 2),
        ("rediss://:secret@127.0.0.1:x/0", 2),
        ("oracle://scott:secret@db/x", 2),
        (" postgres://user:secret@h/d", 2),
        ('"postgres://user:secret@h/d"', 2),
        ("OUTCROP_STORE=postgres://user:secret@h/d", 2),
        ("postgres//user:secret@h/d", 2),
    ],
)
@pytest.mark.parametrize("verb", ["list", "check", "copy"])
def test_no_password_is_in_an_error(command: Command, url: str, code: int, verb: str, tmp_path: Path) -> None:
    argv = {
        "list": ["thread", "list", "--storage", url],
        "check": ["store", "check", url],
        "copy": ["store", "copy", url, str(tmp_path / "to.db")],
    }[verb]
    assert command.lines(*argv, code=code) == []
    assert command.err.count("\n") == 1
    assert "sec" not in command.err
    assert "cret" not in command.err


def test_check_reads_the_url_from_the_environment(
    command: Command, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTCROP_STORAGE", str(database))
    command.lines("store", "migrate", str(database))  # another engine's file lacks what is ours
    assert command.json("store", "check")["engine"] == "sqlite"
    assert command.lines("store", "check", "memory:", code=2) == []


def test_check_warns_of_clocks_that_are_apart(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Diagnosis(
        engine="postgres",
        server_version="15.4",
        schema={"checkpoints": 1, "memory": 1},
        expected={"checkpoints": 2, "outcrop": 1},
        latency=0.0123,
        clock_offset=-2.5,
        missing=("checkpoints is behind", "the function is missing"),
    )

    async def told(_: str) -> Diagnosis:
        return found

    monkeypatch.setattr(stores, "diagnose", told)
    lines = [line.split(maxsplit=1) for line in command.lines("store", "check", "postgres://h/d", code=1)]
    assert lines == [
        ["engine", "postgres"],
        ["version", "15.4"],
        ["schema", "checkpoints  1 (this build needs 2)"],
        ["schema", "memory       1"],
        ["schema", "outcrop      none (this build needs 1)"],
        ["latency", "12.3 ms"],
        ["clock", "offset        -2.500 s"],
        ["missing", "checkpoints is behind"],
        ["missing", "the function is missing"],
    ]
    assert "2.5 s apart" in command.err


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_lines_above_it() -> None:
    out = _Tty()
    with bar_on(Screen(out), 3) as bar:
        bar.show(1, "threads [red]x[/]")
        bar.columns(("a\x1b", "[bold]held[/]"))
        bar.show(3, "threads")
    assert "a\\x1b  [bold]held[/]" in out.getvalue()
    assert "3/3" in out.getvalue()


def test_a_pipe_gets_a_remark_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 4.9, 5.0, 5.0, 9.0, 10.0, 10.0])
    out = io.StringIO()
    bar = PlainBar(Screen(out), 9, seconds=lambda: next(times))
    for done in range(1, 5):
        bar.show(done, "threads")
    bar.columns(("a", "held"))
    assert capsys.readouterr().err == "2 of 9 threads\n4 of 9 threads\n"
    assert out.getvalue() == "a\theld\n"


def test_a_listing_takes_times(command: Command, database: Path) -> None:
    everything = command.json("thread", "list", "--storage", str(database))["threads"]
    moment = everything[10]["updated_at"]
    assert datetime.fromisoformat(moment).tzinfo == UTC
    for option, keep in (("--updated-after", moment.__lt__), ("--updated-before", moment.__gt__)):
        listed = command.json("thread", "list", "--storage", str(database), option, moment)["threads"]
        assert listed == [thread for thread in everything if keep(thread["updated_at"])]
