"""`outcrop thread` and `outcrop checkpoint` on a database that another engine wrote."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from outcrop.worker.cli import main

FIXTURES = Path(__file__).parents[2] / "interop/fixtures"
INDEX: dict[str, Any] = json.loads((FIXTURES / "index.json").read_text(encoding="utf-8"))
LATEST: dict[str, dict[str, Any]] = {thread["thread_id"]: thread["latest"] for thread in INDEX["threads"]}


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the fixture, named by the environment."""
    file = tmp_path / "threads.db"
    shutil.copyfile(FIXTURES / "sqlite.db", file)
    monkeypatch.setenv("OUTCROP_STORAGE", str(file))
    return file


class Command:
    """Runs a command line and keeps what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def lines(self, *argv: str) -> list[str]:
        assert main(argv) == 0
        said = self._capsys.readouterr()
        assert said.err == ""
        return said.out.splitlines()

    def json(self, *argv: str) -> Any:
        return json.loads("\n".join(self.lines(*argv, "--json")))

    def fields(self, *argv: str) -> dict[str, str]:
        pairs = [line.split("  ", 1) for line in self.lines(*argv)]
        return {name: value.strip() for name, value in pairs}

    def failure(self, *argv: str) -> tuple[int, str]:
        code = main(argv)
        said = self._capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        return code, said.err


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], database: Path) -> Command:
    return Command(capsys)


def test_lists_every_thread_with_its_place(command: Command) -> None:
    header, *rows = command.lines("thread", "list")
    assert header.split("\t") == ["THREAD", "STATE", "NODE", "SEQUENCE", "WAITS FOR", "GRAPH", "UPDATED"]
    told = {row.split("\t")[0]: row.split("\t") for row in rows}
    assert told.keys() == LATEST.keys()
    assert told["order-1013"][4].startswith("a timer until ")
    assert told["order-1010"][4].startswith("event ")
    assert told["order-1001"][4] == "a person"
    assert told["order-1033"][1] == "running (recovered 2x)"
    assert told["order-1051"][2] == "review/approve"
    assert told["order-1051"][5] == "press@2026-11"


def test_listing_as_json_tells_what_the_index_tells(command: Command) -> None:
    listing = command.json("thread", "list")
    assert listing["next_cursor"] is None
    for thread in listing["threads"]:
        latest = LATEST[thread["thread_id"]]
        for key in ("state", "status", "sequence", "suspended_node", "next_node", "waiting_at", "graph"):
            assert thread[key] == latest[key], (thread["thread_id"], key)
        assert thread["recoveries"] == latest["recoveries"]
        assert thread["metadata"] == (latest["metadata"] or {})


def _options(query: dict[str, Any]) -> list[str] | None:
    """The query of the other engine's command in ours; None where ours has no such filter."""
    given = list(query["command"][3:-1])  # the last one is `--all`
    pairs = list(zip(given[::2], given[1::2], strict=True))
    told = dict(pairs)
    options: list[str] = []
    for name, value in pairs:
        match name:
            case "--status":
                options += [text for status in value.split(",") for text in ("--status", status)]
            case "--metadata":
                options += ["--meta", value]
            case "--graph-id":
                version = told.get("--graph-version")
                options += ["--graph", value if version is None else f"{value}@{version}"]
            case "--graph-version":
                pass
            case _:
                return None
    return options


FILTERS = [(query, options) for query in INDEX["queries"] if (options := _options(query)) is not None]


@pytest.mark.parametrize(("query", "options"), FILTERS, ids=[query["what"] for query, _ in FILTERS])
def test_filters_find_what_the_other_engine_found(
    command: Command, query: dict[str, Any], options: list[str]
) -> None:
    listing = command.json("thread", "list", *options)
    assert sorted(thread["thread_id"] for thread in listing["threads"]) == query["thread_ids_sorted"]


def test_due_finds_what_is_due_by_now(command: Command) -> None:
    query = next(query for query in INDEX["queries"] if query["what"] == "due at the start of 2021")
    due = [thread["thread_id"] for thread in command.json("thread", "list", "--due")["threads"]]
    assert set(query["thread_ids_sorted"]) <= set(due)
    far = next(query for query in INDEX["queries"] if query["what"] == "due in 2100")
    assert set(due) <= set(far["thread_ids_sorted"])


