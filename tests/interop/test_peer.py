"""The Rust engine and ours share threads: whoever takes a step, answers and rows are the same.

Each scenario runs four ways on a file of its own: by the peer alone (the reference), by us
alone, and with the engines taking turns, either of them first.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.interop import masked, rows
from support.twin import answer

LEASE = ["--lease", "worker-1:60000"]
IDENTITY = ["--graph-id", "orders", "--graph-version", "7"]

SCENARIOS: dict[str, tuple[str, list[list[str]]]] = {
    "line": ("line3", [["run"]]),
    "ten": ("ten", [["run", "--metadata", "tenant=acme"]]),
    "cancelled": ("line3", [["run", "--cancel-at", "b"], ["resume", "--by", "dana"]]),
    "approved": (
        "approval",
        [["run"], ["resume", "--by", "dana", "--override", '{"amount": 7}'], ["resume"], ["end"]],
    ),
    "rejected": (
        "approval",
        [
            ["run"],
            ["resume", "--reject", "--by", "lee", "--field-override", "note=no"],
            ["end", "--by", "ops"],
        ],
    ),
    "ended": ("approval", [["run"], ["end", "--by", "ops"], ["end", "--by", "ops"], ["resume"]]),
    "approval not due": (
        "approval",
        [
            ["run", "--timeout-ms", "1000"],
            ["resume", "--timeout-ms", "1000", "--due", "--now", "2020-01-01T00:00:00Z"],
        ],
    ),
    "approval timed out": (
        "approval",
        [
            ["run", "--timeout-ms", "1000"],
            ["resume", "--timeout-ms", "1000", "--due", "--now", "2050-01-01T00:00:00Z"],
        ],
    ),
    "approval ended by timeout": (
        "approval",
        [
            ["run", "--timeout-ms", "1000", "--no-timeout-route"],
            [
                "resume",
                "--timeout-ms",
                "1000",
                "--no-timeout-route",
                "--due",
                "--now",
                "2050-01-01T00:00:00Z",
            ],
            ["resume", "--timeout-ms", "1000", "--no-timeout-route"],
        ],
    ),
    "signalled": (
        "event",
        [
            ["run"],
            ["signal", "--event", "payment.refused"],
            ["resume"],
            ["signal", "--event", "payment.received", "--override", '{"paid": 12.5}'],
            ["signal", "--event", "payment.received"],
        ],
    ),
    "event timed out": (
        "event",
        [
            ["run", "--timeout-ms", "1000"],
            ["resume", "--timeout-ms", "1000", "--due", "--now", "2050-01-01T00:00:00Z"],
        ],
    ),
    "timer": (
        "timer",
        [
            ["run", "--state", '{"due_at": "2040-01-01T00:00:00Z"}'],
            ["resume"],
            ["resume", "--due", "--now", "2039-12-31T23:59:59Z"],
            ["resume", "--due", "--now", "2040-01-01T00:00:00Z"],
        ],
    ),
    "loop": ("loop", [["run", "--run-id", "run-1"]]),
    "flaky": ("flaky", [["run"]]),
    "flaky, given up": (
        "flaky",
        [["run", "--state", '{"failures": 9}'], ["resume", "--override", '{"failures": 0}']],
    ),
    "failing": (
        "failing",
        [["run"], ["resume"], ["resume", "--by", "dana", "--override", '{"card": "ok"}'], ["resume"]],
    ),
    "failing, ended": ("failing", [["run", "--metadata", "tenant=acme"], ["end", "--by", "ops"]]),
    "another graph": (
        "approval",
        [
            ["run", *IDENTITY],
            ["resume", "--graph-id", "refunds"],
            ["end", "--graph-id", "orders"],
            ["resume", *IDENTITY],
        ],
    ),
    "woken": (
        "timer",
        [["run", "--state", '{"due_at": "2020-01-01T00:00:00Z"}'], ["wake-due"], ["wake-due"]],
    ),
}

CRASHES: dict[str, tuple[str, list[list[str]]]] = {
    "crash in the second node": ("line3", [["crash", "--at", "b"], ["resume"], ["recover"], ["recover"]]),
    "crash in the first node": ("line3", [["crash", "--at", "1"], ["recover", "--metadata", "by=ops"]]),
    "crash in a loop": ("loop", [["crash", "--at", "work#2"], ["recover"]]),
    "crash twice": ("loop", [["crash", "--at", "work#2"], ["recover", "--crash-at", "1"], ["recover"]]),
    "crash, then ended": ("line3", [["crash", "--at", "b"], ["end", "--by", "ops"], ["recover"]]),
    "crash, found by the driver": (
        "line3",
        [["crash", "--at", "b"], ["recover-stale", "--stale-after-ms", "0", "--now", "2050-01-01T00:00:00Z"]],
    ),
}

TURNS = {"us": "u", "peer first": "pu", "us first": "up"}


class Sides:
    """Runs a scenario's commands by the peer or by us."""

    def __init__(self, peer: Path, storage: Path) -> None:
        self.peer, self.storage = peer, storage

    def words(self, graph: str, command: list[str], extra: list[str]) -> list[str]:
        verb, *rest = command
        thread = [] if verb in {"wake-due", "recover-stale"} else ["--thread", "order-1"]
        return [verb, "--storage", str(self.storage), "--graph", graph, *thread, *rest, *extra]

    async def step(self, side: str, words: list[str]) -> Any:
        crashes = words[0] == "crash" or "--crash-at" in words
        if side == "u" and not crashes:
            return masked(await answer(words))
        program = [str(self.peer)] if side == "p" else [sys.executable, "-m", "support.twin"]
        done = await asyncio.to_thread(
            subprocess.run,
            [*program, *words],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        if crashes:
            assert done.returncode in {-6, 134}, done.stderr
            return "crashed"
        assert done.returncode == 0, done.stderr
        return masked(json.loads(done.stdout))

    async def play(
        self, graph: str, commands: list[list[str]], extra: list[str], turns: str
    ) -> tuple[list[Any], list[Any]]:
        answers = [
            await self.step(side, self.words(graph, command, extra))
            for command, side in zip(commands, itertools.cycle(turns), strict=False)
        ]
        return answers, await rows(self.storage, "order-1")


def _extra(*, every_node: bool, leased: bool) -> list[str]:
    return (["--every-node"] if every_node else []) + (LEASE if leased else [])


@pytest.mark.peer
@pytest.mark.parametrize("leased", [False, True], ids=["unleased", "leased"])
@pytest.mark.parametrize("every_node", [False, True], ids=["boundaries", "every node"])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_engines_take_turns(
    name: str, every_node: bool, leased: bool, peer: Path, tmp_path: Path
) -> None:
    graph, commands = SCENARIOS[name]
    extra = _extra(every_node=every_node, leased=leased)
    reference = await Sides(peer, tmp_path / "reference.db").play(graph, commands, extra, "p")
    for who, turns in TURNS.items():
        played = await Sides(peer, tmp_path / f"{turns}.db").play(graph, commands, extra, turns)
        assert played == reference, who


@pytest.mark.peer
@pytest.mark.parametrize("name", CRASHES)
async def test_the_engines_recover_each_other(name: str, peer: Path, tmp_path: Path) -> None:
    graph, commands = CRASHES[name]
    extra = _extra(every_node=True, leased=False)
    reference = await Sides(peer, tmp_path / "reference.db").play(graph, commands, extra, "p")
    for who, turns in TURNS.items():
        played = await Sides(peer, tmp_path / f"{turns}.db").play(graph, commands, extra, turns)
        assert played == reference, who


@pytest.mark.peer
@pytest.mark.parametrize("holder", "pu")
@pytest.mark.parametrize("comer", "pu")
async def test_a_lease_of_either_engine_holds_the_other_off(
    holder: str, comer: str, peer: Path, tmp_path: Path
) -> None:
    sides = Sides(peer, tmp_path / "threads.db")
    run = sides.words("approval", ["run"], LEASE)
    await sides.step(holder, run)
    storage = ["--storage", str(sides.storage), "--thread", "order-1"]
    taken = await sides.step(holder, ["lease-acquire", *storage, "--owner", "desk-4", "--ttl-ms", "60000"])
    assert taken["lease"]["token"] == 2
    refused = await sides.step(comer, sides.words("approval", ["resume"], ["--lease", "worker-2:60000"]))
    assert refused["error"]["message"] == "thread 'order-1' is held by 'desk-4' until $TIME"
    assert (await sides.step(comer, ["lease-release", *storage, "--token", "2"])) == {"released": True}
    resumed = await sides.step(holder, sides.words("approval", ["resume"], ["--lease", "worker-2:60000"]))
    assert resumed["kind"] == "completed"
    assert len(await rows(sides.storage, "order-1")) == 2
