"""What compiling says about a graph's structure (engine-cases A001-A011, A022, A048-A050, A060)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outcrop.engine import CompilationFailed, Graph, GraphInvalid, NodeContext, Problem, ProblemKind, Retry

HOUR = timedelta(hours=1)


def graph_of(*names: str) -> Graph[dict[str, Any]]:
    graph: Graph[dict[str, Any]] = Graph(dict)
    for name in names:
        add(graph, name)
    return graph


def add(graph: Graph[dict[str, Any]], name: str, **options: Any) -> None:
    def handler(_state: dict[str, Any]) -> None:
        return None

    graph.node(name=name, **options)(handler)


def always(_state: dict[str, Any]) -> bool:
    return True


def problems_of(graph: Graph[dict[str, Any]]) -> tuple[Problem, ...]:
    with pytest.raises(GraphInvalid) as caught:
        graph.compile()
    return caught.value.problems


def names_of(problems: tuple[Problem, ...]) -> list[tuple[ProblemKind, str, str | None]]:
    return [(problem.kind, problem.node, problem.related) for problem in problems]


def test_first_node_added_is_the_entry() -> None:
    """A001."""
    graph = graph_of("a", "b")
    graph.edge("a", "b")
    assert graph.compile().entry == "a"


def test_entry_can_be_named() -> None:
    graph = graph_of("b", "a")
    graph.edge("a", "b")
    graph.entry("a")
    assert graph.compile().entry == "a"


def test_unknown_entry_is_the_only_problem_told() -> None:
    """A002."""
    graph = graph_of("a", "orphan")
    graph.edge("a", "nowhere")
    graph.entry("missing")
    (problem,) = problems_of(graph)
    assert (problem.kind, problem.code) == (ProblemKind.MISSING_ENTRY_POINT, "STRATA_ERR_MISSING_ENTRY")
    assert problem.message == "Entry point node 'missing' does not exist in the graph definition."


def test_empty_graph_has_no_entry() -> None:
    """engine.md 1.4: an empty graph's entry is ''."""
    (problem,) = problems_of(graph_of())
    assert (problem.kind, problem.node) == (ProblemKind.MISSING_ENTRY_POINT, "")


def test_node_out_of_reach_is_an_orphan() -> None:
    """A003."""
    graph = graph_of("a", "b", "c")
    graph.edge("a", "b")
    (problem,) = problems_of(graph)
    assert (problem.kind, problem.node, problem.code) == (ProblemKind.ORPHAN_NODE, "c", "STRATA_ERR_ORPHAN")
    assert problem.message == "Node 'c' is isolated and unreachable from the entry point 'a'."


def test_unguarded_cycle_is_refused() -> None:
    """A004."""
    graph = graph_of("a", "b")
    graph.edge("a", "b")
    graph.edge("b", "a")
    (problem,) = problems_of(graph)
    assert problem == Problem(
        ProblemKind.UNGUARDED_CYCLE,
        "b",
        "Unguarded cycle detected between 'b' and 'a'. Add a guarded/conditional edge to protect this loop.",
        "a",
    )
    assert problem.code == "STRATA_ERR_UNGUARDED_CYCLE"


def test_unguarded_self_loop_is_a_cycle() -> None:
    graph = graph_of("a")
    graph.edge("a", "a")
    assert names_of(problems_of(graph)) == [(ProblemKind.UNGUARDED_CYCLE, "a", "a")]


@pytest.mark.parametrize("guarded", ["first", "last"])
def test_one_guarded_edge_makes_a_loop_fine(guarded: str) -> None:
    """A005, A007: wherever in the loop the guard sits."""
    graph = graph_of("a", "b")
    graph.edge("a", "b", always if guarded == "first" else None)
    graph.edge("b", "a", always if guarded == "last" else None)
    graph.compile()


def test_paths_that_rejoin_in_a_guarded_loop_are_no_cycle() -> None:
    """A006."""
    graph = graph_of("a", "b", "c", "d")
    graph.edge("a", "b", when=always)
    graph.edge("a", "c")
    graph.edge("b", "d")
    graph.edge("c", "d")
    graph.edge("d", "a", when=always)
    graph.compile()


