"""`outcrop thread history` and the questions of `thread inspect`, on threads that went back and ask."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import Answer, CheckpointPolicy, Graph, Interrupted, NodeContext, Threads
from outcrop.stores import open_store
from outcrop.worker.cli import main
from outcrop.worker.cli.exits import Exit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file that commands look at."""
    file = str(tmp_path / "threads.db")
    monkeypatch.setenv("OUTCROP_STORAGE", file)
    return file


async def travelled(storage: str) -> None:
    """A thread of a, ask, b that went back behind a twice, and behind ask once."""
    graph = Graph(dict[str, Any], id="travel", version="1")

    @graph.node
    async def a(state: dict[str, Any]) -> None:
        state["a"] = 1

    @graph.node
    async def ask(state: dict[str, Any], ctx: NodeContext) -> None:
        state["answer"] = await ctx.interrupt({"of": "\x1b[31m"}, id="what")

    @graph.node
    async def b(state: dict[str, Any]) -> None:
        state["b"] = 1

    graph.edge(a, ask)
    graph.edge(ask, b)
    store = await open_store(storage)
    try:
        threads = Threads(graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE), store)
        await threads.run("t", {})
        await threads.resume("t", Answer(replies={"what": 1}))
        await threads.rerun("t", 1)
        await threads.resume("t", Answer(replies={"what": 2}))
        rows = (await store.get_log("t", limit=100)).entries
        inner = next(row.sequence for row in rows if row.sequence > 6 and row.checkpoint.next_node == "b")
        await threads.fork("t", inner)
        assert isinstance(await threads.rerun("t", 1), Interrupted)
    finally:
        await store.close()


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


TREE = """\
* 0  running  a
* 1  running  a -> ask
  ├─ 2  interrupted  ask -> ask
  │  3  running  ask -> ask
  │  4  running  ask -> b
  │  5  completed  b
  ├─ 6  running  a -> ask
  │  7  interrupted  ask -> ask
  │  8  running  ask -> ask
  │  9  running  ask -> b
  │  ├─ 10  completed  b
  │  └─ 11  interrupted  ask -> b
* └─ 12  running  a -> ask
*    13  interrupted  ask -> ask
"""


async def test_the_tree_of_a_thread_that_went_back(storage: str) -> None:
    await travelled(storage)
    drawn = await asyncio.to_thread(command, "thread", "history", "t", "--tree")
    assert "".join(f"{line.rpartition('  ')[0]}\n" for line in drawn.splitlines()) == TREE
    listed = await asyncio.to_thread(command, "thread", "history", "t", "--json")
    checkpoints = json.loads(listed)["checkpoints"]
    assert [row["parent"] for row in checkpoints] == [None, 0, 1, 2, 3, 4, 1, 6, 7, 8, 9, 9, 1, 12]
    assert [row["sequence"] for row in checkpoints if row["current"]] == [0, 1, 12, 13]
    header, *rows = (await asyncio.to_thread(command, "thread", "history", "t")).splitlines()
    assert header.split("\t")[:4] == ["", "SEQUENCE", "FOLLOWS", "STATUS"]
    assert rows[12].split("\t")[:4] == ["*", "12", "1", "running"]


async def test_inspect_shows_what_is_asked_and_nothing_that_drives_a_terminal(storage: str) -> None:
    await travelled(storage)
    told = json.loads(await asyncio.to_thread(command, "thread", "inspect", "t", "--json"))
    assert told["questions"] == [{"id": "what", "path": "ask", "payload": {"of": "\x1b[31m"}}]
    shown = await asyncio.to_thread(command, "thread", "inspect", "t")
    assert "asks what" in shown
    assert "\x1b" not in shown


async def test_a_thread_without_branches_is_a_column(storage: str) -> None:
    graph = Graph(dict[str, Any], id="line", version="1")
    graph.node(name="a")(print)
    store = await open_store(storage)
    try:
        await Threads(graph.compile(checkpoints=CheckpointPolicy.EVERY_NODE), store).run("t", {})
    finally:
        await store.close()
    drawn = await asyncio.to_thread(command, "thread", "history", "t", "--tree")
    assert [line[:4] for line in drawn.splitlines()] == ["* 0 ", "* 1 "]


async def test_an_unknown_thread_has_no_history(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    await travelled(storage)
    assert await asyncio.to_thread(main, ["thread", "history", "x", "--tree"]) == Exit.NOT_FOUND
    assert "no thread 'x'" in capsys.readouterr().err


def command(*argv: str) -> str:
    """What the command prints, in another thread since it runs a loop of its own."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(argv) == 0
    return out.getvalue()
