"""The Rust engine and ours share threads: whoever takes a step, answers and rows are the same.

Each scenario runs four ways on a place of its own (a file, a database, a Redis prefix): by the
peer alone (the reference), by us alone, and with the engines taking turns, either of them first.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import Interrupted, Threads
from outcrop.stores import open_store
from support.interop import masked, rows
from support.storages import KINDS
from support.twin import answer
from support.twins import Variant, twin

if TYPE_CHECKING:
    from support.storages import Places, Storage

LEASE = ["--lease", "worker-1:60000"]
ITEMS = '{"items": [{"id": "x", "n": 3}, {"id": "y", "n": -1}, {"id": "z"}]}'
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
    "loop, hop limit": (
        "loop",
        [
            ["run", "--run-id", "r1", "--max-hops", "4", "--state", '{"limit": 10}'],
            ["resume", "--run-id", "r2", "--max-hops", "4"],
            ["resume", "--run-id", "r2", "--max-hops", "4", "--run-max-hops", "40"],
        ],
    ),
    "fanout": ("fanout", [["run", "--state", '{"record_keys": true, "base": 4}', "--run-id", "run-1"]]),
    "fanout, failed": (
        "fanout",
        [
            ["run", "--state", '{"fail_branch": "green"}'],
            ["resume"],
            ["resume", "--override", '{"fail_branch": null}'],
        ],
    ),
    "mapped": ("mapped", [["run", "--state", ITEMS]]),
    "mapped, of nothing": ("mapped", [["run", "--state", '{"items": []}']]),
    "mapped, failed": (
        "mapped",
        [
            ["run", "--state", '{"items": [{"id": "x", "n": 3}, {"id": "y", "fail": "fatal"}]}'],
            ["resume"],
            ["resume", "--override", '{"items": [{"id": "y", "n": 1}]}'],
        ],
    ),
    "mapped, busy": ("mapped", [["run", "--state", '{"items": [{"id": "y", "fail": "transient"}]}']]),
    "mapped, cancelled": ("mapped", [["run", "--state", ITEMS, "--cancel-at", "each/y/double"], ["resume"]]),
    "nested, approved": (
        "nested",
        [
            ["run", *IDENTITY, "--state", '{"document": "memo"}'],
            ["resume", "--graph-id", "refunds"],
            [
                *["resume", *IDENTITY, "--by", "dana", "--override", '{"n": 1}'],
                *["--outer", '/={"owner": "sam"}'],
            ],
            ["resume", *IDENTITY],
        ],
    ),
    "nested, rejected": ("nested", [["run"], ["resume", "--reject", "--by", "lee"], ["end"]]),
    "nested, ended": ("nested", [["run"], ["end", "--by", "ops"], ["resume"]]),
    "nested, failed": (
        "nested",
        [
            ["run", "--state", '{"fail_publish": true}'],
            ["resume", "--by", "dana"],
            ["resume", "--override", '{"fail_publish": false}'],
        ],
    ),
    "nested, cancelled": (
        "nested",
        [
            ["run", "--cancel-at", "review/draft"],
            ["resume"],
            ["resume", "--cancel-at", "review/publish"],
            ["resume"],
        ],
    ),
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
    "crash in a branch": (
        "fanout",
        [["crash", "--at", "gather/green", "--state", '{"record_keys": true}'], ["recover"]],
    ),
    "crash in an item": ("mapped", [["crash", "--at", "each/y/double", "--state", ITEMS], ["recover"]]),
    "crash in a child": ("nested", [["crash", "--at", "review/draft"], ["recover"], ["resume"]]),
    "crash in a child, resumed": (
        "nested",
        [["run"], ["resume", "--by", "dana", "--crash-at", "review/publish"], ["recover"]],
    ),
    "crash after a child": ("nested", [["run"], ["resume", "--crash-at", "close"], ["recover"]]),
    "crash in a child, then ended": ("nested", [["crash", "--at", "review/draft"], ["end", "--by", "ops"]]),
    "crash, then ended": ("line3", [["crash", "--at", "b"], ["end", "--by", "ops"], ["recover"]]),
    "crash, found by the driver": (
        "line3",
        [["crash", "--at", "b"], ["recover-stale", "--stale-after-ms", "0", "--now", "2050-01-01T00:00:00Z"]],
    ),
}

TURNS = {"peer": "p", "us": "u", "peer first": "pu", "us first": "up"}


class Sides:
    """Runs a scenario's commands by the peer or by us, on one place."""

    def __init__(self, peer: Path, storage: Storage) -> None:
        self.peer, self.storage = peer, storage

    def words(self, graph: str, command: list[str], extra: list[str]) -> list[str]:
        verb, *rest = command
        thread = [] if verb in {"wake-due", "recover-stale"} else ["--thread", "order-1"]
        return [verb, "--graph", graph, *thread, *rest, *extra]

    async def step(self, side: str, words: list[str]) -> Any:
        crashes = words[0] == "crash" or "--crash-at" in words
        ours = [*words, "--storage", self.storage.url]
        if side == "u" and not crashes:
            return masked(await answer(ours))
        twin = [sys.executable, "-m", "support.twin", *ours]
        done = await asyncio.to_thread(
            subprocess.run,
            [str(self.peer), *words, *self.storage.peer] if side == "p" else twin,
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


async def played(
    peer: Path, places: Places, kind: str, form: str, scenario: tuple[str, list[list[str]]], extra: list[str]
) -> dict[str, tuple[list[Any], list[Any]]]:
    """What the scenario comes to, whoever takes which turn, each on a place of its own."""
    graph, commands = scenario
    found = {}
    for who, turns in TURNS.items():
        async with places.fresh(kind) as plain:
            storage = plain.encoded if form == "encoded" else plain
            found[who] = await Sides(peer, storage).play(graph, commands, extra, turns)
    return found


def _extra(*, every_node: bool, leased: bool) -> list[str]:
    return (["--every-node"] if every_node else []) + (LEASE if leased else [])


@pytest.mark.peer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leased", [False, True], ids=["unleased", "leased"])
@pytest.mark.parametrize("every_node", [False, True], ids=["boundaries", "every node"])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_engines_take_turns(
    name: str, every_node: bool, leased: bool, kind: str, peer: Path, places: Places
) -> None:
    extra = _extra(every_node=every_node, leased=leased)
    found = await played(peer, places, kind, "plain", SCENARIOS[name], extra)
    reference = found.pop("peer")
    assert found == dict.fromkeys(found, reference)


@pytest.mark.peer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_engines_take_turns_on_deltas_blobs_and_group_commits(
    name: str, kind: str, peer: Path, places: Places
) -> None:
    extra = _extra(every_node=True, leased=True)
    found = await played(peer, places, kind, "encoded", SCENARIOS[name], extra)
    reference = found.pop("peer")
    assert found == dict.fromkeys(found, reference)


@pytest.mark.peer
@pytest.mark.parametrize("form", ["plain", "encoded"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CRASHES)
async def test_the_engines_recover_each_other(
    name: str, kind: str, form: str, peer: Path, places: Places
) -> None:
    extra = _extra(every_node=True, leased=False)
    found = await played(peer, places, kind, form, CRASHES[name], extra)
    reference = found.pop("peer")
    assert found == dict.fromkeys(found, reference)


@pytest.mark.peer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("holder", "pu")
@pytest.mark.parametrize("comer", "pu")
async def test_a_lease_of_either_engine_holds_the_other_off(
    holder: str, comer: str, kind: str, peer: Path, places: Places
) -> None:
    async with places.fresh(kind) as storage:
        sides = Sides(peer, storage)
        await sides.step(holder, sides.words("approval", ["run"], LEASE))
        thread = ["--thread", "order-1"]
        taken = await sides.step(holder, ["lease-acquire", *thread, "--owner", "desk-4", "--ttl-ms", "60000"])
        assert taken["lease"]["token"] == 2
        other = ["--lease", "worker-2:60000"]
        refused = await sides.step(comer, sides.words("approval", ["resume"], other))
        assert refused["error"]["message"] == "thread 'order-1' is held by 'desk-4' until $TIME"
        assert (await sides.step(comer, ["lease-release", *thread, "--token", "2"])) == {"released": True}
        resumed = await sides.step(holder, sides.words("approval", ["resume"], other))
        assert resumed["kind"] == "completed"
        assert len(await rows(storage, "order-1")) == 2


@pytest.mark.peer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turns", ["pu", "up"])
async def test_a_group_cancelled_by_either_engine_goes_on_with_the_other(
    turns: str, kind: str, peer: Path, places: Places
) -> None:
    """Ours is `cancelled`; the peer's threads race, and mostly its group failed: "no branches to run"."""
    async with places.fresh(kind) as storage:
        commands = [["run", "--cancel-at", "gather/green"], ["resume"]]
        answers, _ = await Sides(peer, storage).play("fanout", commands, ["--every-node"], turns)
        assert answers[0]["kind"] in ({"failed", "cancelled"} if turns == "pu" else {"cancelled"})
        assert answers[1]["state"] == {
            "visited": ["split", "gather", "join"],
            "results": {"red": 2, "green": 3, "blue": 2},
            "sum": 7,
        }


@pytest.mark.peer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every_node", [False, True], ids=["boundaries", "every node"])
async def test_the_peer_goes_on_from_a_fork_and_from_an_updated_state(
    every_node: bool, kind: str, peer: Path, places: Places
) -> None:
    extra = _extra(every_node=every_node, leased=False)
    async with places.fresh(kind) as storage:
        sides = Sides(peer, storage)
        waiting = await sides.step("p", sides.words("approval", ["run"], extra))
        await sides.step("p", sides.words("approval", ["resume"], extra))
        store = await open_store(storage.url)
        try:
            threads = Threads(twin("approval", Variant(every_node=every_node)), store)
            await threads.fork("order-1", waiting["latest"]["sequence"])
            updated = await threads.update_state("order-1", {"amount": 9})
            assert isinstance(updated, Interrupted)
        finally:
            await store.close()
        resumed = await sides.step("p", sides.words("approval", ["resume", "--by", "lee"], extra))
        assert resumed["kind"] == "completed"
        assert resumed["state"]["visited"] == ["prepare", "approve", "execute"]
        assert (resumed["state"]["amount"], resumed["state"]["decision"]["reviewer"]) == (9, "lee")