def test_unguarded_cycle_inside_a_guarded_loop_is_refused() -> None:
    """A008."""
    graph = graph_of("a", "b", "c")
    graph.edge("a", "b")
    graph.edge("b", "c")
    graph.edge("c", "b")
    graph.edge("c", "a", when=always)
    assert names_of(problems_of(graph)) == [(ProblemKind.UNGUARDED_CYCLE, "c", "b")]


def test_edge_to_no_node_dangles() -> None:
    """A009."""
    graph = graph_of("a")
    graph.edge("a", "ghost")
    (problem,) = problems_of(graph)
    assert (problem.node, problem.related, problem.code) == ("a", "ghost", "STRATA_ERR_DANGLING_EDGE")
    assert problem.message == "Edge 'a' -> 'ghost' points at 'ghost', which is not a node in the graph."


def test_edge_from_no_node_dangles() -> None:
    """A010."""
    graph = graph_of("a")
    graph.edge("ghost", "a")
    (problem,) = problems_of(graph)
    assert (problem.node, problem.related) == ("ghost", "a")
    assert problem.message == "Edge 'ghost' -> 'a' starts at 'ghost', which is not a node in the graph."


def test_edge_between_no_nodes_dangles_at_both_ends() -> None:
    graph = graph_of("a")
    graph.edge("ghost", "other")
    (problem,) = problems_of(graph)
    assert problem.message == (
        "Edge 'ghost' -> 'other' connects 'ghost' and 'other', neither of which is a node in the graph."
    )


def test_missing_node_bridges_nothing() -> None:
    """A011: two dangling edges, and what lies beyond is an orphan."""
    graph = graph_of("a", "far")
    graph.edge("a", "ghost")
    graph.edge("ghost", "far")
    assert names_of(problems_of(graph)) == [
        (ProblemKind.DANGLING_EDGE, "a", "ghost"),
        (ProblemKind.DANGLING_EDGE, "ghost", "far"),
        (ProblemKind.ORPHAN_NODE, "far", None),
    ]


def test_problems_come_in_order() -> None:
    """A016 for one level: edges, then orphans, then cycles; the message has them all."""
    graph = graph_of("a", "b", "c")
    graph.edge("a", "b")
    graph.edge("b", "a")
    graph.edge("b", "ghost")
    problems = problems_of(graph)
    assert [problem.kind for problem in problems] == [
        ProblemKind.DANGLING_EDGE,
        ProblemKind.ORPHAN_NODE,
        ProblemKind.UNGUARDED_CYCLE,
    ]
    with pytest.raises(GraphInvalid) as caught:
        graph.compile()
    assert str(caught.value).splitlines() == [problem.message for problem in problems]


def test_long_unguarded_loop_is_found() -> None:
    """A graph's size has no bearing on the search (it doesn't recurse)."""
    names = [f"n{number}" for number in range(3000)]
    graph = graph_of(*names)
    for start, end in zip(names, [*names[1:], names[0]], strict=True):
        graph.edge(start, end)
    assert names_of(problems_of(graph)) == [(ProblemKind.UNGUARDED_CYCLE, "n2999", "n0")]


def test_fallback_keeps_a_node_in_reach() -> None:
    """A022."""
    graph = graph_of()
    add(graph, "a", fallback="b")
    add(graph, "b")
    compiled = graph.compile()
    assert compiled.nodes["a"].fallback == "b"
    assert not compiled.edges

    without = graph_of("a", "b")
    assert names_of(problems_of(without)) == [(ProblemKind.ORPHAN_NODE, "b", None)]


def test_reject_route_keeps_a_node_in_reach_and_is_no_edge() -> None:
    """A048."""
    graph = graph_of("a", "b", "rejected")
    graph.edge("a", "b")
    graph.interrupt("a", on_reject="rejected")
    assert [edge.to for edge in graph.compile().edges["a"]] == ["b"]


def test_timeout_routes_keep_nodes_in_reach() -> None:
    """A060 without its export, for an event wait and for a boundary."""
    graph = graph_of("a", "late", "escalate")
    graph.interrupt("a", timeout=HOUR, on_timeout="escalate")
    graph.edge("a", "paid")
    graph.wait_for_event("paid", event="payment.settled", timeout=HOUR, on_timeout="late")
    graph.edge("paid", "escalate")
    graph.compile()


