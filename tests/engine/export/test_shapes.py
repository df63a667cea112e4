"""Definitions read from JSON: what is refused, where, in which words (A043 to A071)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import DefinitionInvalid, GraphDefinition, problems_of, read_definition
from outcrop.engine.definition_reading import MOST_LEVELS
from outcrop.stores import OutcropError
from support.drafts import add_subgraph, graph_of

if TYPE_CHECKING:
    from collections.abc import Mapping

READABLE = "this build reads 1.0.0, 1.1.0, 1.2.0, 1.3.0, 1.4.0, 1.5.0 and 1.6.0"
WAIT = {"kind": "event", "event_type": "paid", "delay_ms": None, "timeout_ms": None}
JOIN = {"policy": "all", "count": None, "condition": None, "partial": "keep_succeeded"}


def level(version: str, *nodes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A level of these nodes, called "n" each unless they say otherwise."""
    named = [{"name": "n", "metadata": None, **node} for node in nodes]
    return {"schema_version": version, "entry_point": "n", "nodes": named, "edges": [], **more}


PLAIN = level("1.0.0", {})


def below(inner: dict[str, Any], kind: str = "subgraph") -> dict[str, Any]:
    """A level under a node called "Sub"."""
    return level("1.6.0", {"name": "Sub", "kind": kind, "graph": inner})


def refusal(document: object) -> str:
    with pytest.raises(DefinitionInvalid) as refused:
        read_definition(json.dumps(document))
    assert isinstance(refused.value, OutcropError)
    assert refused.value.code == "OUTCROP_GRAPH_DEFINITION_INVALID"
    return str(refused.value)


SHAPES: list[tuple[dict[str, Any], str]] = [
    # A044
    (level("1.7.0", {}), f"unsupported schema_version '1.7.0': {READABLE}"),
    (level("1.0.1", {}), f"unsupported schema_version '1.0.1': {READABLE}"),
    (below(level("2.0.0")), f"unsupported schema_version '2.0.0' (in 'Sub'): {READABLE}"),
    # A045
    (
        level("1.0.0", {"kind": "subgraph", "graph": PLAIN}),
        "node 'n' has a kind, which schema_version 1.0.0 doesn't have",
    ),
    (level("1.1.0", {"kind": "subgraph"}), "node 'n' is a subgraph but has neither branches nor graph"),
    (level("1.1.0", {"branches": []}), "node 'n' is a plain node but has branches"),
    (level("1.1.0", {"graph": PLAIN}), "node 'n' is a plain node but has graph"),
    (
        level("1.1.0", {"kind": "parallel_group", "branches": [], "graph": PLAIN}),
        "node 'n' is a parallel_group but has both branches and graph",
    ),
    # A058
    (level("1.5.0", {"interrupt": {}}), "node 'n' has an interrupt, which schema_version 1.5.0 doesn't have"),
    (
        below(level("1.5.0", {"interrupt": {}})),
        "node 'Sub/n' has an interrupt, which schema_version 1.5.0 doesn't have",
    ),
    (
        level("1.6.0", {"kind": "wait", "wait": WAIT, "interrupt": {}}),
        "node 'n' is a wait and can't also have an interrupt",
    ),
    # A061
    (
        level("1.3.0", {"kind": "wait", "wait": WAIT}),
        "node 'n' is a wait, which schema_version 1.3.0 doesn't have",
    ),
    (level("1.4.0", {"kind": "wait"}), "node 'n' is a wait but has no wait"),
    (level("1.4.0", {"wait": WAIT}), "node 'n' has a wait but is not a wait node"),
    (
        level("1.4.0", {"kind": "wait", "wait": WAIT | {"kind": "human"}}),
        "node 'n' has a wait of kind 'human', which is neither event nor timer",
    ),
    (
        level("1.4.0", {"kind": "wait", "wait": WAIT, "graph": PLAIN}),
        "node 'n' is a wait but has graph",
    ),
    # A065
    (
        level("1.1.0", {"kind": "parallel_group", "branches": [], "join": JOIN}),
        "node 'n' has a join, which schema_version 1.1.0 doesn't have",
    ),
    (level("1.2.0", {"join": JOIN}), "node 'n' has a join but is neither a parallel_group nor a map"),
    (
        level("1.2.0", {"kind": "parallel_group", "branches": [], "join": JOIN | {"count": 1}}),
        "node 'n' has a join with a count, which only a quorum has",
    ),
    (
        level("1.2.0", {"kind": "parallel_group", "branches": [], "join": JOIN | {"condition": "x"}}),
        "node 'n' has a join with a condition, which only first_matching has",
    ),
    # A066
    (
        level("1.2.0", {"kind": "map", "graph": PLAIN}),
        "node 'n' is a map, which schema_version 1.2.0 doesn't have",
    ),
    (level("1.3.0", {"kind": "map", "branches": []}), "node 'n' is a map but has branches"),
    (
        below(level("1.3.0", {"kind": "map"}), kind="map"),
        "node 'Sub/*/n' is a map but has neither branches nor graph",
    ),
    # A071
    (
        level("1.4.0", {}, identity={"id": "orders", "version": None}),
        "the definition has an identity, which schema_version 1.4.0 doesn't have",
    ),
    (
        below(level("1.5.0", {}, identity={"id": " ", "version": None})),
        "the definition (in 'Sub') has an identity with an empty id",
    ),
]


