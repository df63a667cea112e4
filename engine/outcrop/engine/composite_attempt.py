"""One attempt of a group, a map or a subgraph, under the level's token and the node's timeout.

Unlike a handler, a composite is told to stop through its token and awaited until it has
wound down: what it holds below stops in an orderly way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .cancellation import CancelReason
from .composites import Group, Map
from .ends import Cut, CutShort
from .groups import group_attempt
from .maps import map_attempt
from .subgraphs import subgraph_attempt

if TYPE_CHECKING:
    from .cancellation import CancelToken
    from .composites import Composite
    from .ends import AttemptEnd
    from .visit import Visit

S = TypeVar("S")


async def composite_attempt(
    composite: Composite[S], visit: Visit[S], level_token: CancelToken
) -> AttemptEnd[S]:
    """Attempt it once; what is cut while the level's own token stands was cut by the timeout."""
    token, timeout = visit.token, visit.spec.timeout
    withdraw = level_token.on_fire(
        lambda: token.fire(level_token.reason or CancelReason.REQUESTED, level_token.cause)
    )
    timer = None
    if timeout is not None:
        timer = visit.run.clock.call_later(timeout, lambda: token.fire(CancelReason.DEADLINE))
    try:
        end = await _work(composite, visit)
    finally:
        withdraw()
        if timer is not None:
            timer.cancel()
    if isinstance(end, CutShort) and not level_token.fired:
        return CutShort(Cut.TIMED_OUT, end.nested)
    return end


async def _work(composite: Composite[S], visit: Visit[S]) -> AttemptEnd[S]:
    match composite:
        case Group():
            return await group_attempt(composite, visit)
        case Map():
            return await map_attempt(composite, visit)
        case _:
            return await subgraph_attempt(composite, visit)
