"""The graphs that this worker serves, by ID and version.

Owns which graph a command or a row is for. Knows no message and no store. Invariant: every
served graph has an identity of its own, so that a row always names the one it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.engine.threads import Threads
    from outcrop.stores.record import Checkpoint, GraphIdentity
    from outcrop.topics.messages import GraphName


@dataclass(frozen=True, slots=True)
class Served:
    """A graph and the threads that run on it."""

    graph: CompiledGraph[Any]
    threads: Threads[Any]


class Registry:
    """Looks graphs up; raises `SettingsInvalid` for graphs that can't be told apart."""

    def __init__(
        self,
        graphs: Iterable[CompiledGraph[Any]],
        threads: Callable[[CompiledGraph[Any]], Threads[Any]],
    ) -> None:
        self._served: dict[GraphIdentity, Served] = {}
        for graph in graphs:
            self._add(graph, threads)
        if not self._served:
            raise SettingsInvalid("a worker needs at least one graph to serve")

    def _add(self, graph: CompiledGraph[Any], threads: Callable[[CompiledGraph[Any]], Threads[Any]]) -> None:
        identity = graph.identity
        if identity is None:
            raise SettingsInvalid("a graph without an ID can't be served: give it one, Graph(…, id='orders')")
        if identity in self._served:
            raise SettingsInvalid(f"graph '{identity.id}' version {identity.version} is given twice")
        self._served[identity] = Served(graph, threads(graph))

    def for_run(self, wanted: GraphName) -> Served | None:
        """The graph that a run names; without a version the one given last of that ID."""
        of_id = [served for identity, served in self._served.items() if identity.id == wanted.id]
        if wanted.version is None:
            return of_id[-1] if of_id else None
        return next((served for served in of_id if _version(served) == wanted.version), None)

    def for_row(self, checkpoint: Checkpoint) -> Served | None:
        """The graph that a thread belongs to; a row of no graph is taken on by the only one there is.

        Threads of a version that isn't served are taken on by the graph given last of that ID
        that has a migration.
        """
        return self._taking_on(checkpoint.graph)

    def serves(self, identity: GraphIdentity | None) -> bool:
        """Whether threads whose latest row is of this graph can be continued here."""
        return self._taking_on(identity) is not None

    def _taking_on(self, identity: GraphIdentity | None) -> Served | None:
        if identity is None:
            return next(iter(self._served.values())) if len(self._served) == 1 else None
        migrating = [
            served
            for known, served in self._served.items()
            if known.id == identity.id and served.graph.migration is not None
        ]
        return self._served.get(identity) or (migrating[-1] if migrating else None)


def _version(served: Served) -> str | None:
    identity = served.graph.identity
    return None if identity is None else identity.version
