"""Dead letters, outcomes, the registry and overtaking: the small pure parts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from outcrop.engine.clock import ManualClock
from outcrop.engine.graph import Graph
from outcrop.engine.threads import Threads
from outcrop.stores.memory import MemoryStore
from outcrop.stores.record import GraphIdentity, Wait, WaitKind
from outcrop.topics.codec import encode_outcome
from outcrop.topics.messages import CommandType, GraphName, OutcomeStatus
from outcrop.worker.deadletter import dead_letter
from outcrop.worker.errors import SettingsInvalid
from outcrop.worker.outcomes import Telling
from outcrop.worker.overtaking import overtakes
from outcrop.worker.ports import Message, Partition, Record
from outcrop.worker.registry import Registry
from support.handling import State, World
from support.rows import NOW, checkpoint, row

if TYPE_CHECKING:
    from outcrop.engine.compiled import CompiledGraph

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TELLING = Telling(
    command_id=UUID(int=1),
    command_type=CommandType.RUN,
    thread_id="t",
    worker="w0",
    started_at=AT,
    finished_at=AT,
    state_cap=100,
)


def letter(message: Message, limit: int) -> Record:
    return dead_letter(
        message, topic="threads.dead", kind="invalid", error="e" * 5000, attempts=2, failed_at=AT, limit=limit
    )


def test_a_dead_letter_keeps_the_original_and_says_why_and_from_where() -> None:
    record = letter(Message(Partition("c", 3), 42, b"k", b"v", (("mine", b"1"),)), 1000)
    headers = dict(record.headers)
    assert (record.topic, record.key, record.value, headers["mine"]) == ("threads.dead", b"k", b"v", b"1")
    assert headers["outcrop-source-topic"] == b"c"
    assert headers["outcrop-source-partition"] == b"3"
    assert headers["outcrop-source-offset"] == b"42"
    assert headers["outcrop-error-kind"] == b"invalid"
    assert headers["outcrop-attempts"] == b"2"
    assert headers["outcrop-failed-at"] == b"2026-01-02T03:04:05Z"
    assert len(headers["outcrop-error"]) == 1000


@pytest.mark.parametrize("big", ["key", "value", "headers"])
def test_a_dead_letter_fits_its_limit_whatever_is_big(big: str) -> None:
    parts = {"key": b"k", "value": b"v", "headers": b"h"} | {big: b"x" * 5000}
    record = letter(
        Message(Partition("c", 0), 0, parts["key"], parts["value"], (("h", parts["headers"]),)), 1000
    )
    original = sum(
        len(name) + len(value) for name, value in record.headers if not name.startswith("outcrop-")
    )
    assert original + len(record.key or b"") + len(record.value or b"") <= 1000


def test_a_dead_letter_of_a_tombstone_stays_one() -> None:
    record = letter(Message(Partition("c", 0), 0, None, None), 1000)
    assert (record.key, record.value) == (None, None)


@pytest.mark.parametrize(
    ("status", "marks", "reason"),
    [
        ("completed", {}, None),
        ("cancelled", {"cancel_reason": "deadline"}, "deadline"),
        ("ended", {"strata.end_reason": "timed_out"}, "timed_out"),
    ],
)
def test_a_row_tells_status_and_reason(status: str, marks: dict[str, str], reason: str | None) -> None:
    outcome = TELLING.row(
        row(4, status, marks | {"tenant": "acme", "outcrop.token": "1", "strata.hops": "2"})
    )
    assert (outcome.status.value, outcome.reason, outcome.sequence, outcome.node) == (status, reason, 4, "a")
    assert (outcome.metadata, outcome.graph, outcome.state) == (
        {"tenant": "acme"},
        GraphName(id="line", version="1"),
        {"amount": 5},
    )


def test_a_row_tells_the_innermost_wait() -> None:
    inner = checkpoint("interrupted", wait=Wait(WaitKind.EVENT, "paid", NOW))
    outcome = TELLING.row(row(4, "interrupted", nested=inner))
    assert outcome.wait is not None
    assert (outcome.wait.kind, outcome.wait.event, outcome.wait.wake_at) == ("event", "paid", NOW)


def test_a_failed_row_tells_its_error() -> None:
    outcome = TELLING.row(row(4, "failed", {"error": "no money", "error_kind": "fatal"}))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.message) == ("fatal", "no money")


def test_a_long_error_is_cut_and_metadata_counts_towards_the_cap() -> None:
    outcome = TELLING.row(row(4, "failed", {"error": "e" * 20_000, "tenant": "x" * 90}))
    assert outcome.error is not None
    assert len(outcome.error.message) == 10_000
    assert outcome.state_omitted


def test_what_can_not_be_finished_is_failed_and_names_the_row() -> None:
    for outcome, kind in ((TELLING.exhausted(row(4)), "max_recoveries"), (TELLING.lost(row(4)), "lost_run")):
        assert outcome.error is not None
        assert (outcome.status, outcome.sequence, outcome.error.kind) == (OutcomeStatus.FAILED, 4, kind)


@pytest.mark.parametrize(
    ("status", "metadata"),
    [
        ("completed", {"tenant": "x" * 5_000_000}),
        ("completed", {"tenant": "\x01" * 90}),
        ("completed", {f"k{number}": "" for number in range(50_000)}),
        ("failed", {"error": "e" * 5_000_000}),
        ("ended", {"end_reason": "r" * 5_000_000}),
        ("cancelled", {"cancel_reason": "r" * 5_000_000}),
    ],
)
def test_an_outcome_fits_its_topic_whatever_its_row_holds(status: str, metadata: dict[str, str]) -> None:
    outcome = TELLING.row(row(4, status, metadata))
    assert len(encode_outcome(outcome)) < 100 + 70_000
    assert outcome.state_omitted or outcome.metadata == {}


def test_metadata_is_told_where_only_the_state_is_over_the_cap() -> None:
    outcome = TELLING.row(row(4, "completed", {"tenant": "acme"}, frozen_state=f'"{"x" * 100}"'))
    assert (outcome.metadata, outcome.state_omitted) == ({"tenant": "acme"}, True)


def test_the_cap_counts_bytes_not_characters() -> None:
    state = f'"{"ä" * 60}"'
    outcome = TELLING.row(row(4, "completed", frozen_state=state))
    assert (outcome.state, outcome.state_omitted) == (None, True)


def graph(name: str | None, version: str | None = None) -> CompiledGraph[State]:
    made = Graph(dict[str, Any], id=name, version=version)
    made.node(name="a")(lambda _state: None)
    return made.compile()


def registry(*graphs: CompiledGraph[State]) -> Registry:
    clock = ManualClock()
    return Registry(graphs, lambda each: Threads(each, MemoryStore(clock=clock.now), clock=clock))


def test_a_run_names_a_version_or_gets_the_one_given_last() -> None:
    first, second = graph("g", "1"), graph("g", "2")
    found = registry(first, second)
    latest, exact = found.for_run(GraphName(id="g")), found.for_run(GraphName(id="g", version="1"))
    assert latest is not None
    assert exact is not None
    assert (latest.graph, exact.graph) == (second, first)
    assert found.for_run(GraphName(id="g", version="3")) is None
    assert found.for_run(GraphName(id="h")) is None


def test_a_row_without_a_graph_is_the_only_graphs_or_nobodys() -> None:
    stray = checkpoint(graph=None)
    assert registry(graph("g")).for_row(stray) is not None
    assert registry(graph("g"), graph("h")).for_row(stray) is None
    assert registry(graph("g")).for_row(checkpoint(graph=GraphIdentity("g", "2"))) is None


@pytest.mark.parametrize("graphs", [(), (graph(None),), (graph("g"), graph("g"))])
def test_graphs_that_rows_could_not_name_are_refused_at_start(
    graphs: tuple[CompiledGraph[State], ...],
) -> None:
    with pytest.raises(SettingsInvalid):
        registry(*graphs)


def test_cancels_and_ends_overtake_with_or_without_the_header() -> None:
    world = World()
    for command in (world.cancel(), world.end()):
        message = world.send(command)
        assert overtakes(message) == str(command.command_id)
        assert overtakes(replace(message, headers=())) == str(command.command_id)
        assert (
            overtakes(replace(message, value=(message.value or b"").replace(b'"end"', b'"\\u0065nd"')))
            is not None
        )


def test_nothing_else_overtakes() -> None:
    world = World()
    message = world.send(world.cancel())
    assert overtakes(world.send(world.run())) is None
    assert overtakes(replace(message, value=None)) is None
    assert overtakes(replace(message, value=b"\xffcancel", headers=())) is None
    assert overtakes(replace(message, key=b"another")) is None
