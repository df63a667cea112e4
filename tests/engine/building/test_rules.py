"""The rules of compiling, word for word (engine.md 1.3; engine-cases A020-A028, A062)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import Backoff, CompilationFailed, Graph, GraphInvalid, Retry

if TYPE_CHECKING:
    from collections.abc import Callable

ZERO = timedelta(0)
HOUR = timedelta(hours=1)


def new_graph(**options: Any) -> Graph[dict[str, Any]]:
    return Graph(dict, **options)


def with_node(**options: Any) -> Graph[dict[str, Any]]:
    graph = new_graph()

    def work(_state: dict[str, Any]) -> None:
        return None

    graph.node(**options)(work)
    return graph


def refusal(graph: Graph[dict[str, Any]]) -> str:
    with pytest.raises(CompilationFailed) as caught:
        graph.compile()
    return str(caught.value)


def test_fallback_to_no_node() -> None:
    """A021."""
    assert refusal(with_node(fallback="ghost")) == (
        "recovery policy for 'work' falls back to 'ghost', which does not exist"
    )


def test_backoff_with_max_below_initial() -> None:
    """A024."""
    policy = Retry(max_retries=1, backoff=Backoff(initial=2.0, max=0.5))
    assert refusal(with_node(retry=policy)) == (
        "recovery policy for 'work' has a backoff whose max (500 ms) is below its initial delay (2000 ms)"
    )


def test_backoff_of_zero_is_fine() -> None:
    """engine.md 3.2: initial 0 stays 0."""
    with_node(retry=Retry(max_retries=1, backoff=Backoff(initial=0, max=0))).compile()


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_backoff_of_no_duration(seconds: float) -> None:
    assert refusal(with_node(retry=Retry(backoff=Backoff(initial=seconds, max=seconds)))).startswith(
        "recovery policy for 'work' has a backoff whose initial delay is"
    )


def test_negative_retries() -> None:
    assert refusal(with_node(retry=Retry(max_retries=-1))) == (
        "recovery policy for 'work' has a max_retries of -1; it must be at least 0"
    )


@pytest.mark.parametrize("timeout", [0, 0.0, ZERO, -1.0, timedelta(seconds=-1), math.nan])
def test_timeout_of_zero(timeout: float | timedelta) -> None:
    """A025."""
    assert refusal(with_node(timeout=timeout)) == "timeout for 'work' must be greater than zero"


def test_endless_timeout() -> None:
    assert refusal(with_node(timeout=math.inf)) == "timeout for 'work' must be finite: leave it out for none"


def test_timeout_on_an_inline_node() -> None:
    """A026."""
    assert refusal(with_node(timeout=1.0, inline=True)) == (
        "node 'work' runs inline and can't be timed out: "
        "add it without inline=True to have its timeout honoured"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "1"}, "graph_version needs a graph_id"),
        ({"id": " "}, "graph_id must not be blank"),
        ({"id": "", "version": "1"}, "graph_id must not be blank"),
        ({"id": "orders", "version": "\t"}, "graph_version must not be blank"),
    ],
)
def test_identity(options: dict[str, str], message: str) -> None:
    """A028."""
    assert refusal(new_graph(**options)) == message


def event(graph: Graph[dict[str, Any]], **options: Any) -> None:
    graph.wait_for_event("paid", event="payment.settled", **options)


def wait_then_boundary(graph: Graph[dict[str, Any]]) -> None:
    event(graph)
    graph.interrupt("paid")


def boundary_then_wait(graph: Graph[dict[str, Any]]) -> None:
    graph.interrupt("paid")
    event(graph)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda graph: graph.timer("rest", delay=ZERO),
            "timer 'rest' has a delay of zero; it must be greater than zero",
        ),
        (
            lambda graph: graph.timer("rest", delay=-HOUR),
            "timer 'rest' has a delay of less than zero; it must be greater than zero",
        ),
        (
            lambda graph: event(graph, timeout=ZERO),
            "wait 'paid' has a timeout of zero; it must be greater than zero",
        ),
        (
            lambda graph: event(graph, on_timeout="paid"),
            "wait 'paid' has a timeout route but no timeout",
        ),
        (
            lambda graph: graph.wait_for_event("paid", event=" "),
            "wait 'paid' needs an event type",
        ),
        (wait_then_boundary, "'paid' is a wait node and can't also be an interrupt boundary"),
        (boundary_then_wait, "'paid' is a wait node and can't also be an interrupt boundary"),
        (
            lambda graph: graph.interrupt("approve", timeout=ZERO),
            "interrupt boundary 'approve' has a timeout of zero; it must be greater than zero",
        ),
        (
            lambda graph: graph.interrupt("approve", on_timeout="approve"),
            "interrupt boundary 'approve' has a timeout route but no timeout",
        ),
    ],
)
def test_waits_and_boundaries(build: Callable[[Graph[dict[str, Any]]], None], message: str) -> None:
    """A062 for one level."""
    graph = new_graph()
    build(graph)
    assert refusal(graph) == message


def test_boundaries_are_judged_by_name_and_after_waits() -> None:
    """engine.md 1.3 step 5: boundaries in byte order, whatever the order of the nodes."""
    graph = new_graph()
    for name in ("é", "b", "Z"):
        graph.interrupt(name, timeout=ZERO)
    assert refusal(graph).startswith("interrupt boundary 'Z'")
    graph.timer("rest", delay=ZERO)
    assert refusal(graph).startswith("timer 'rest'")


def test_rules_go_before_structure() -> None:
    """engine.md 1.3: one rule's message, in order, before any structural fault."""
    graph = with_node(timeout=0, fallback="ghost")
    graph.edge("work", "nowhere")
    assert "falls back to 'ghost'" in refusal(graph)
    graph.interrupt("work", timeout=ZERO)
    assert refusal(graph).startswith("interrupt boundary 'work'")


