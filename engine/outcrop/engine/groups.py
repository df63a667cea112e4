"""One attempt of a parallel group: its branches, each an attempt of its own from the same state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from .attempts import attempt
from .cancellation import CancelToken
from .ends import Cut, CutShort, Parted, Produced, Raised, Suspended
from .errors import StateError
from .fan_out import FailedMember, FanOutRun, StoppedMember, Succeeded, failure_of
from .idempotency import idempotency_key
from .joins import Failure
from .node import NodeMode
from .node_stream import NodeStream
from .questions import Questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .composites import Group
    from .ends import AttemptEnd
    from .fan_out import MemberEnd
    from .node import NodeContext, NodeSpec
    from .state import StateCodec
    from .visit import Visit

S = TypeVar("S")


async def group_attempt(group: Group[S], visit: Visit[S]) -> AttemptEnd[S]:
    """Run the group's branches beside each other and reduce what they left."""
    specs, timeout = group.branches, group.fan_out.timeout
    if timeout is not None:
        specs = tuple(replace(branch, timeout=timeout) for branch in specs)
    branches = _Branches(specs, visit, [branch.name for branch in specs], visit.states)
    return await FanOutRun(branches, group.fan_out, visit).run()


@dataclass(slots=True)
class _Branches(Generic[S]):
    """The branches of one attempt of a group."""

    branches: Sequence[NodeSpec[S]]
    visit: Visit[S]
    names: Sequence[str]
    states: StateCodec[S]
    one: str = "branch"
    many: str = "branches"

    async def run(self, index: int, token: CancelToken) -> MemberEnd:
        """See `fan_out.Members`; a branch that is given up on is abandoned as a node is."""
        branch, visit = self.branches[index], self.visit
        run, context = visit.run, self._context(branch)
        state = self.states.thaw(visit.position.state)
        telemetry = None if run.recorder is None else run.recorder.telemetry
        attempting = attempt(branch, state, context, token=token, clock=run.clock, executor=run.executor)
        if telemetry is None:
            end = await attempting
        else:
            with telemetry.attempt(context.node_path, context.attempt):
                end = await attempting
        return self._ended(branch, end)

    def _ended(self, branch: NodeSpec[S], end: AttemptEnd[S]) -> MemberEnd:
        match end:
            case Produced(state=state):
                try:
                    return Succeeded(self.states.freeze(state))
                except StateError as error:
                    unfit = StateError(f"failed to persist its state: {error}")
                    return FailedMember(failure_of(unfit, self.visit.spec.retry))
            case Raised(error=error):
                return FailedMember(failure_of(error, self.visit.spec.retry))
            case CutShort(cut=Cut.TIMED_OUT):
                milliseconds = round((branch.timeout or 0) * 1000)
                message = f"branch '{branch.name}' timed out after {milliseconds} ms"
                return FailedMember(Failure(message, is_fatal=False), timed_out=True)
            case Suspended():
                return end
            case CutShort() | Parted():
                return StoppedMember()

    def _context(self, branch: NodeSpec[S]) -> NodeContext:
        visit, token = self.visit, CancelToken()
        run, path = visit.run, f"{visit.path}/{branch.name}"
        key = idempotency_key(
            visit.context.thread_id,
            path,
            visit.hops,
            run_id=None if run.journal.durable else run.run_id,
        )
        asks = branch.mode is NodeMode.ASYNC and visit.keeps
        stream = run.stream
        return replace(
            visit.context,
            node=branch.name,
            node_path=path,
            idempotency_key=key,
            cancellation=token,
            stream=None if stream is None else NodeStream.here(stream, path, token),
            questions=Questions(path, key, run.notes.answers(path)) if asks else None,
        )
