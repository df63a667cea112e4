"""What a graph exports (A029 to A072), apart from what the peer's own exports prove."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    CompilationFailed,
    Graph,
    GraphInvalid,
    Partial,
    ProblemKind,
    all_of,
    first_matching,
    first_success,
    problems_of,
    quorum,
    read_definition,
)
from outcrop.engine.definition import as_json
from support.drafts import State, add, add_branch, add_group, add_map, add_subgraph, always, graph_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine import GraphDefinition, Join

HOUR = timedelta(hours=1)
KINDS = ("plain", "inline", "group", "subgraph", "map", "event", "timer")


def told(definition: GraphDefinition) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(definition.to_json())
    return document


def node(graph: Graph[State], name: str) -> dict[str, Any]:
    return next(one for one in told(graph.definition())["nodes"] if one["name"] == name)


def routes(graph: Graph[State]) -> list[tuple[str, str, str | None]]:
    edges = graph.definition().edges
    assert all(edge.guarded for edge in edges if edge.condition is not None)
    return [(edge.from_, edge.to, edge.condition) for edge in edges]


def of_kind(kind: str, metadata: dict[str, str]) -> Graph[State]:
    """A graph of one node, "n", of that kind, and one after it."""
    graph = graph_of()
    match kind:
        case "plain" | "inline":
            add(graph, "n", metadata=metadata, inline=kind == "inline")
        case "group":
            add_group(graph, "n", "b", metadata=metadata)
        case "subgraph":
            add_subgraph(graph, "n", graph_of("a").compile(), metadata=metadata)
        case "map":
            add_map(graph, "n", graph_of("a").compile(), metadata=metadata)
        case "event":
            graph.wait_for_event("n", event="paid", metadata=metadata)
        case _:
            graph.timer("n", delay=HOUR, metadata=metadata)
    add(graph, "after")
    graph.edge("n", "after")
    return graph


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_is_exported_on_every_kind_of_node(kind: str) -> None:
    """A029: keys sorted, whatever the order given; setting it again n/a, it is given with the node."""
    graph = of_kind(kind, {"team": "b", "cost": "a"})
    assert list(node(graph, "n")["metadata"].items()) == [("cost", "a"), ("team", "b")]
    assert node(graph, "after")["metadata"] is None
    assert graph.compile().definition() == graph.definition()


def test_branches_have_metadata_of_their_own() -> None:
    """A030, A039: in the order declared, null when there is none; setting it again n/a."""
    graph = graph_of()
    group = add_group(graph, "g", "z")
    add_branch(group, "a", metadata={"y": "1", "x": "2"})
    assert node(graph, "g")["branches"] == [
        {"name": "z", "metadata": None},
        {"name": "a", "metadata": {"x": "2", "y": "1"}},
    ]
    assert node(graph, "g")["kind"] == "parallel_group"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "metadata on {} has an empty key"),
        ("strata.cost", "metadata key 'strata.cost' on {} is reserved"),
    ],
)
def test_metadata_keys_that_are_refused(key: str, message: str) -> None:
    """A032, on a node and on a branch; nodes are looked at first. A031 n/a: it is given with them."""
    graph = graph_of()
    group = add_group(graph, "g")
    add_branch(group, "b", metadata={key: "x"})
    with pytest.raises(CompilationFailed) as refused:
        graph.compile()
    assert str(refused.value) == message.format("branch 'b' of parallel group 'g'")
    add(graph, "n", metadata={key: "x"})
    with pytest.raises(CompilationFailed) as refused:
        graph.compile()
    assert str(refused.value) == message.format("node 'n'")


def test_routes_follow_the_edges_kind_by_kind_in_node_order() -> None:
    """A033, A047, A060: whatever the order they were said in; each guarded."""
    graph = graph_of()
    add(graph, "late")
    add(graph, "first", fallback="late")
    add(graph, "second", fallback="late")
    graph.wait_for_event("paid", event="paid", timeout=HOUR, on_timeout="late")
    graph.interrupt("second", on_reject="late", timeout=HOUR, on_timeout="late")
    graph.interrupt("first", on_reject="late")
    graph.entry("first")
    graph.edge("paid", "late")
    graph.edge("first", "second", when=always)
    graph.edge("second", "paid")
    assert routes(graph) == [
        ("paid", "late", None),
        ("first", "second", None),
        ("second", "paid", None),
        ("first", "late", "on_failure"),
        ("second", "late", "on_failure"),
        ("first", "late", "on_reject"),
        ("second", "late", "on_reject"),
        ("second", "late", "on_timeout"),
        ("paid", "late", "on_timeout"),
    ]
    assert [edge.guarded for edge in graph.definition().edges[:3]] == [False, True, False]


def test_a_compiled_graph_exports_what_its_builder_does_and_its_identity() -> None:
    """A034, A048, A071: routes are edges in the export only."""
    graph = graph_of("a", "b", id="orders", version="3")
    add(graph, "c", fallback="b")
    graph.edge("b", "c", when=always)
    graph.interrupt("a", on_reject="b")
    compiled = graph.compile()
    document = told(compiled.definition())
    assert document.pop("identity") == {"id": "orders", "version": "3"}
    assert document == told(graph.definition())
    assert graph.definition().identity is None
    assert {name: [edge.to for edge in edges] for name, edges in compiled.edges.items()} == {
        "a": ["b"],
        "b": ["c"],
    }


def test_identity_alone_raises_the_version() -> None:
    """A071: at every level."""
    child = graph_of("x", id="steps")
    graph = graph_of("a", id="orders", version="1")
    add_subgraph(graph, "Work", child.compile())
    graph.edge("a", "Work")
    document = told(graph.compile().definition())
    assert (document["schema_version"], document["nodes"][1]["graph"]["schema_version"]) == ("1.5.0", "1.5.0")
    assert document["nodes"][1]["graph"]["identity"] == {"id": "steps", "version": None}
    assert told(graph.definition())["schema_version"] == "1.1.0"


def dangling() -> Graph[State]:
    graph = graph_of("a")
    graph.edge("a", "ghost")
    add(graph, "b", fallback=None)
    return graph


def cyclic() -> Graph[State]:
    graph = graph_of("a", "b")
    graph.edge("b", "a")
    return graph


def entryless() -> Graph[State]:
    graph = graph_of("a")
    graph.entry("ghost")
    return graph


def over_quorum() -> Graph[State]:
    graph = graph_of()
    add_group(graph, "g", "a", "b", join=quorum(3))
    return graph


@pytest.mark.parametrize("build", [dangling, cyclic, entryless, over_quorum])
def test_a_graph_that_does_not_compile_is_exported_and_judged_alike(
    build: Callable[[], Graph[State]],
) -> None:
    """A035, A036."""
    graph = build()
    with pytest.raises(GraphInvalid) as refused:
        graph.compile()
    assert problems_of(read_definition(graph.definition().to_json())) == refused.value.problems


def test_a_fallback_to_no_node_is_a_dangling_edge_of_the_export() -> None:
    """A021."""
    graph = graph_of()
    add(graph, "a", fallback="ghost")
    (problem,) = problems_of(graph.definition())
    assert (problem.kind, problem.related) == (ProblemKind.DANGLING_EDGE, "ghost")


def test_a_plain_graph_has_no_key_that_came_later() -> None:
    """A038."""
    document = told(graph_of("a", "b").definition())
    assert document == {
        "schema_version": "1.0.0",
        "entry_point": "a",
        "nodes": [{"name": "a", "metadata": None}, {"name": "b", "metadata": None}],
        "edges": [{"from": "a", "to": "b", "guarded": False, "condition": None}],
    }


def test_a_subgraph_holds_its_child_whole_and_each_level_its_own_version() -> None:
    """A037, A040, A052."""
    child = graph_of("gate", "deep")
    child.interrupt("gate")
    add_subgraph(child, "Inner", graph_of("x", "y").compile())
    child.edge("deep", "Inner")
    graph = graph_of("a")
    add_subgraph(graph, "Work", child.compile())
    graph.edge("a", "Work")
    definition = graph.definition()
    versions = list[str]()
    level: GraphDefinition | None = definition
    while level is not None:
        versions.append(level.schema_version)
        level = next((one.graph for one in level.nodes if one.graph is not None), None)
    assert versions == ["1.1.0", "1.6.0", "1.0.0"]
    assert node(graph, "Work")["graph"] == as_json(child.compile().definition())
    assert read_definition(definition.to_json()) == definition


@pytest.mark.parametrize("kind", ["plain", "group", "subgraph", "map"])
def test_every_kind_of_node_can_be_a_boundary(kind: str) -> None:
    """A051, A054: in whole milliseconds, null again without a timeout."""
    graph = of_kind(kind, {})
    graph.interrupt("n", timeout=timedelta(seconds=1.5))
    assert node(graph, "n")["interrupt"] == {"timeout_ms": 1500}
    assert graph.definition().schema_version == "1.6.0"
    graph.interrupt("n")
    assert node(graph, "n")["interrupt"] == {"timeout_ms": None}


def test_a_wait_that_is_marked_as_a_boundary_exports_no_interrupt() -> None:
    """A055: compiling refuses the pair."""
    graph = of_kind("event", {})
    graph.interrupt("n")
    assert "interrupt" not in node(graph, "n")
    assert graph.definition().schema_version == "1.4.0"
    with pytest.raises(CompilationFailed, match="is a wait node and can't also be"):
        graph.compile()


def test_waits_tell_what_they_wait_for() -> None:
    """A060, A061: every key, null where it says nothing."""
    graph = graph_of("a")
    graph.wait_for_event("paid", event="payment.settled", timeout=HOUR)
    graph.timer("rest", delay=timedelta(milliseconds=1500))
    graph.timer("until", until=lambda _state: datetime.now(UTC))
    none = {"event_type": None, "delay_ms": None, "timeout_ms": None}
    assert node(graph, "paid")["wait"] == {
        **none,
        "kind": "event",
        "event_type": "payment.settled",
        "timeout_ms": 3_600_000,
    }
    assert node(graph, "rest")["wait"] == {**none, "kind": "timer", "delay_ms": 1500}
    assert node(graph, "until")["wait"] == {**none, "kind": "timer"}
    assert graph.definition().schema_version == "1.4.0"


JOINS: list[tuple[Join, dict[str, Any]]] = [
    (first_success(), {"policy": "first_success", "count": None}),
    (first_matching(always), {"policy": "first_matching", "count": None}),
    (quorum(1), {"policy": "quorum", "count": 1}),
]


@pytest.mark.parametrize("kind", ["group", "map"])
@pytest.mark.parametrize(("join", "document"), JOINS)
def test_joins_are_exported_when_they_say_something(kind: str, join: Join, document: dict[str, Any]) -> None:
    """A063."""
    graph = graph_of()
    if kind == "group":
        add_group(graph, "n", "b", join=join)
    else:
        add_map(graph, "n", graph_of("a").compile(), join=join)
    assert node(graph, "n")["join"] == {**document, "condition": None, "partial": "fail_group"}
    assert graph.definition().schema_version == {"group": "1.2.0", "map": "1.3.0"}[kind]
    assert read_definition(graph.definition().to_json()) == graph.definition()


def test_the_default_join_is_not_exported_unless_it_keeps_something() -> None:
    """A063."""
    graph = graph_of()
    add_group(graph, "n", "b", join=all_of(), max_concurrency=1, branch_timeout=5, keep_finished=True)
    assert "join" not in node(graph, "n")
    assert graph.definition().schema_version == "1.1.0"
    kept = graph_of()
    add_group(kept, "n", "b", partial=Partial.KEEP_SUCCEEDED)
    assert node(kept, "n")["join"]["partial"] == "keep_succeeded"
    assert kept.definition().schema_version == "1.2.0"


def test_how_a_node_runs_is_not_exported() -> None:
    """A072, A041's rest n/a: a name can't be added again."""
    assert of_kind("inline", {}).definition() == of_kind("plain", {}).definition()


def test_a_boundary_may_be_named_before_its_node() -> None:
    """A053 n/a: the name alone is a node here, which exports its interrupt."""
    graph = graph_of("a")
    graph.interrupt("gate")
    graph.edge("a", "gate")
    assert node(graph, "gate")["interrupt"] == {"timeout_ms": None}
