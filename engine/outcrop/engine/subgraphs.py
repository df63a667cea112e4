"""One attempt of a subgraph: its child's level, run from its entry or from where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .ends import (
    Cut,
    CutShort,
    LevelCancelled,
    LevelDone,
    LevelFailed,
    LevelFroze,
    LevelParted,
    Parted,
    Produced,
    Raised,
    Suspended,
)
from .errors import Fatal, StateError, Transient
from .outcome import FailureKind
from .position import Position

if TYPE_CHECKING:
    from .composites import Subgraph
    from .ends import AttemptEnd
    from .errors import NodeError
    from .visit import Visit

S = TypeVar("S")


async def subgraph_attempt(subgraph: Subgraph[S], visit: Visit[S]) -> AttemptEnd[S]:
    """Run the child as one node.

    A child that was resumed inside is resumed from the same place by every retry: nobody is
    asked twice.
    """
    start = visit.position.nested or _entered(subgraph, visit)
    if isinstance(start, Raised):
        return start
    child = visit.open_child(
        subgraph.child,
        name=visit.spec.name,
        token=visit.token,
        is_item=False,
        is_recovery=start.is_recovery,
    )
    end = await child.run(start, is_fresh=visit.position.nested is None)
    match end:
        case LevelDone():
            return _left(subgraph, visit, end.state)
        case LevelFroze(row=row, questions=questions):
            return Suspended(row, questions)
        case LevelFailed():
            return Raised(_error(visit.spec.name, end), nested=end.row)
        case LevelCancelled(row=row):
            return CutShort(Cut.CANCELLED, row)
        case LevelParted():
            return Parted()


def _entered(subgraph: Subgraph[S], visit: Visit[S]) -> Position | Raised:
    child = subgraph.child
    try:
        state = subgraph.input(visit.states.thaw(visit.position.state))
        text = child.states.freeze(state)
    except StateError as error:
        return Raised(Fatal(f"subgraph '{visit.spec.name}' can't start: {error}"))
    except Exception as error:  # noqa: BLE001 - the author's code: its failure is the node's
        return Raised(error)
    return Position(node=child.entry, state=text, is_recovery=visit.position.is_recovery)


def _left(subgraph: Subgraph[S], visit: Visit[S], text: str) -> Produced[S] | Raised:
    state = visit.states.thaw(visit.position.state)
    try:
        returned = subgraph.output(state, subgraph.child.states.thaw(text))
    except Exception as error:  # noqa: BLE001 - the author's code: its failure is the node's
        return Raised(error)
    return Produced(state if returned is None else returned)


def _error(name: str, end: LevelFailed) -> NodeError:
    """The node's failure that a child's failure is (engine.md 4.3)."""
    match end.kind:
        case FailureKind.NODE_FAILED:
            message = (
                f"subgraph '{name}' failed at '{end.node}' after {end.attempts} attempt(s): {end.message}"
            )
            return Fatal(message) if end.is_fatal else Transient(message, retry_after=end.hint)
        case FailureKind.NO_MATCHING_EDGE:
            return Fatal(f"subgraph '{name}': {end.message}")
        case FailureKind.HOP_LIMIT:
            return Fatal(f"subgraph '{name}' hit its hop limit: {end.message}")
        case _:
            return Fatal(f"subgraph '{name}' failed: {end.message}")