@pytest.mark.parametrize(("document", "message"), SHAPES)
def test_shapes_that_are_refused(document: dict[str, Any], message: str) -> None:
    """A044, A045, A058, A061, A065, A066, A071."""
    assert refusal(document) == message


def edge(start: str, condition: str) -> dict[str, Any]:
    return {"from": start, "to": "n", "guarded": True, "condition": condition}


@pytest.mark.parametrize(
    ("node", "condition", "message"),
    [
        ({}, "on_reject", "node 'n' has an on_reject edge but is not an interrupt boundary"),
        ({}, "on_timeout", "node 'n' has an on_timeout edge but no timeout"),
        ({"interrupt": {}}, "on_timeout", "node 'n' has an on_timeout edge but no timeout"),
        ({"kind": "wait", "wait": WAIT}, "on_timeout", "node 'n' has an on_timeout edge but no timeout"),
        ({"interrupt": {"timeout_ms": 5}}, "on_timeout", None),
        ({"kind": "wait", "wait": WAIT | {"timeout_ms": 5}}, "on_timeout", None),
        ({"interrupt": {}}, "on_reject", None),
    ],
)
def test_routes_need_what_they_lead_out_of(node: dict[str, Any], condition: str, message: str | None) -> None:
    """A059."""
    document = level("1.6.0", node, edges=[edge("n", condition)])
    if message is None:
        read_definition(json.dumps(document))
    else:
        assert refusal(document) == message
        assert refusal(below(document)) == message.replace("'n'", "'Sub/n'")


def test_routes_that_the_shape_leaves_alone() -> None:
    """A059: one from no node is the validator's, and before 1.6.0 boundaries were not marked."""
    stray = read_definition(json.dumps(level("1.6.0", {}, edges=[edge("ghost", "on_reject")])))
    (problem,) = problems_of(stray)
    assert problem.node == "ghost"
    read_definition(json.dumps(level("1.0.0", {}, edges=[edge("n", "on_reject")])))


MALFORMED: list[tuple[object, str]] = [
    ([], "the definition isn't a JSON object"),
    ({}, "the definition's schema_version isn't text"),
    (level("1.0.0", {}) | {"nodes": None}, "the definition's nodes isn't a list"),
    (level("1.0.0", {}) | {"nodes": {}}, "the definition's nodes isn't a list"),
    (level("1.0.0", {}) | {"edges": [3]}, "the definition's edges[0] isn't a JSON object"),
    (
        level("1.0.0", {}) | {"edges": [{"from": "n", "to": "n"}]},
        "the definition's edges[0].guarded isn't true or false",
    ),
    (level("1.0.0", {"name": 3}), "the definition's nodes[0].name isn't text"),
    (level("1.0.0", {"metadata": {"a": 1}}), "the definition's nodes[0].metadata.a isn't text"),
    # A046
    (
        level("1.1.0", {"kind": "loop"}),
        "the definition's nodes[0].kind isn't one of parallel_group, subgraph, map, wait",
    ),
    # A058
    (
        level("1.6.0", {"interrupt": {"timeout_ms": -1}}),
        "the definition's nodes[0].interrupt.timeout_ms isn't a whole number from 0",
    ),
    (
        level("1.6.0", {"interrupt": {"timeout_ms": True}}),
        "the definition's nodes[0].interrupt.timeout_ms isn't a whole number from 0",
    ),
    (
        level("1.2.0", {"join": JOIN | {"policy": "most"}}),
        "the definition's nodes[0].join.policy isn't one of all, first_success, first_matching, quorum",
    ),
    (
        below(level("1.1.0", {"branches": [{}]})),
        "the definition's nodes[0].graph.nodes[0].branches[0].name isn't text",
    ),
]


@pytest.mark.parametrize(("document", "message"), MALFORMED)
def test_what_is_no_definition_is_refused_with_its_place(document: object, message: str) -> None:
    """A046, A058."""
    assert refusal(document) == message


def test_text_that_is_no_json() -> None:
    with pytest.raises(DefinitionInvalid, match=r"^the definition isn't JSON: .* at line 2$"):
        read_definition("{\n")


def test_endless_nesting_is_refused() -> None:
    document = level("1.0.0", {})
    for _ in range(MOST_LEVELS - 1):
        document = below(document)
    deepest = read_definition(json.dumps(document))
    assert read_definition(deepest.to_json()) == deepest
    assert refusal(below(document)) == f"the definition has more than {MOST_LEVELS} levels of graphs"


def test_keys_that_came_later_are_ignored() -> None:
    document = level("1.0.0", {"colour": "red"}, made_by="somebody")
    assert read_definition(json.dumps(document)) == read_definition(json.dumps(PLAIN))


def test_a_fault_in_a_child_that_was_edited_is_named_from_the_root() -> None:
    """A043."""
    graph = graph_of("a")
    add_subgraph(graph, "Work", graph_of("x", "y").compile())
    graph.edge("a", "Work")
    document = json.loads(graph.definition().to_json())
    document["nodes"][1]["graph"]["edges"][0]["to"] = "ghost"
    edited: GraphDefinition = read_definition(json.dumps(document))
    assert [(problem.node, problem.related) for problem in problems_of(edited)] == [
        ("Work/x", "Work/ghost"),
        ("Work/y", None),
    ]
