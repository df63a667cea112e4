"""What both sweeps share: which threads they list, the slot of one, and how they tell why they skipped it.

Owns no loop and no store; all but the wait for a slot is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from outcrop.stores.query import MAX_PAGE

from .options import options_refusal, time_refusal
from .outcome import RefusalCode, Refused
from .scheduler import admit

if TYPE_CHECKING:
    from datetime import datetime

    from outcrop.stores.query import ThreadSummary

    from .cancellation import CancelToken
    from .compiled import CompiledGraph
    from .options import RunOptions
    from .scheduler import Admission, NotAdmitted

S = TypeVar("S")

_GONE = frozenset(
    {
        RefusalCode.RUNNING,
        RefusalCode.NOT_RUNNING,
        RefusalCode.COMPLETED,
        RefusalCode.ENDED,
        RefusalCode.ALREADY_RESUMED,
        RefusalCode.NOT_DUE,
    }
)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A thread that a driver listed and left alone, and why."""

    thread_id: str
    reason: str


def skip_reason(refused: Refused, *, gone: str, raced: str) -> str:
    """Why a driver's verb did nothing, in the driver's words."""
    if refused.code is RefusalCode.NO_THREAD:
        return "it has no checkpoint"
    if refused.code is RefusalCode.STORE:
        return f"its checkpoint can't be loaded: {refused.message}"
    if refused.code is RefusalCode.SCHEMA_VERSION:
        return "its checkpoint" + refused.message.removeprefix(f"checkpoint for thread '{refused.thread_id}'")
    if refused.code is RefusalCode.HELD:
        return "it" + refused.message.removeprefix(f"thread '{refused.thread_id}'")
    if refused.code in (RefusalCode.LOST_RACE, RefusalCode.STALE):
        return raced
    return gone if refused.code in _GONE else refused.message


async def admit_listed(
    summary: ThreadSummary, options: RunOptions, stop: CancelToken | None
) -> Admission | NotAdmitted | None:
    """Wait for a listed thread's slot, if its run needs one; its row tells the tenant if the run doesn't."""
    return await admit(options, {**summary.metadata, **options.metadata}, stop or options.stop)


def not_admitted(answer: NotAdmitted) -> str:
    """Why a thread that got no slot was skipped."""
    return f"it was not admitted: {answer.message}"


def driver_refusal(limit: int, now: datetime | None, options: RunOptions) -> str | None:
    """Why a driver can't start with these options, or None when it can."""
    if not 1 <= limit <= MAX_PAGE:
        return f"a driver's limit must be between 1 and {MAX_PAGE}, not {limit}"
    return options_refusal(options) or (None if now is None else time_refusal("a driver's time", now))


def graph_filter(graph: CompiledGraph[Any], *, match_graph: bool) -> tuple[str | None, str | None]:
    """The graph ID and version that a driver lists the threads of; every version's, if it migrates them."""
    identity = graph.identity
    if identity is None or not match_graph:
        return None, None
    return identity.id, identity.version if graph.migration is None else None


def is_told_to_stop(*tokens: CancelToken | None) -> bool:
    """Whether a driver should start no other thread."""
    return any(token is not None and token.fired for token in tokens)
