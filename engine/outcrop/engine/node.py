"""What a node is: its handler, how it runs, and what it is told about its execution.

Plain values, built by `graph`, checked by `validate`, run by `attempts`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from .cancellation import CancelToken
from .errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from outcrop.stores.record import Decision, Json

    from .node_stream import NodeStream
    from .questions import Questions
    from .retry import Retry

S = TypeVar("S")
T = TypeVar("T")


class NodeMode(StrEnum):
    """Where a handler runs: awaited on the loop, on a worker thread, on the loop at once; if there is one."""

    ASYNC = "async"
    THREAD = "thread"
    INLINE = "inline"
    COMPOSITE = "composite"  # a group, a map or a subgraph: it has no handler of its own


@dataclass(frozen=True, slots=True)
class LastFailure:
    """What a fallback node is told about the node that failed."""

    node: str
    node_path: str
    error: str
    attempts: int
    timed_out: bool
    retry_after: float | None = None


@dataclass(slots=True, kw_only=True)
class NodeContext:
    """One attempt of one node, as its handler sees it; changing it changes nothing.

    (Not frozen: one is made for every attempt, and a frozen one takes four times as long.)
    `idempotency_key` names this execution (`order-1042/charge#2`): the same on every
    retry and recovery, another for a later visit of the same node. Pass it to whatever
    the node calls. `is_recovery` means the node may have run before. `metadata` holds
    the caller's keys only. `decision` is the person's answer in effect. `cancellation`
    fires when the attempt should stop; firing it yourself doesn't cancel the run. `stream`
    is there in a streaming run.
    """

    thread_id: str
    node: str
    node_path: str
    attempt: int = 1
    run_id: str = ""
    idempotency_key: str = ""
    is_recovery: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    decision: Decision | None = None
    last_failure: LastFailure | None = None
    cancellation: CancelToken = field(default_factory=CancelToken)
    services: Mapping[type[object], object] = field(default_factory=dict[type[object], object], repr=False)
    stream: NodeStream | None = None
    questions: Questions | None = field(default=None, repr=False)

    async def interrupt(self, payload: Json = None, *, id: str | None = None) -> Json:  # noqa: A002 - what it is called
        """Ask somebody, and return the answer.

        The first time, the thread stops here and waits, holding nothing; `payload` (JSON) is
        what whoever answers is shown. Once answered, the node runs again from its first line
        and gets the answers it already has, in the order of its questions: do what must
        happen once after the last of them, or under the `idempotency_key`. A question goes
        by its position in the node (from 0), or by `id`: give one that no later visit of
        the node uses again.

        Raises `Fatal` for a payload that isn't JSON, an ID used twice, a question inside a
        map's item, and a context that was built by hand.
        """
        if self.questions is None:
            raise Fatal(
                f"node '{self.node_path}' of thread '{self.thread_id}' can't ask here: questions are for "
                "nodes and group branches of a run, and a map's item can't wait"
            )
        return self.questions.ask(payload, id)

    def service(self, kind: type[T]) -> T:
        """The service of that type given to the run; raises LookupError without one."""
        found = self.services.get(kind)
        if not isinstance(found, kind):
            raise LookupError(  # noqa: TRY004 - a service is missing; none is of a wrong type
                f"node '{self.node_path}' of thread '{self.thread_id}' asks for a {kind.__name__}, "
                "and its run was given none"
            )
        return found


Handler: TypeAlias = Callable[[S, NodeContext], "S | Awaitable[S | None] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec(Generic[S]):
    """A node that runs: `handler` always takes (state, context), whatever the user wrote.

    A handler edits its own copy of the state, or returns the new one. `timeout` is in
    seconds, per attempt. One that `streams` runs in streaming runs only.
    """

    name: str
    handler: Handler[S]
    mode: NodeMode
    retry: Retry
    timeout: float | None = None
    fallback: str | None = None
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Edge(Generic[S]):
    """A way on; the first edge whose `when` holds is taken, no `when` always holds."""

    to: str
    when: Callable[[S], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """An interrupt boundary: the thread waits for a person after the node committed."""

    on_reject: str | None = None
    timeout: timedelta | None = None
    on_timeout: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWait:
    """A node that waits for an event; due after `timeout`, if it has one."""

    event: str
    timeout: timedelta | None = None
    on_timeout: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerWait(Generic[S]):
    """A node that waits for a delay from its commit, or until a time told by the state."""

    delay: timedelta | None = None
    until: Callable[[S], datetime] | None = None
