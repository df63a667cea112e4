"""`outcrop graph show`: a graph as a drawing or as data, with a thread's way through it. Only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from outcrop.engine import Graph, thread_path, to_dot, to_mermaid
from outcrop.engine.history import history
from outcrop.worker.loading import graphs_of, imported

from .exits import Exit, NotFound, UsageError
from .options import add_command, graph_ref
from .reading import add_storage, reading
from .terminal import Screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from outcrop.engine import CompiledGraph, GraphDefinition, HistoryEntry
    from outcrop.stores import Checkpoint, GraphIdentity

    from .options import Subparsers

_EXAMPLES = """
outcrop graph show shop.orders:graph
outcrop graph show shop.orders:graph --format dot | dot -Tsvg > orders.svg
outcrop graph show shop:GRAPHS --graph orders@2 --format json
outcrop graph show shop.orders:graph --thread order-1042 --storage threads.db
"""
_DETAILS = """\

NAME is a graph, compiled or not, or a list of compiled ones. With --thread, the nodes that the
thread has been through and the one where it is are painted, as its log tells them: a graph
that doesn't save every node tells its stops only."""


def add_commands(commands: Subparsers) -> None:
    """`graph show`."""
    group = commands.add_parser("graph", help="draw a graph, and a thread's way through it")
    verbs = group.add_subparsers(metavar="VERB", required=True)
    show = add_command(
        verbs,
        "show",
        "print a graph for Mermaid or Graphviz, or as JSON",
        examples=_EXAMPLES,
        details=_DETAILS,
    )
    show.add_argument("target", metavar="MODULE:NAME", help="where the graph is")
    show.add_argument(
        "--format", choices=("mermaid", "dot", "json"), default="mermaid", help="default: %(default)s"
    )
    show.add_argument(
        "--graph", type=graph_ref, metavar="ID[@VERSION]", help="which one, when NAME holds several"
    )
    show.add_argument("--thread", metavar="ID", help="paint this thread's way (not with --format json)")
    add_storage(show)
    show.set_defaults(act=_show)


async def _show(arguments: Namespace) -> Exit:
    screen = Screen()
    thread_id: str | None = arguments.thread
    if thread_id is not None and arguments.format == "json":
        raise UsageError("--thread paints a drawing: it goes with --format mermaid or dot")
    entries = () if thread_id is None else await _log(thread_id, arguments.storage)
    latest = entries[-1].checkpoint if entries else None
    definition = _definition(arguments.target, arguments.graph, latest, screen)
    path = thread_path(entries) if entries else None
    match arguments.format:
        case "json":
            text = definition.to_json()
        case "dot":
            text = to_dot(definition, path)
        case _:
            text = to_mermaid(definition, path)
    for line in text.splitlines():
        screen.line(line)
    return Exit.OK


async def _log(thread_id: str, storage: str | None) -> Sequence[HistoryEntry]:
    async with reading(storage) as store:
        entries = await history(store, thread_id)
    if not entries:
        raise NotFound(f"the store has no thread '{thread_id}'")
    return entries


def _definition(
    target: str, wanted: tuple[str, str | None] | None, latest: Checkpoint | None, screen: Screen
) -> GraphDefinition:
    found = imported(target)
    if isinstance(found, Graph):
        if wanted is not None:
            raise UsageError(f"'{target}' holds one graph, not compiled: leave --graph out")
        return cast("Graph[Any]", found).definition()  # type: ignore[redundant-cast]  # for pyright
    graph = _chosen(target, graphs_of(target, found), wanted, latest)
    if latest is not None and not graph.owns(latest):
        screen.note(
            f"the thread is of graph {_named(latest.graph)}, and this one is {_named(graph.identity)}"
        )
    return graph.definition()


def _chosen(
    target: str,
    graphs: Sequence[CompiledGraph[Any]],
    wanted: tuple[str, str | None] | None,
    latest: Checkpoint | None,
) -> CompiledGraph[Any]:
    """The one graph to show: the one asked for, else the only one, else the thread's own."""
    fitting = [graph for graph in graphs if wanted is None or _is(graph.identity, *wanted)]
    if len(fitting) > 1 and latest is not None and latest.graph is not None:
        fitting = [graph for graph in fitting if graph.owns(latest)]
    if len(fitting) != 1:
        held = ", ".join(_named(graph.identity) for graph in graphs)
        raise UsageError(f"'{target}' holds {held}: say which with --graph ID[@VERSION]")
    return fitting[0]


def _is(identity: GraphIdentity | None, id_: str, version: str | None) -> bool:
    return identity is not None and identity.id == id_ and version in {None, identity.version}


def _named(identity: GraphIdentity | None) -> str:
    if identity is None:
        return "(no identity)"
    return identity.id if identity.version is None else f"{identity.id}@{identity.version}"
