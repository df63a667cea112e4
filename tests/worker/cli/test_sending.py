"""`outcrop dev`, and `send` and `outcomes` against it: one worker for all tests here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from outcrop.engine import Graph
from outcrop.worker import load_settings
from outcrop.worker.cli import main
from outcrop.worker.dev import hints

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLI = (sys.executable, "-m", "outcrop.worker.cli")
GRAPHS = "outcrop.worker.demo.orders:graph"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("OUTCROP_")}


class Dev:
    """`outcrop dev` as a process, and what it said at its start."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "dev.db"
        self._log = (folder / "dev.log").open("w+")
        self.process = subprocess.Popen(
            [*CLI, "dev", GRAPHS, "--store", str(self.store)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        said: list[str] = []
        while not (said and said[-1].startswith("Ctrl-C")):
            line = self.process.stdout.readline()
            assert line, self.log()
            said.append(line)
        self.said = "".join(said)
        self.bootstrap = re.findall(r"127\.0\.0\.1:\d+", self.said)[0]

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.communicate()
            self._log.close()


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    started = Dev(tmp_path_factory.mktemp("dev"))
    yield started
    assert started.stop() == 0


@pytest.fixture
def thread_id() -> str:
    return f"order-{uuid4()}"


@pytest.fixture(autouse=True)
def _bootstrap(dev: Dev, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTCROP_BOOTSTRAP", dev.bootstrap)


class Sender:
    """Sends commands and reads what is printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *argv: str, code: int = 0) -> str:
        assert main(["send", *argv]) == code
        said = self._capsys.readouterr()
        assert said.err == ""
        return said.out

    def outcome(self, *argv: str, code: int = 0) -> dict[str, Any]:
        document = json.loads(self.text(*argv, "--wait", "--json", code=code))
        assert document["outcome"]["command_id"] == document["command_id"]
        outcome: dict[str, Any] = document["outcome"]
        return outcome

    def failure(self, *argv: str) -> tuple[int, str]:
        code = main(["send", *argv])
        said = self._capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1, said.err
        return code, said.err


@pytest.fixture
def send(capsys: pytest.CaptureFixture[str]) -> Sender:
    return Sender(capsys)


def test_dev_says_what_to_type(dev: Dev) -> None:
    run = "outcrop send run orders-1 --graph orders --state @state.json --wait --bootstrap"
    assert f"{run} {dev.bootstrap}" in dev.said
    assert "field 'amount'" in dev.said
    assert f"outcrop thread list --storage {dev.store}" in dev.said


def test_dev_repeats_no_password() -> None:
    graph = Graph(dict[str, Any], id="orders")
    graph.node(name="a")(_nothing)
    settings = load_settings({"bootstrap": "b:1", "store": "postgres://user:secret@h/d"}, environment={})
    told = "\n".join(hints([graph.compile()], settings))
    assert "outcrop thread list" in told
    assert "secret" not in told


async def _nothing(_: dict[str, Any]) -> None: ...


def test_run_and_wait(send: Sender, thread_id: str) -> None:
    outcome = send.outcome(
        "run", thread_id, "--graph", "orders@1", "--state", '{"amount": 250}', "--metadata", "tenant=acme"
    )
    assert (outcome["status"], outcome["state"]["result"]) == ("completed", "shipped")
    assert outcome["metadata"] == {"tenant": "acme"}


def test_run_and_wait_for_people(send: Sender, thread_id: str) -> None:
    said = send.text("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}', "--wait")
    fields = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert fields["status"] == "interrupted"
    assert fields["node"] == "approve"
    assert "for  a person until" in fields["waits"]


@pytest.mark.parametrize(("decision", "result"), [("approve", "shipped"), ("reject", "released")])
def test_resume_with_a_decision(send: Sender, thread_id: str, decision: str, result: str) -> None:
    waiting = send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}')
    answer = ("--decision", decision, "--by", "dana", "--override", "amount=2400", "--boundary", "approve")
    outcome = send.outcome("resume", thread_id, *answer, "--expected-sequence", str(waiting["sequence"]))
    assert (outcome["status"], outcome["state"]["result"]) == ("completed", result)
    assert outcome["state"]["amount"] == 2400


def test_signal_carries_its_payload(send: Sender, thread_id: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload.json"
    payload.write_text('{"settled": true}')
    state = '{"amount": 25, "pay_by": "invoice"}'
    waiting = send.outcome("run", thread_id, "--graph", "orders", "--state", state)
    assert waiting["wait"]["event"] == "payment.settled"
    outcome = send.outcome("signal", thread_id, "payment.settled", "--payload", f"@{payload}")
    assert (outcome["status"], outcome["state"]["settled"]) == ("completed", True)


def test_update_and_rerun_take_a_thread_back(send: Sender, thread_id: str) -> None:
    waiting = send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}')
    seen = ("--expected-sequence", str(waiting["sequence"]))
    updated = send.outcome("update", thread_id, "--set", "amount=2400", "--set", 'pay_by="card"', *seen)
    assert (updated["status"], updated["node"], updated["state"]["amount"]) == (
        "interrupted",
        "approve",
        2400,
    )
    stale = send.outcome("rerun", thread_id, "--at-sequence", "1", *seen, code=1)
    assert stale["reason"] == "stale"
    again = send.outcome("rerun", thread_id, "--at-sequence", "1")
    assert (again["status"], again["state"]["amount"]) == ("interrupted", 2500)
    moved = send.outcome("update", thread_id, "--as-node", "charge", "--at-sequence", "1")
    assert (moved["status"], moved["node"]) == ("interrupted", "charge")


def test_a_reply_to_what_nobody_asked_is_refused(send: Sender, thread_id: str) -> None:
    send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}')
    refused = send.outcome("resume", thread_id, "--reply", 'colour="red"', code=1)
    assert "asks no question" in refused["error"]["message"]


def test_end_ends(send: Sender, thread_id: str) -> None:
    send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}')
    assert send.outcome("end", thread_id, "--by", "dana")["status"] == "ended"


def test_a_refusal_fails_the_command(send: Sender, thread_id: str) -> None:
    outcome = send.outcome("cancel", thread_id, code=1)
    assert (outcome["status"], outcome["reason"]) == ("refused", "no_thread")


def test_sending_without_waiting_tells_the_command_and_the_same_id_is_one_intent(
    send: Sender, thread_id: str
) -> None:
    command_id = str(uuid4())
    run = ("run", thread_id, "--graph", "orders", "--state", '{"amount": 250}', "--command-id", command_id)
    assert command_id in send.text(*run)
    document = json.loads(send.text(*run, "--json"))
    assert document == {"thread_id": thread_id, "command_id": command_id, "outcome": None}


def test_no_outcome_in_time_ends_with_5(send: Sender, thread_id: str) -> None:
    state = ("--graph", "orders", "--state", '{"amount": 250}')
    code, said = send.failure("run", thread_id, *state, "--wait", "--timeout", "0.001")
    assert code == 5
    assert thread_id in said


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["resume", "t", "--by", "dana"], 2),
        (["end", "t", "--metadata", "outcrop.x=1"], 2),
        (["end", "t\x1b"], 2),
        (["end", "t", "--bootstrap", "127.0.0.1:1"], 3),
        (["end", "t", "--commands-topic", "no.such.topic"], 4),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, list) else str(value),
)
def test_what_cannot_be_sent(send: Sender, argv: list[str], code: int) -> None:
    assert send.failure(*argv)[0] == code


def test_outcomes_from_the_start_filtered(
    send: Sender, thread_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}')
    send.outcome("end", thread_id)
    follow = ["outcomes", "--from-start", "--thread", thread_id]
    assert main([*follow, "--limit", "2", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [outcome["status"] for outcome in told] == ["interrupted", "ended"]
    assert main([*follow, "--status", "ended", "--limit", "1"]) == 0
    cells = capsys.readouterr().out.rstrip("\n").split("\t")
    assert cells[1:6] == ["ended", thread_id, "end", "approve", str(told[1]["sequence"])]


def test_events_of_a_thread_are_followed(dev: Dev, send: Sender, thread_id: str) -> None:
    follower = subprocess.Popen(
        [*CLI, "events", "--bootstrap", dev.bootstrap, "--thread", thread_id, "--type", "run_completed"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stderr is not None
    assert follower.stderr.readline() == "following threads.events\n"
    send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}')
    assert follower.stdout is not None
    cells = follower.stdout.readline().rstrip("\n").split("\t")
    assert cells[1:4] == [thread_id, "run_completed", "-"]
    assert json.loads(cells[4])["outcome"] == "Interrupted"
    follower.send_signal(signal.SIGINT)
    assert follower.communicate(timeout=30) == ("", "")
    assert follower.returncode == 0


def test_following_stops_cleanly_at_an_interrupt(dev: Dev, send: Sender, thread_id: str) -> None:
    send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 250}')
    follower = subprocess.Popen(
        [*CLI, "outcomes", "--from-start", "--bootstrap", dev.bootstrap, "--json"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    json.loads(follower.stdout.readline())  # it follows
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=30)
    assert (follower.returncode, said) == (0, "")


def test_checking_topics_of_a_broker_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("confluent_kafka")
    assert main(["topics", "check", "--bootstrap", "127.0.0.1:1"]) == 3
    assert "OUTCROP_BROKER_UNREACHABLE" in capsys.readouterr().err


def test_threads_sent_are_in_the_file(
    dev: Dev, send: Sender, thread_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 250}')
    assert main(["thread", "inspect", thread_id, "--storage", str(dev.store), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["graph"]) == ("completed", {"id": "orders", "version": "1"})


def test_graphs_that_are_not_there_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "no.such:graph"]) == 2
    assert "OUTCROP_WORKER_GRAPHS" in capsys.readouterr().err
    assert main(["worker", GRAPHS, "--concurrency", "-1"]) == 2
    assert "concurrency" in capsys.readouterr().err


def test_a_thread_goes_on_after_dev_was_started_anew(
    tmp_path: Path, send: Sender, thread_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file outlives the embedded broker, whose offsets start anew: nothing was passed already."""
    first = Dev(tmp_path)
    monkeypatch.setenv("OUTCROP_BOOTSTRAP", first.bootstrap)
    try:
        for _ in range(2):
            refused = send.outcome("end", thread_id, code=1)  # so that the run has a later offset
            assert refused["reason"] == "no_thread"
        waiting = send.outcome("run", thread_id, "--graph", "orders", "--state", '{"amount": 2500}')
        assert waiting["status"] == "interrupted"
    finally:
        assert first.stop() == 0
    again = Dev(tmp_path)
    monkeypatch.setenv("OUTCROP_BOOTSTRAP", again.bootstrap)
    try:
        assert send.outcome("resume", thread_id, "--decision", "approve")["status"] == "completed"
    finally:
        assert again.stop() == 0
