"""The small parts: slots, backpressure, starting points, metrics, logs, loading graphs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.engine import CheckpointPolicy, Graph
from outcrop.engine.cancellation import CancelToken
from outcrop.worker.backpressure import Backpressure, Flow
from outcrop.worker.errors import GraphsNotFound, OffsetLost
from outcrop.worker.loading import load_graphs
from outcrop.worker.logs import EventLog, client_logger, configure_logs
from outcrop.worker.metrics import Metrics
from outcrop.worker.offsets import MAX_UNFINISHED
from outcrop.worker.ports import Partition, Position
from outcrop.worker.slots import Slot, Slots
from outcrop.worker.starting import Place, is_new_group, starting_point

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

P0, P1 = Partition("t", 0), Partition("t", 1)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_are_given_in_the_order_of_asking() -> None:
    slots = Slots(1)
    first, second, third = Slot(slots), Slot(slots), Slot(slots)
    await first.take()
    waiting = [asyncio.create_task(slot.take()) for slot in (second, third)]
    await turn()
    first.free()
    await turn()
    assert [task.done() for task in waiting] == [True, False]
    second.free()
    await turn()
    assert waiting[1].done()
    third.free()
    third.free()
    assert slots.taken == 0


async def test_a_token_ends_the_wait_for_a_slot_without_one() -> None:
    slots, token = Slots(1), CancelToken()
    holder, waiter = Slot(slots), Slot(slots)
    await holder.take()
    waiting = asyncio.create_task(waiter.take(unless=(token,)))
    await turn()
    token.fire()
    await waiting
    waiter.free()
    assert slots.taken == 1
    await Slot(slots).take(unless=(token,))
    holder.free()
    assert slots.taken == 0


async def test_a_cancelled_wait_loses_no_slot() -> None:
    slots = Slots(1)
    holder = Slot(slots)
    await holder.take()
    waiting = asyncio.create_task(Slot(slots).take())
    await turn()
    holder.free()  # the place goes to the waiter in the same turn in which it is cancelled
    waiting.cancel()
    await asyncio.wait([waiting])
    assert slots.taken == 0
    await Slot(slots).take()
    assert slots.taken == 1


def test_all_partitions_pause_at_max_buffered_and_resume_below_half() -> None:
    pressure = Backpressure(10)
    owned = {P0: 5, P1: 5}
    assert pressure.decide(9, owned) == Flow()
    assert pressure.decide(10, owned) == Flow(pause=frozenset(owned))
    assert pressure.decide(5, owned) == Flow()
    assert pressure.decide(4, owned) == Flow(resume=frozenset(owned))


def test_a_partition_pauses_at_what_a_commit_can_tell() -> None:
    pressure = Backpressure(10_000)
    assert pressure.decide(600, {P0: MAX_UNFINISHED, P1: 1}) == Flow(pause=frozenset({P0}))
    assert pressure.decide(600, {P0: MAX_UNFINISHED // 2, P1: 1}) == Flow()
    assert pressure.decide(600, {P0: MAX_UNFINISHED // 2 - 1, P1: 1}) == Flow(resume=frozenset({P0}))


def test_a_partition_that_comes_back_is_paused_anew() -> None:
    pressure = Backpressure(10)
    pressure.decide(10, {P0: 10})
    pressure.decide(10, {})
    assert pressure.decide(10, {P0: 10}) == Flow(pause=frozenset({P0}))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 600), st.integers(0, 600)), max_size=50))
def test_backpressure_never_sleeps_for_ever(steps: list[tuple[int, int, int]]) -> None:
    pressure = Backpressure(10)
    for buffered, first, second in steps:
        flow = pressure.decide(buffered, {P0: first, P1: second})
        assert not flow.pause & flow.resume
        assert buffered < 10 or pressure.paused == {P0, P1}
    pressure.decide(0, {P0: 0, P1: 0})
    assert pressure.paused == set()


def test_a_committed_place_is_where_reading_goes_on() -> None:
    place = Position(7, "1.AQE")
    assert starting_point(P0, Place(place, 3), new_group=False) == place


def test_a_new_group_starts_at_the_beginning() -> None:
    assert starting_point(P0, Place(None, 3), new_group=True) == Position(3)
    assert is_new_group({P0: None, P1: None})
    assert not is_new_group({P0: None, P1: Position(0)})


def test_a_partition_that_never_lost_a_message_starts_at_the_beginning() -> None:
    assert starting_point(P0, Place(None, 0), new_group=False) == Position(0)


def test_a_lost_place_is_an_alarm() -> None:
    with pytest.raises(
        OffsetLost, match=r"t/0 is lost \(the group has committed nothing here, and the log starts at 3"
    ):
        starting_point(P0, Place(None, 3), new_group=False)


def test_metrics_as_prometheus_text() -> None:
    metrics = Metrics()
    metrics.count("outcrop_commits_total", result="done")
    metrics.count("outcrop_commits_total", 2, result="done")
    metrics.count("outcrop_commits_total", result='a"b\n')
    metrics.gauge("outcrop_partitions", 4)
    assert metrics.render().splitlines() == [
        "# HELP outcrop_commits_total Offset commits, by result.",
        "# TYPE outcrop_commits_total counter",
        'outcrop_commits_total{result="a\\"b\\n"} 1',
        'outcrop_commits_total{result="done"} 3',
        "# HELP outcrop_partitions Partitions that this worker owns.",
        "# TYPE outcrop_partitions gauge",
        "outcrop_partitions 4",
    ]
    assert metrics.value("outcrop_commits_total", result="done") == 3
    assert metrics.value("outcrop_commits_total", result="failed") == 0


def test_metrics_must_be_declared() -> None:
    with pytest.raises(KeyError, match="outcrop_typo"):
        Metrics().count("outcrop_typo")
    with pytest.raises(KeyError):
        Metrics().gauge("outcrop_commits_total", 1)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    logger = logging.getLogger("outcrop")
    before = (list(logger.handlers), logger.level, logger.propagate)
    stream = io.StringIO()
    yield stream
    logger.handlers[:], logger.level, logger.propagate = before


def test_json_lines(lines: io.StringIO) -> None:
    configure_logs("info", "json", lines)
    log = EventLog("test").bind(thread="t 1")
    log.info("run.started", command="c", run=None)
    log.debug("run.detail")
    (line,) = lines.getvalue().splitlines()
    told = json.loads(line)
    assert told.pop("at").endswith("+00:00")
    assert told == {"level": "info", "event": "run.started", "part": "test", "thread": "t 1", "command": "c"}


def test_text_lines_quote_what_would_forge_another_field(lines: io.StringIO) -> None:
    configure_logs("info", "text", lines)
    EventLog("test").warning("odd", thread='x" level=error\nat=now', empty="", fine="ok")
    (line,) = lines.getvalue().splitlines()
    assert line.endswith(r'event=odd part=test thread="x\" level=error\nat=now" empty="" fine=ok')


def test_a_field_never_takes_the_place_of_the_lines_own(lines: io.StringIO) -> None:
    configure_logs("info", "json", lines)
    EventLog("test").warning("odd", at="handover", level="none", part="x")
    told = json.loads(lines.getvalue())
    assert (told["level"], told["part"]) == ("warning", "test")
    assert told["at"].startswith("20")


def test_a_library_s_line_is_no_event_of_ours(lines: io.StringIO) -> None:
    configure_logs("info", "json", lines)
    client_logger().error("%s: it failed", "FAIL")
    told = json.loads(lines.getvalue())
    assert (told["event"], told["part"], told["text"]) == ("message", "librdkafka", "FAIL: it failed")


def compiled(name: str) -> object:
    graph: Graph[dict[str, object]] = Graph(dict, id=name)

    @graph.node
    def only(state: dict[str, object]) -> None:
        del state

    return graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "shop_of_test.py").write_text("def broken(): ...\n")
    (tmp_path / "bad_of_test.py").write_text("raise RuntimeError('secret')\n")
    (tmp_path / "missing_of_test.py").write_text("import no_such_module_here\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "shop_of_test"
    for name in ("shop_of_test", "bad_of_test", "missing_of_test"):
        sys.modules.pop(name, None)


def test_graphs_are_loaded_by_name(module: str) -> None:
    with pytest.raises(GraphsNotFound):
        load_graphs(f"{module}:app")
    loaded = sys.modules[module]
    app, other = compiled("a"), compiled("b")
    loaded.__dict__.update(app=app, both=[app, other], none=[], odd=(app, 3))
    assert load_graphs(f"{module}:app") == (app,)
    assert load_graphs(f"{module}:both") == (app, other)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("shop_of_test", "isn't MODULE:NAME"),
        (":x", "isn't MODULE:NAME"),
        ("no_such_module_at_all:app", "there is no module no_such_module_at_all"),
        ("missing_of_test:app", "there is no module no_such_module_here"),
        ("bad_of_test:app", "failed with RuntimeError"),
        ("shop_of_test:app", "has no attribute 'app'"),
        ("shop_of_test:broken", "holds a function, not a compiled graph"),
    ],
)
def test_what_leads_to_no_graph_is_told(module: str, target: str, told: str) -> None:
    with pytest.raises(GraphsNotFound) as caught:
        load_graphs(target)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_empty_list_holds_no_graph(module: str) -> None:
    with pytest.raises(GraphsNotFound):
        load_graphs(f"{module}:app")
    sys.modules[module].__dict__.update(none=[])
    with pytest.raises(GraphsNotFound, match="holds no graph"):
        load_graphs(f"{module}:none")
