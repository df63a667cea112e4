"""`outcrop graph show`: graphs drawn from where they are defined, and threads' ways through them."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import Threads, read_definition
from outcrop.stores import open_store
from outcrop.worker.cli import main
from outcrop.worker.cli.exits import Exit
from support.twins import Variant, twin

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """\
from outcrop.engine import Graph
from support.twins import Variant, twin

drawn = Graph(dict)
drawn.interrupt("gate\\x1b[31m")
drawn.edge("gate\\x1b[31m", "nowhere")
first = twin("approval", Variant(graph_id="orders", graph_version="1", every_node=True))
second = twin("nested", Variant(graph_id="orders", graph_version="2", every_node=True))
third = twin("line3", Variant(graph_id="lines", every_node=True))
graphs = [first, second, third]
number = 3
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of graphs in the current folder, and a store beside it."""
    (tmp_path / "shop_graphs.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_graphs", raising=False)
    monkeypatch.setenv("OUTCROP_STORAGE", str(tmp_path / "threads.db"))


class Command:
    """Runs the command and keeps what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def shown(self, target: str, *argv: str) -> str:
        assert main(["graph", "show", f"shop_graphs:{target}", *argv]) == Exit.OK
        said = self._capsys.readouterr()
        assert said.err == ""
        return said.out

    def noted(self, target: str, *argv: str) -> tuple[str, str]:
        assert main(["graph", "show", f"shop_graphs:{target}", *argv]) == Exit.OK
        said = self._capsys.readouterr()
        return said.out, said.err

    def refused(self, target: str, *argv: str) -> tuple[int, str]:
        code = main(["graph", "show", target, *argv])
        said = self._capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        return code, said.err


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def run(folder: Path) -> None:
    """A thread "t" of orders@1, at its boundary."""
    asyncio.run(_run(folder / "threads.db"))


async def _run(storage: Path) -> None:
    variant = Variant(graph_id="orders", graph_version="1", every_node=True)
    store = await open_store(str(storage))
    try:
        await Threads(twin("approval", variant), store).run("t", {})
    finally:
        await store.close()


def test_mermaid_is_what_comes_unasked(command: Command) -> None:
    drawing = command.shown("first")
    assert drawing.startswith("flowchart TD\n")
    assert '  n1{{"approve<br/>waits for a person"}}\n' in drawing
    assert command.shown("first", "--format", "mermaid") == drawing


def test_dot_and_json(command: Command) -> None:
    assert command.shown("first", "--format", "dot").startswith("digraph {\n")
    text = command.shown("first", "--format", "json")
    variant = Variant(graph_id="orders", graph_version="1", every_node=True)
    assert read_definition(text) == twin("approval", variant).definition()


def test_a_builder_is_shown_though_it_does_not_compile(command: Command) -> None:
    """Nothing of a name reaches the terminal as what it isn't."""
    for format_ in ("mermaid", "dot", "json"):
        shown = command.shown("drawn", "--format", format_)
        assert "\x1b" not in shown
        assert "gate" in shown
    assert json.loads(shown)["edges"][0]["to"] == "nowhere"


def test_several_graphs_need_a_word_which(command: Command) -> None:
    code, message = command.refused("shop_graphs:graphs")
    assert code == Exit.USAGE
    assert "holds orders@1, orders@2, lines: say which with --graph ID[@VERSION]" in message
    assert '"review<br/>subgraph"' in command.shown("graphs", "--graph", "orders@2")
    assert command.shown("graphs", "--graph", "lines") == command.shown("third")
    for wanted in ("orders", "orders@3", "other"):
        assert command.refused("shop_graphs:graphs", "--graph", wanted)[0] == Exit.USAGE


def test_a_thread_s_way_is_painted(command: Command, tmp_path: Path) -> None:
    run(tmp_path)
    drawing = command.shown("first", "--thread", "t")
    assert "  class n0 visited_\n" in drawing
    assert "  class n1 current_\n" in drawing
    dot = command.shown("first", "--thread", "t", "--format", "dot")
    assert sum("#cfe8cf" in line for line in dot.splitlines()) == 1
    assert command.shown("graphs", "--thread", "t") == drawing, "the thread's own graph is found"


def test_another_graph_s_thread_is_told_of(command: Command, tmp_path: Path) -> None:
    run(tmp_path)
    drawing, note = command.noted("third", "--thread", "t")
    assert drawing.startswith("flowchart TD\n")
    assert note == "the thread is of graph orders@1, and this one is lines\n"


def test_what_is_refused(command: Command, tmp_path: Path) -> None:
    run(tmp_path)
    code, message = command.refused("shop_graphs:first", "--thread", "nobody")
    assert (code, message) == (
        Exit.NOT_FOUND,
        "outcrop: the store has no thread 'nobody' [OUTCROP_NOT_FOUND]\n",
    )
    code, message = command.refused("shop_graphs:first", "--thread", "t", "--format", "json")
    assert code == Exit.USAGE
    assert "--thread paints a drawing" in message
    code, message = command.refused("shop_graphs:drawn", "--graph", "orders")
    assert code == Exit.USAGE
    assert "leave --graph out" in message
    for target in ("shop_graphs", "shop_graphs:nothing", "shop_graphs:number", "no_such_module:graph"):
        assert command.refused(target)[0] == Exit.USAGE
