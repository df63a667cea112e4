"""One attempt of a map: its items, each a level of the child graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .cancellation import CancelReason
from .ends import LevelCancelled, LevelDone, LevelFailed, Raised
from .errors import Fatal
from .events import MapExpanded
from .fan_out import FailedMember, FanOutRun, StoppedMember, Succeeded, failure_of
from .joins import Failure
from .outcome import FailureKind
from .position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cancellation import CancelToken
    from .composites import Map
    from .ends import AttemptEnd, LevelEnd
    from .fan_out import MemberEnd
    from .state import StateCodec
    from .visit import Visit

S = TypeVar("S")


async def map_attempt(map_: Map[S], visit: Visit[S]) -> AttemptEnd[S]:
    """Run the child graph for each item and reduce what they left."""
    try:
        items = list(map_.items(visit.states.thaw(visit.position.state)))
        if map_.max_items is not None and len(items) > map_.max_items:
            limit = f"more than its limit of {map_.max_items}"
            return Raised(Fatal(f"map '{visit.spec.name}' has {len(items)} items, {limit}"))
        keys = [map_.key(item) for item in items]
    except Exception as error:  # noqa: BLE001 - the author's code: its failure is the node's
        return Raised(error)
    if (refused := _refusal(visit.spec.name, keys)) is not None:
        return Raised(Fatal(refused))
    visit.run.emit(MapExpanded(tuple(keys)), visit.path, visit.context.attempt)
    return await FanOutRun(_Items(map_, visit, items, keys, map_.child.states), map_.fan_out, visit).run()


def _refusal(name: str, keys: Sequence[object]) -> str | None:
    """Why items of these keys can't be run, or None when they can (engine.md 4.2)."""
    seen: dict[str, int] = {}
    for index, key in enumerate(keys):
        if not isinstance(key, str):
            return f"map '{name}': item {index} has a key that is no text, but {type(key).__name__}"
        if not key:
            return f"map '{name}': item {index} has an empty key"
        if "/" in key:
            return f"map '{name}': item {index} has the key '{key}', which contains '/'"
        if key in seen:
            return f"map '{name}': items {seen[key]} and {index} have the same key '{key}'"
        seen[key] = index
    return None


@dataclass(slots=True)
class _Items:
    """The items of one attempt of a map."""

    map_: Map[Any]
    visit: Visit[Any]
    items: Sequence[Any]
    names: Sequence[str]
    states: StateCodec[Any]
    one: str = "item"
    many: str = "items"

    async def run(self, index: int, token: CancelToken) -> MemberEnd:
        """See `fan_out.Members`; an item winds down: its child stops, reports, and then it does."""
        visit, child, timeout = self.visit, self.map_.child, self.map_.fan_out.timeout
        try:
            state = self.map_.input(visit.states.thaw(visit.position.state), self.items[index])
            text = child.states.freeze(state)
        except Exception as error:  # noqa: BLE001 - the author's code: its failure is the item's
            return FailedMember(failure_of(error, visit.spec.retry))
        level = visit.open_child(
            child,
            name=f"{visit.spec.name}/{self.names[index]}",
            token=token,
            is_item=True,
            is_recovery=visit.context.is_recovery,
        )
        timed_out = False

        def time_out() -> None:
            nonlocal timed_out
            timed_out = not token.fired
            token.fire(CancelReason.DEADLINE)

        timer = None if timeout is None else visit.run.clock.call_later(timeout, time_out)
        try:
            end = await level.run(Position(node=child.entry, state=text))
        finally:
            if timer is not None:
                timer.cancel()
        return self._ended(self.names[index], end, timed_out=timed_out)

    def _ended(self, key: str, end: LevelEnd, *, timed_out: bool) -> MemberEnd:
        match end:
            case LevelDone(state=state):
                return Succeeded(state)
            case LevelCancelled() if timed_out:
                milliseconds = round((self.map_.fan_out.timeout or 0) * 1000)
                message = f"item '{key}' timed out after {milliseconds} ms"
                return FailedMember(Failure(message, is_fatal=False), timed_out=True)
            case LevelFailed():
                return FailedMember(Failure(_told(end), end.is_fatal, end.hint))
            case _:
                return StoppedMember()


def _told(end: LevelFailed) -> str:
    """What an item's failure says (engine.md 4.2)."""
    match end.kind:
        case FailureKind.NODE_FAILED:
            return f"failed at '{end.node}' after {end.attempts} attempt(s): {end.message}"
        case FailureKind.HOP_LIMIT:
            return f"hit its hop limit: {end.message}"
        case FailureKind.NO_MATCHING_EDGE:
            return end.message
        case _:
            return f"failed: {end.message}"
