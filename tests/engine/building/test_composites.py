"""Groups, maps and subgraphs: what compiling refuses, and how its faults are named at every level."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    CompilationFailed,
    GraphInvalid,
    Problem,
    ProblemKind,
    Retry,
    first_success,
    problems_of,
    quorum,
    read_definition,
)
from support.drafts import State, add, add_group, add_map, add_subgraph, always, graph_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcrop.engine import CompiledGraph, Graph

HOUR = timedelta(hours=1)


def refusal(graph: Graph[State]) -> str:
    with pytest.raises(CompilationFailed) as refused:
        graph.compile()
    return str(refused.value)


def named(problems: tuple[Problem, ...]) -> list[tuple[ProblemKind, str, str | None]]:
    return [(problem.kind, problem.node, problem.related) for problem in problems]


def document_of(graph: Graph[State]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(graph.definition().to_json())
    return document


def judged(document: dict[str, Any]) -> tuple[Problem, ...]:
    return problems_of(read_definition(json.dumps(document)))


def three_deep() -> dict[str, Any]:
    """Work, in it Remediate of Plan and Abort; on the way, a group and a map."""
    remediate = graph_of("Plan", "Abort")
    work = graph_of("Start")
    add_group(work, "Checks", "a", "b")
    add_subgraph(work, "Remediate", remediate.compile())
    work.edge("Start", "Checks")
    work.edge("Checks", "Remediate")
    graph = graph_of("Open")
    add_subgraph(graph, "Work", work.compile())
    add_map(graph, "Fan", graph_of("x", "y").compile())
    graph.edge("Open", "Work")
    graph.edge("Work", "Fan")
    graph.compile()
    return document_of(graph)


def node(level: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in level["nodes"] if one["name"] == name)


def inner(document: dict[str, Any], *path: str) -> dict[str, Any]:
    level = document
    for name in path:
        level = node(level, name)["graph"]
    return level


def test_a_sound_hierarchy_has_no_problems() -> None:
    """A012."""
    assert judged(three_deep()) == ()


def test_an_orphan_below_is_named_with_the_way_to_it() -> None:
    """A013."""
    document = three_deep()["nodes"][1]["graph"]
    inner(document, "Remediate")["edges"] = []
    (problem,) = judged(document)
    assert problem == Problem(
        ProblemKind.ORPHAN_NODE,
        "Remediate/Abort",
        "Node 'Remediate/Abort' is isolated and unreachable from the entry point 'Remediate/Plan'.",
    )


def test_a_cycle_two_levels_down_is_named_at_both_ends() -> None:
    """A014."""
    document = three_deep()
    back = {"from": "Abort", "to": "Plan", "guarded": False, "condition": None}
    inner(document, "Work", "Remediate")["edges"].append(back)
    (problem,) = judged(document)
    assert named((problem,)) == [(ProblemKind.UNGUARDED_CYCLE, "Work/Remediate/Abort", "Work/Remediate/Plan")]
    assert problem.message.startswith(
        "Unguarded cycle detected between 'Work/Remediate/Abort' and 'Work/Remediate/Plan'."
    )


def test_groups_without_branches_and_with_one_twice() -> None:
    """A015: in what was only read; a repeated name is told once."""
    document = three_deep()
    checks = node(inner(document, "Work"), "Checks")
    checks["branches"] = []
    (problem,) = judged(document)
    assert (problem.kind, problem.code) == (ProblemKind.EMPTY_GROUP, "STRATA_ERR_EMPTY_GROUP")
    assert problem.message == "Parallel group 'Work/Checks' has no branches."
    checks["branches"] = [{"name": "a", "metadata": None}] * 3
    (problem,) = judged(document)
    assert (problem.code, problem.related) == ("STRATA_ERR_DUPLICATE_BRANCH", "a")
    assert problem.message == "Parallel group 'Work/Checks' has more than one branch named 'a'."


def test_a_level_is_told_before_its_groups_and_those_before_children() -> None:
    """A016."""
    document = three_deep()["nodes"][1]["graph"]
    document["edges"] = document["edges"][1:]  # nothing leads from Start
    node(document, "Checks")["branches"] = [{"name": "a", "metadata": None}] * 2
    child = inner(document, "Remediate")
    child["edges"] = []
    child["nodes"].append({"name": "Empty", "metadata": None, "kind": "parallel_group", "branches": []})
    child["schema_version"] = "1.1.0"
    assert named(judged(document)) == [
        (ProblemKind.ORPHAN_NODE, "Checks", None),
        (ProblemKind.ORPHAN_NODE, "Remediate", None),
        (ProblemKind.DUPLICATE_BRANCH, "Checks", "a"),
        (ProblemKind.ORPHAN_NODE, "Remediate/Abort", None),
        (ProblemKind.ORPHAN_NODE, "Remediate/Empty", None),
        (ProblemKind.EMPTY_GROUP, "Remediate/Empty", None),
    ]


def test_a_missing_entry_below_hides_only_what_is_below_it() -> None:
    """engine.md 1.4: the only fault of its level."""
    document = three_deep()
    work = inner(document, "Work")
    work["entry_point"] = "ghost"
    work["edges"] = []
    inner(document, "Work", "Remediate")["edges"] = []
    assert named(judged(document)) == [(ProblemKind.MISSING_ENTRY_POINT, "Work/ghost", None)]


def grouped(*branches: str, **options: Any) -> Callable[[Graph[State]], None]:
    return lambda graph: void(add_group(graph, "g", *branches, **options))


def mapped(child: Graph[State] | None = None, **options: Any) -> Callable[[Graph[State]], None]:
    return lambda graph: add_map(graph, "m", (child or graph_of("a")).compile(), **options)


def void(_value: object) -> None:
    return None


def gated(name: str = "gate") -> Graph[State]:
    graph = graph_of(name)
    graph.interrupt(name)
    return graph


def resting() -> Graph[State]:
    graph = graph_of()
    graph.timer("rest", delay=HOUR)
    add(graph, "after")
    graph.edge("rest", "after")
    return graph


def holding(name: str, child: CompiledGraph[State]) -> Graph[State]:
    graph = graph_of()
    add_subgraph(graph, name, child)
    return graph


REFUSALS: list[tuple[Callable[[Graph[State]], None], str]] = [
    # A017
    (grouped(), "parallel group 'g' has no branches"),
    (grouped("a", "b", "a"), "parallel group 'g' has more than one branch named 'a'"),
    # A062, A069
    (mapped(gated()), "map 'm' runs a graph with an interrupt boundary at 'gate'; a map item can't freeze"),
    (mapped(resting()), "map 'm' runs a graph with a wait at 'rest'; a map item can't freeze"),
    (
        mapped(holding("Review", gated("assess").compile())),
        "map 'm' runs a graph with an interrupt boundary at 'Review/assess'; a map item can't freeze",
    ),
    (
        mapped(holding("Review", resting().compile())),
        "map 'm' runs a graph with a wait at 'Review/rest'; a map item can't freeze",
    ),
    # A068
    (mapped(max_concurrency=0), "map 'm' has a max_concurrency of 0; it must be at least 1"),
    (mapped(item_timeout=0), "map 'm' has an item timeout of zero; it must be greater than zero"),
    (mapped(max_items=0), "map 'm' has a max_items of 0; it must be at least 1"),
    # A070
    (grouped("a", max_concurrency=0), "parallel group 'g' has a max_concurrency of 0; it must be at least 1"),
    (
        grouped("a", branch_timeout=timedelta(0)),
        "parallel group 'g' has a branch timeout of zero; it must be greater than zero",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSALS)
def test_rules_of_groups_and_maps(build: Callable[[Graph[State]], None], message: str) -> None:
    """A017, A062, A068, A069, A070: before the structure is looked at."""
    graph = graph_of("a", "b")
    graph.edge("b", "a")  # an unguarded cycle
    build(graph)
    assert refusal(graph) == message


def test_a_group_is_judged_before_a_map_and_a_map_before_a_wait() -> None:
    """engine.md 1.3."""
    graph = graph_of("a")
    graph.timer("t", delay=timedelta(0))
    assert refusal(graph) == "timer 't' has a delay of zero; it must be greater than zero"
    add_map(graph, "m", graph_of("a").compile(), max_items=0)
    assert refusal(graph) == "map 'm' has a max_items of 0; it must be at least 1"
    add_group(graph, "g")
    assert refusal(graph) == "parallel group 'g' has no branches"


@pytest.mark.parametrize("kind", ["group", "map", "subgraph"])
def test_every_composite_takes_a_policy(kind: str) -> None:
    """A023: retries, a timeout and a fallback; the fallback has to be there."""
    graph = graph_of()
    options: dict[str, Any] = {"retry": Retry(max_retries=2), "timeout": HOUR, "fallback": "rescue"}
    match kind:
        case "group":
            add_group(graph, "n", "b", **options)
        case "map":
            add_map(graph, "n", graph_of("a").compile(), **options)
        case _:
            add_subgraph(graph, "n", graph_of("a").compile(), **options)
    assert refusal(graph) == "recovery policy for 'n' falls back to 'rescue', which does not exist"
    add(graph, "rescue")
    spec = graph.compile().nodes["n"]
    assert (spec.retry.max_retries, spec.timeout, spec.fallback) == (2, 3600, "rescue")


def test_a_composite_s_name_can_t_be_given_twice() -> None:
    """A018, A019, A041: n/a as a replacement."""
    graph = graph_of()
    add_group(graph, "g", "a")
    with pytest.raises(CompilationFailed, match=r"^'g' was already added to the graph"):
        add(graph, "g")
    with pytest.raises(CompilationFailed, match=r"^'g' was already added to the graph"):
        add_subgraph(graph, "g", graph_of("a").compile())


def test_waits_and_boundaries_in_a_template_are_told_at_any_depth() -> None:
    """A056: waits before boundaries at each level; only an edited definition can have them."""
    wait = {"kind": "timer", "event_type": None, "delay_ms": 5, "timeout_ms": None}
    deep = {
        "schema_version": "1.6.0",
        "entry_point": "gate",
        "nodes": [
            {"name": "gate", "metadata": None, "interrupt": {"timeout_ms": None}},
            {"name": "rest", "metadata": None, "kind": "wait", "wait": wait},
        ],
        "edges": [{"from": "gate", "to": "rest", "guarded": False, "condition": None}],
    }
    template = json.loads(json.dumps(deep))
    template["nodes"].append({"name": "Sub", "metadata": None, "kind": "subgraph", "graph": deep})
    template["edges"].append({"from": "rest", "to": "Sub", "guarded": False, "condition": None})
    problems = judged(
        {
            "schema_version": "1.3.0",
            "entry_point": "Fan",
            "nodes": [{"name": "Fan", "metadata": None, "kind": "map", "graph": template}],
            "edges": [],
        }
    )
    assert named(problems) == [
        (ProblemKind.WAIT_IN_MAP, "Fan/*/rest", None),
        (ProblemKind.BOUNDARY_IN_MAP, "Fan/*/gate", None),
        (ProblemKind.WAIT_IN_MAP, "Fan/*/Sub/rest", None),
        (ProblemKind.BOUNDARY_IN_MAP, "Fan/*/Sub/gate", None),
    ]
    assert problems[0].message == (
        "Wait node 'Fan/*/rest' is inside a map's template; a map item can't wait."
    )
    assert problems[1].message == (
        "Interrupt boundary 'Fan/*/gate' is inside a map's template; a map item can't freeze."
    )


@pytest.mark.parametrize("count", [0, 3, None])
def test_a_quorum_that_a_group_can_t_have(count: int | None) -> None:
    """A064, at every level."""
    document = three_deep()
    join = {"policy": "quorum", "count": count, "condition": None, "partial": "fail_group"}
    work = inner(document, "Work")
    node(work, "Checks")["join"] = join
    work["schema_version"] = "1.2.0"
    (problem,) = judged(document)
    told = "none" if count is None else count
    assert (problem.kind, problem.code) == (ProblemKind.INVALID_QUORUM, "STRATA_ERR_INVALID_QUORUM")
    assert problem.message == (
        f"Parallel group 'Work/Checks' has a quorum of {told}, which isn't between 1 and its 2 branches."
    )


def test_compiling_refuses_a_quorum_above_the_branches() -> None:
    """A064."""
    graph = graph_of()
    add_group(graph, "g", "a", "b", join=quorum(3))
    with pytest.raises(GraphInvalid) as refused:
        graph.compile()
    assert named(refused.value.problems) == [(ProblemKind.INVALID_QUORUM, "g", None)]


def test_a_map_s_quorum_has_no_upper_bound() -> None:
    """A067."""
    graph = graph_of()
    add_map(graph, "m", graph_of("a").compile(), join=quorum(1_000_000))
    graph.compile()
    off = graph_of()
    add_map(off, "m", graph_of("a").compile(), join=quorum(0))
    with pytest.raises(GraphInvalid) as refused:
        off.compile()
    (problem,) = refused.value.problems
    assert problem.message == "Map 'm' has a quorum of 0, which isn't at least 1."


def test_faults_in_a_template_are_named_by_its_star() -> None:
    """A067."""
    document = three_deep()
    inner(document, "Fan")["edges"] = []
    assert named(judged(document)) == [(ProblemKind.ORPHAN_NODE, "Fan/*/y", None)]


def test_other_joins_need_no_count() -> None:
    graph = graph_of()
    add_group(graph, "g", "a", join=first_success())
    graph.edge("g", "g", when=always)
    graph.compile()