@pytest.mark.parametrize("route", ["on_reject", "on_timeout"])
def test_boundary_route_to_no_node_dangles(route: str) -> None:
    """A049, and the end of A062."""
    graph = graph_of("a")
    graph.interrupt("a", timeout=HOUR, **{route: "ghost"})
    assert names_of(problems_of(graph)) == [(ProblemKind.DANGLING_EDGE, "a", "ghost")]


def test_event_timeout_route_to_no_node_dangles() -> None:
    """A062."""
    graph = graph_of()
    graph.wait_for_event("paid", event="payment.settled", timeout=HOUR, on_timeout="ghost")
    add(graph, "work")
    graph.edge("paid", "work")
    assert names_of(problems_of(graph)) == [(ProblemKind.DANGLING_EDGE, "paid", "ghost")]


def test_routes_follow_edges_by_kind() -> None:
    """A047 without its export: ordinary edges, fallbacks, rejections, timeouts."""
    graph = graph_of()
    graph.interrupt("gate", on_reject="no", timeout=HOUR, on_timeout="late")
    graph.edge("gate", "work")
    add(graph, "work", fallback="rescue")
    add(graph, "rescue")
    graph.edge("gate", "off")
    assert [problem.related for problem in problems_of(graph)] == ["off", "no", "late"]


def test_marking_a_boundary_again_replaces_all_of_it() -> None:
    """A050, A054: without a route the route is gone, and what hung on it is an orphan."""
    graph = graph_of("a", "rejected")
    graph.interrupt("a", on_reject="rejected", timeout=HOUR)
    graph.interrupt("a")
    assert names_of(problems_of(graph)) == [(ProblemKind.ORPHAN_NODE, "rejected", None)]
    graph.edge("a", "rejected")
    assert graph.compile().boundaries["a"].timeout is None


def test_boundary_timeout_needs_no_route() -> None:
    """A057."""
    graph = graph_of("a")
    graph.interrupt("a", timeout=HOUR)
    assert graph.compile().boundaries["a"].timeout == HOUR


def test_interrupt_by_a_new_name_is_a_node_that_only_waits() -> None:
    graph = graph_of("a")
    graph.edge("a", "approve")
    graph.interrupt("approve")
    compiled = graph.compile()
    state = {"amount": 1}
    assert (
        compiled.nodes["approve"].handler(
            state, NodeContext(thread_id="t", node="approve", node_path="approve")
        )
        is None
    )
    assert state == {"amount": 1}
    assert "approve" in compiled.boundaries


def test_node_added_by_a_boundary_s_name_keeps_its_place() -> None:
    graph = graph_of()
    graph.interrupt("approve")
    add(graph, "approve", retry=Retry(max_retries=2))
    compiled = graph.compile()
    assert compiled.entry == "approve"
    assert compiled.nodes["approve"].retry.max_retries == 2
    assert "approve" in compiled.boundaries


def test_mistyped_interrupt_is_an_orphan() -> None:
    """A053 in Python: a boundary's name is always a node, so a typo shows."""
    graph = graph_of("approve")
    graph.interrupt("aprove")
    assert names_of(problems_of(graph)) == [(ProblemKind.ORPHAN_NODE, "aprove", None)]


def test_compiled_graph_outlives_changes_to_its_builder() -> None:
    graph = graph_of("a")
    compiled = graph.compile()
    add(graph, "b")
    graph.edge("a", "b")
    graph.interrupt("a")
    assert (list(compiled.nodes), dict(compiled.edges), dict(compiled.boundaries)) == (["a"], {}, {})


def test_name_taken_is_refused_at_once() -> None:
    """A018, A019, A026, A029, A041 don't apply: re-adding a name is refused, not a replacement."""
    graph = graph_of("a")
    with pytest.raises(CompilationFailed, match=r"^'a' was already added to the graph"):
        add(graph, "a")
    with pytest.raises(CompilationFailed, match=r"^'a' was already added to the graph"):
        graph.timer("a", delay=HOUR)
    with pytest.raises(CompilationFailed, match=r"^'a' was already added to the graph"):
        graph.wait_for_event("a", event="payment.settled")
