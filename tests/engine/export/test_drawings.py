"""Mermaid and DOT: every kind of node drawn as what it is, names as nothing but names.

That both languages' own parsers read these drawings and give the names back was seen with
Mermaid 11.17 and Graphviz (viz.js); here the texts themselves are pinned.
"""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta

import pytest

from outcrop.engine import Partial, ThreadPath, quorum, to_dot, to_mermaid
from outcrop.engine.definition import (
    EdgeDefinition,
    GraphDefinition,
    NodeDefinition,
    NodeKind,
)
from support.drafts import add, add_group, add_map, add_subgraph, always, graph_of

NASTY = (
    "end",
    "subgraph",
    'a "quoted" one',
    "a]b[c}d{e)f(g",
    "two\nlines\r\tand\x1b[31m",
    "style:#f00;",
    "#35; &amp; &#35;",
    "`code` **bold** _it_ <b>x</b> $$x$$",
    "1. list",
    "- list",
    "%% comment",
    'back\\slash\\N\\"',
    "ünïcode 漢字 🎉",
    "right-to-left \u202e and zero\u200bwidth",
    "a|b --> c",
    "",
    " ",
)


def everything() -> GraphDefinition:
    """A graph with one of every kind."""
    child = graph_of("draft", "sign")
    child.interrupt("sign")
    graph = graph_of("start")
    add(graph, "sorry")
    add(graph, "pay", fallback="sorry")
    add_group(graph, "checks", "score", "fraud", join=quorum(1), partial=Partial.KEEP_SUCCEEDED)
    add_map(graph, "lines", graph_of("price").compile())
    add_subgraph(graph, "contract", child.compile())
    graph.wait_for_event("paid", event="payment.settled", timeout=timedelta(hours=36), on_timeout="sorry")
    graph.timer("rest", delay=timedelta(milliseconds=90_500))
    graph.timer("until", until=lambda _state: datetime.now(UTC))
    way = ("start", "pay", "checks", "lines", "contract", "paid", "rest", "until")
    for start, end in itertools.pairwise(way):
        graph.edge(start, end)
    graph.edge("until", "start", when=always)
    graph.edge("until", "sorry")
    graph.interrupt("pay", on_reject="sorry", timeout=timedelta(minutes=5), on_timeout="sorry")
    graph.interrupt("checks")
    return graph.compile().definition()


MERMAID = """\
flowchart TD
  ns((" "))
  n0["start"]
  n1["sorry"]
  n2{{"pay<br/>waits for a person<br/>5 min at most"}}
  subgraph n3["checks<br/>parallel group<br/>a quorum of 1 decides\
<br/>keeps what succeeded<br/>waits for a person"]
    n3_s((" "))
    n3_0("score")
    n3_1("fraud")
    n3_e(((" ")))
  end
  subgraph n4["lines<br/>map"]
    n4_s((" "))
    n4_0["price"]
    n4_e(((" ")))
  end
  subgraph n5["contract<br/>subgraph"]
    n5_s((" "))
    n5_0["draft"]
    n5_1{{"sign<br/>waits for a person"}}
    n5_e(((" ")))
  end
  n6(["paid<br/>waits for event payment.settled<br/>1 d 12 h at most"])
  n7(["rest<br/>waits for 1 min 30 s 500 ms"])
  n8(["until<br/>waits until a time in the state"])
  ne(((" ")))
  ns --> n0
  n0 --> n2
  n2 --> n3_s
  n3_e --> n4_s
  n4_e --> n5_s
  n5_e --> n6
  n6 --> n7
  n7 --> n8
  n8 -->|"if"| n0
  n8 --> n1
  n2 -.->|"on_failure"| n1
  n2 -.->|"on_reject"| n1
  n2 -.->|"on_timeout"| n1
  n6 -.->|"on_timeout"| n1
  n1 --> ne
  n3_s --> n3_0
  n3_0 --> n3_e
  n3_s --> n3_1
  n3_1 --> n3_e
  n4_s --> n4_0
  n4_0 --> n4_e
  n5_s --> n5_0
  n5_0 --> n5_1
  n5_1 --> n5_e
"""


def test_mermaid_draws_each_kind_as_what_it_is() -> None:
    drawing = to_mermaid(everything())
    assert drawing.startswith(MERMAID)
    classes = re.findall(r"^  class (\S+) (\w+)_$", drawing, re.MULTILINE)
    assert {name: ids.split(",") for ids, name in classes} == {
        "start": ["ns", "n3_s", "n4_s", "n5_s"],
        "end": ["n3_e", "n4_e", "n5_e", "ne"],
        "group": ["n3"],
        "map": ["n4"],
        "subgraph": ["n5"],
        "asks": ["n2", "n3", "n5_1"],
    }