def test_errors_carry_codes() -> None:
    assert CompilationFailed.code == "OUTCROP_GRAPH_COMPILATION_FAILED"
    assert GraphInvalid.code == "OUTCROP_GRAPH_INVALID"


def test_plain_numbers_are_seconds() -> None:
    graph = new_graph()
    graph.timer("rest", delay=90)
    graph.edge("rest", "paid")
    event(graph, timeout=0.5)
    graph.edge("paid", "approve")
    graph.interrupt("approve", timeout=30)
    compiled = graph.compile()
    assert getattr(compiled.waits["rest"], "delay", None) == timedelta(seconds=90)
    assert getattr(compiled.waits["paid"], "timeout", None) == timedelta(milliseconds=500)
    assert compiled.boundaries["approve"].timeout == timedelta(seconds=30)


def test_timer_takes_a_delay_or_a_time() -> None:
    graph = new_graph()
    untyped: Any = graph.timer
    for options in ({}, {"delay": HOUR, "until": lambda _state: datetime.now(UTC)}):
        with pytest.raises(CompilationFailed, match="exactly one"):
            untyped("rest", **options)


@pytest.mark.parametrize("kinds", [ValueError, (3,), None, (KeyError, "ValueError")])
def test_give_up_on_what_is_no_exception_type(kinds: Any) -> None:
    """Found when a node failed otherwise, in the middle of a thread."""
    assert refusal(with_node(retry=Retry(give_up_on=kinds))) == (
        "recovery policy for 'work' has a give_up_on that isn't a tuple of exception types"
    )


@pytest.mark.parametrize("kind", ["timer", "event"])
def test_wait_with_no_way_on(kind: str) -> None:
    """Nothing could answer it; a timeout's route is no answer to an event."""
    graph = with_node()
    if kind == "timer":
        graph.timer("rest", delay=HOUR)
    else:
        graph.wait_for_event("rest", event="paid", timeout=HOUR, on_timeout="work")
    graph.edge("work", "rest")
    assert refusal(graph) == "'rest' is a wait node with no way on: add an edge from it"


def test_boundary_with_no_way_on_is_fine() -> None:
    """F020."""
    graph = with_node()
    graph.interrupt("work")
    graph.compile()


@pytest.mark.parametrize("name", ["", "w/x", "/"])
def test_what_is_no_name_of_a_node(name: str) -> None:
    """`w/x` would be taken for the branch `x` of a group `w`."""
    graph = new_graph()
    with pytest.raises(CompilationFailed, match=r"no name of a node|needs a name"):
        graph.node(name=name)(lambda state, _ctx: state)
    with pytest.raises(CompilationFailed, match="no name of a node"):
        graph.timer(name, delay=HOUR)