def test_status_and_metadata_filters_repeat(command: Command) -> None:
    listing = command.json(
        "thread", "list", "--status", "failed", "--status", "cancelled", "--meta", "tenant=acme"
    )
    assert [thread["thread_id"] for thread in listing["threads"]] == ["order-1020"]


def test_limit_says_where_to_go_on(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    first = command.json("thread", "list", "--limit", "25")
    rest = command.json("thread", "list", "--limit", "25", "--cursor", first["next_cursor"])
    listed = [thread["thread_id"] for page in (first, rest) for thread in page["threads"]]
    assert len(first["threads"]) == 25
    assert rest["next_cursor"] is None
    assert sorted(listed) == sorted(LATEST)
    assert main(["thread", "list", "--limit", "3"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    assert "--cursor" in said.err


@pytest.mark.parametrize("thread_id", sorted(LATEST))
def test_inspect_tells_every_thread_in_full(command: Command, thread_id: str) -> None:
    latest = LATEST[thread_id]
    told = command.json("thread", "inspect", thread_id)
    assert told["state"] == latest["state"]
    assert told["checkpoints"] == latest["rows"]
    assert told["suspended_node"] == latest["suspended_node"]
    assert told["next_node"] == latest["next_node"]
    expected = latest["frozen_state"]
    if not (isinstance(expected, dict) and "$sha256" in json.dumps(expected)):
        assert told["frozen_state"] == expected


def test_inspect_for_people(command: Command) -> None:
    told = command.fields("thread", "inspect", "order-1042")
    assert told["state"] == "ended"
    assert told["next node"] == "-"
    assert told["checkpoints"] == "2 (latest is sequence 1)"
    assert told["metadata tenant"] == "acme"
    assert told["metadata strata.ended_by"] == "ops"
    assert json.loads(told["frozen state"])["order"] == "order-1042"


def test_inspect_shows_the_states_of_nested_levels(command: Command) -> None:
    told = command.fields("thread", "inspect", "order-1050")
    assert told["node"] == "review/approve"
    assert {"frozen state", "frozen state review"} <= told.keys()


def test_log_is_the_whole_timeline(command: Command) -> None:
    statuses = [row["status"] for row in command.json("checkpoint", "log", "order-1041")["checkpoints"]]
    index = next(thread for thread in INDEX["threads"] if thread["thread_id"] == "order-1041")
    assert statuses == index["latest"]["row_statuses"]
    header, *rows = command.lines("checkpoint", "log", "order-1041")
    assert header.split("\t") == ["SEQUENCE", "STATUS", "NODE", "NEXT NODE", "TIME"]
    assert [row.split("\t")[0] for row in rows] == [str(number) for number in range(5)]
    assert rows[0].split("\t")[1:4] == ["running", "-", "prepare"]


def test_log_goes_on_after_a_sequence_up_to_a_limit(command: Command) -> None:
    log = command.json("checkpoint", "log", "order-1041", "--after", "1", "--limit", "2")
    assert [row["sequence"] for row in log["checkpoints"]] == [2, 3]


def test_log_marks_a_resume(command: Command) -> None:
    *_, last = command.lines("checkpoint", "log", "order-1046")
    assert "interrupted (resumed)" in last


def test_diff_names_the_fields_that_changed(command: Command) -> None:
    told = command.json("checkpoint", "diff", "order-1040", "--seq-a", "1", "--seq-b", "2")
    assert [change["field"] for change in told["changes"]] == ["visited"]
    assert told["changes"][0]["change"] == "changed"
    header, row = command.lines("checkpoint", "diff", "order-1040", "--seq-a", "1", "--seq-b", "2")
    assert header.split("\t") == ["FIELD", "CHANGE", "AT 1", "AT 2"]
    assert row.split("\t")[:2] == ["visited", "changed"]


def test_diff_of_equal_states(command: Command) -> None:
    assert command.lines("checkpoint", "diff", "order-1040", "--seq-a", "1", "--seq-b", "1") == [
        "the states are equal"
    ]


def test_replay_shows_a_checkpoint_of_the_past(command: Command) -> None:
    told = command.json("checkpoint", "replay", "order-1041", "--sequence", "1")
    assert (told["status"], told["resumes_at"]) == ("running", "approve")
    assert told["frozen_state"]["visited"] == ["prepare"]
    assert command.fields("checkpoint", "replay", "order-1041", "--sequence", "4")["resumes at"].startswith(
        "- (the thread is finished)"
    )


def test_replay_shows_the_decision_in_effect(command: Command) -> None:
    told = command.json("checkpoint", "replay", "order-1041", "--sequence", "3")
    assert told["decision"]["is_approved"] is True
    assert (
        "approved by" in command.fields("checkpoint", "replay", "order-1041", "--sequence", "3")["decision"]
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["thread", "inspect", "order-nobody"],
        ["checkpoint", "log", "order-nobody"],
        ["checkpoint", "replay", "order-1001", "--sequence", "7"],
        ["checkpoint", "diff", "order-1001", "--seq-a", "0", "--seq-b", "7"],
    ],
)
def test_what_is_not_there_ends_with_4(command: Command, argv: list[str]) -> None:
    code, said = command.failure(*argv)
    assert code == 4
    assert argv[2] in said
    assert "[OUTCROP_NOT_FOUND]" in said


def test_a_store_that_is_not_there_ends_with_3(command: Command, tmp_path: Path) -> None:
    code, said = command.failure("thread", "list", "--storage", str(tmp_path / "none.db"))
    assert code == 3
    assert "none.db" in said
    assert not (tmp_path / "none.db").exists()


def test_a_memory_store_or_a_bad_cursor_is_a_usage_error(command: Command) -> None:
    assert command.failure("thread", "list", "--storage", "memory:")[0] == 2
    assert command.failure("thread", "list", "--cursor", "?")[0] == 2


def test_an_unsupported_url_is_told_without_its_password(command: Command) -> None:
    code, said = command.failure("thread", "list", "--storage", "oracle://scott:tiger@db/x")
    assert code == 2
    assert "tiger" not in said


def test_nothing_is_written_even_beside_a_writer(command: Command, database: Path) -> None:
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    writer = sqlite3.connect(database, isolation_level=None)
    try:
        writer.execute("BEGIN IMMEDIATE")  # as a worker in the middle of a save
        command.json("thread", "list")
        command.json("thread", "inspect", "order-1051")
        command.json("checkpoint", "log", "order-1051")
        command.json("checkpoint", "replay", "order-1051", "--sequence", "0")
        command.json("checkpoint", "diff", "order-1051", "--seq-a", "0", "--seq-b", "1")
        writer.execute("ROLLBACK")
    finally:
        writer.close()
    assert hashlib.sha256(database.read_bytes()).hexdigest() == before
    assert sorted(path.name for path in database.parent.iterdir()) == ["threads.db"]


def test_a_live_lease_is_shown(command: Command, database: Path) -> None:
    connection = sqlite3.connect(database)
    with connection:
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(checkpoint_leases)")]
        assert "expires_at" in columns
        connection.execute(
            "UPDATE checkpoint_leases SET expires_at = ? WHERE thread_id = 'order-1038'",
            (_far_like(connection),),
        )
    connection.close()
    told = command.json("thread", "inspect", "order-1038")["lease"]
    assert told["owner"] == "worker-9"
    assert command.fields("thread", "inspect", "order-1038")["lease"].startswith("worker-9 until 2")


def _far_like(connection: sqlite3.Connection) -> Any:
    """A far expiry in the column's own form."""
    (sample,) = connection.execute(
        "SELECT expires_at FROM checkpoint_leases WHERE thread_id = 'order-1038'"
    ).fetchone()
    return sample + 10**12 if isinstance(sample, int) else "2999-01-01T00:00:00.000Z"


def test_ids_cannot_drive_the_terminal(command: Command, database: Path) -> None:
    connection = sqlite3.connect(database)
    with connection:
        for table in ("checkpoints", "checkpoint_threads"):
            connection.execute(
                f"UPDATE {table} SET thread_id = ? WHERE thread_id = 'order-1001'",  # noqa: S608 - fixed names
                ("\x1b]0;owned\x07[red]order\u202e\x9b",),
            )
    connection.close()
    text = "\n".join(command.lines("thread", "list"))
    assert "\x1b" not in text
    assert "\\x1b]0;owned\\x07[red]order\\u202e\\x9b" in text
    as_json = "\n".join(command.lines("thread", "list", "--json"))
    assert all(line.isprintable() for line in as_json.splitlines())
    assert "\x1b]0;owned\x07[red]order\u202e\x9b" in {
        thread["thread_id"] for thread in json.loads(as_json)["threads"]
    }