def test_dot_draws_the_same() -> None:
    drawing = to_dot(everything())
    lines = [line.strip() for line in drawing.splitlines()]
    assert '  n2 [label="pay\\nwaits for a person\\n5 min at most", shape="hexagon"' in drawing
    assert "  subgraph cluster_n3 {\n" in drawing
    assert 'n3_0 [label="score", shape="box", style="rounded"]' in lines
    assert 'n2 -> n1 [label="on_reject", style="dashed"]' in lines
    assert 'n8 -> n0 [label="if"]' in lines
    arrows = [re.sub(r" (-\.->|-->)(\|.*\|)? ", " -> ", line.strip()) for line in MERMAID.splitlines()]
    wanted = [arrow for arrow in arrows if " -> " in arrow]
    assert [line.partition(" [")[0] for line in lines if " -> " in line] == wanted
    assert drawing.count("{") == drawing.count("}")


def nasty(name: str) -> GraphDefinition:
    child = GraphDefinition(
        entry_point=name, nodes=(NodeDefinition(name=name),), edges=(), schema_version="1.0.0"
    )
    return GraphDefinition(
        entry_point=name,
        nodes=(
            NodeDefinition(name=name),
            NodeDefinition(name="Sub", kind=NodeKind.SUBGRAPH, graph=child),
        ),
        edges=(EdgeDefinition(from_=name, to=f"{name}?", guarded=True, condition=name),),
        schema_version="1.1.0",
    )


@pytest.mark.parametrize("name", NASTY)
def test_no_name_is_anything_but_text_for_mermaid(name: str) -> None:
    """A label is quoted, and in it stand letters, digits, codes and single signs between letters."""
    plain = re.compile(r'"(?:[^\W_]|(?<=[^\W_])[ _.-](?=[^\W_])|#\d+;|<br/>)*"')
    drawing = to_mermaid(nasty(name))
    labels = [label for label in re.findall(r'"[^"]*"', drawing) if label != '" "']
    assert [label for label in labels if not plain.fullmatch(label)] == []
    assert [line for line in drawing.splitlines() if line.count('"') not in {0, 2}] == []
    read = {re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label[1:-1]) for label in labels}
    assert visible(name) in read | {""}


@pytest.mark.parametrize("name", NASTY)
def test_no_name_is_anything_but_text_for_dot(name: str) -> None:
    """A label is one quoted string, whose every backslash, quote and & is of ours or escaped."""
    drawing = to_dot(nasty(name))
    first = drawing.splitlines()[3]
    assert first.startswith("  n0 [label=")
    (label,) = re.findall(r'^  n0 \[label="((?:[^"\\]|\\.)*)", shape="box"\]$', first)
    unescaped = re.sub(r"\\(.)", r"\1", label).replace("&amp;", "&")
    assert unescaped == visible(name)
    assert all(line.isprintable() for line in drawing.splitlines())


def visible(name: str) -> str:
    """A name as it is shown: what doesn't print is told as its escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def test_what_is_missing_is_drawn_as_missing() -> None:
    graph = graph_of("a")
    graph.edge("a", "ghost")
    graph.entry("nowhere")
    add_group(graph, "empty")
    drawing = to_mermaid(graph.definition())
    assert '  nx0["nowhere<br/>missing"]\n' in drawing
    assert '  nx1["ghost<br/>missing"]\n' in drawing
    assert "  ns --> nx0\n" in drawing
    assert "  n0 --> nx1\n" in drawing
    assert "nx0,nx1 missing_" in drawing
    assert 'nx1 [label="ghost\\nmissing", shape="box", style="dashed"' in to_dot(graph.definition())


def painted(drawing: str) -> dict[str, list[str]]:
    classes = re.findall(r"^  class (\S+) (visited|current|around)_$", drawing, re.MULTILINE)
    return {name: ids.split(",") for ids, name in classes}


def test_a_way_is_painted_and_the_levels_around_where_it_is() -> None:
    path = ThreadPath(
        frozenset({("start",), ("pay",), ("checks",), ("lines",), ("contract", "draft"), ("gone",)}),
        ("contract", "sign"),
    )
    assert painted(to_mermaid(everything(), path)) == {
        "visited": ["n0", "n2", "n3", "n4", "n5_0"],
        "around": ["n5"],
        "current": ["n5_1"],
    }
    lines = to_dot(everything(), path).splitlines()
    assert [line.split()[0] for line in lines if "#cfe8cf" in line and "[" in line] == ["n0", "n2", "n5_0"]
    assert [line.split()[0] for line in lines if "#ffd54f" in line and "[" in line] == ["n5_1"]
    assert sum("#cfe8cf" in line for line in lines) == 5


def test_nothing_is_painted_without_a_way() -> None:
    assert painted(to_mermaid(everything())) == {}
    assert painted(to_mermaid(everything(), ThreadPath(frozenset(), None))) == {}


def test_equal_names_on_different_levels_stay_apart() -> None:
    child = graph_of("a")
    graph = graph_of("a")
    add_subgraph(graph, "b", child.compile())
    graph.edge("a", "b")
    path = ThreadPath(frozenset({("a",)}), ("b", "a"))
    assert painted(to_mermaid(graph.definition(), path)) == {
        "visited": ["n0"],
        "around": ["n1"],
        "current": ["n1_0"],
    }
