"""`outcrop topics` against a real broker."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from outcrop.worker.cli import main

pytestmark = pytest.mark.kafka


class Topics:
    """`outcrop topics VERB` with names of its own."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.prefix = f"t{uuid4().hex[:8]}"
        self._bootstrap = bootstrap
        self._capsys = capsys

    def run(self, verb: str, *options: str) -> tuple[int, str]:
        names = (f"--{role}-topic={self.prefix}.{role}" for role in ("commands", "outcomes", "dead"))
        code = main(["topics", verb, "--bootstrap", self._bootstrap, *names, *options])
        said = self._capsys.readouterr()
        assert said.err == ""
        return code, said.out

    def json(self, verb: str, *options: str) -> tuple[int, Any]:
        code, said = self.run(verb, *options, "--json")
        return code, json.loads(said)


@pytest.fixture
def topics(kafka_bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Topics:
    return Topics(kafka_bootstrap, capsys)


def test_missing_topics_are_made_and_then_as_wanted(topics: Topics) -> None:
    assert topics.run("check")[0] == 4
    code, report = topics.json("create", "--partitions", "2")
    assert (code, report["existing"], report["differences"]) == (0, [], [])
    assert sorted(report["created"]) == [
        f"{topics.prefix}.{role}" for role in ("commands", "dead", "outcomes")
    ]
    assert topics.run("check", "--partitions", "2") == (0, "the topics are as wanted\n")


def test_a_drift_is_told_and_not_repaired(topics: Topics) -> None:
    assert topics.run("create", "--partitions", "2")[0] == 0
    for verb in ("check", "create"):
        code, said = topics.run(verb, "--partitions", "3", "--retention-days", "1")
        assert code == 1
        assert f"{topics.prefix}.commands: partitions is 2, wanted 3" in said
    assert topics.run("check", "--partitions", "2")[0] == 0
    code, report = topics.json("check", "--partitions", "3")
    assert (code, len(report["differences"])) == (1, 3)
