"""A user's graphs on an embedded broker and one worker, in one process, to try them.

Owns what differs from production (the broker and the settings it needs) and the lines that say
how to send something. The worker itself is `app`'s, unchanged.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

from outcrop.engine import StateError
from outcrop.stores.location import Engine, locate
from outcrop.topics import EmbeddedBroker

from .app import load_graphs, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from outcrop.engine import CompiledGraph

    from .settings import Settings


class Configure(Protocol):
    """A way to make settings."""

    def __call__(self, **fixed: object) -> Settings:
        """Settings in which these ones stand over all others."""
        ...


def develop(graphs_at: str, configure: Configure, *, say: Callable[[str], None]) -> int:
    """Serve the graphs at `MODULE:NAME` until a signal comes; returns the worker's exit code.

    `say` is told where everything is and what to type next.
    """
    graphs = load_graphs(graphs_at)
    with EmbeddedBroker() as broker:
        settings = configure(
            bootstrap=broker.bootstrap, auto_create=True, group_protocol="consumer", events="tokens"
        )
        names = settings.topics
        broker.make((names.commands, names.outcomes, names.dead, names.events))
        for line in hints(graphs, settings):
            say(line)
        return run(settings, graphs)


def hints(graphs: Sequence[CompiledGraph[Any]], settings: Settings) -> list[str]:
    """What to type next: a command to send, outcomes to follow, threads to look at."""
    broker = f"--bootstrap {settings.bootstrap}"
    url = settings.store.get_secret_value()
    is_file = locate(url).engine is Engine.SQLITE  # any other URL may hold a password
    store = f" --storage {shlex.quote(url)}" if is_file else "    (OUTCROP_STORAGE: the store's URL)"
    return [
        f"an embedded broker is at {settings.bootstrap}: for trying things out, it guarantees nothing",
        "start a thread from another terminal:",
        *(line for graph in graphs for line in _run_hint(graph, broker)),
        "then look at it:",
        f"  outcrop outcomes --from-start {broker}",
        f"  outcrop events {broker}",
        f"  outcrop thread list{store}",
        "Ctrl-C stops the worker; the threads stay in the store",
    ]


def _run_hint(graph: CompiledGraph[Any], broker: str) -> list[str]:
    if graph.identity is None:  # a run names its graph, so nothing can be sent to this one
        return []
    name = shlex.quote(graph.identity.id)
    try:
        graph.states.thaw("{}")
    except StateError as error:
        state, needs = "@state.json", [f"    (state.json: a state of this graph; {{}} won't do: {error})"]
    else:
        state, needs = "'{}'", []
    return [f"  outcrop send run {name}-1 --graph {name} --state {state} --wait {broker}", *needs]
