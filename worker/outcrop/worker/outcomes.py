"""Outcomes of commands, told by rows wherever a row can tell them.

Pure. Invariant: what a live run answers and what a redelivery finds in the log are built by the same
function from the same row, so they can't differ but in what no row knows (worker, run, times).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, assert_never

import orjson

from outcrop.engine.metadata import CANCEL_REASON, COMMAND_ID, END_REASON, ERROR, ERROR_KIND, caller_metadata
from outcrop.engine.questions import questions_in
from outcrop.stores.record import Status, WaitKind
from outcrop.topics.messages import ErrorBody, GraphName, Outcome, OutcomeStatus, QuestionBody, WaitBody

from .decisions import Reason, exhausted_message, lost_message
from .marks import RECOVERY_ID, mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from outcrop.engine.outcome import Failed
    from outcrop.stores.record import Checkpoint, GraphIdentity, Note, Row
    from outcrop.topics.messages import CommandType

TEXT_LIMIT: Final = 10_000
"""The longest error text or reason of an outcome, in characters; a row has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Who tells an outcome: one handling of one command.

    `state_cap` is in bytes of JSON, of state, metadata and questions together: over it the state is left
    out, and then what the questions ask, the metadata, and the questions, as far as these alone are
    over it too. `state_omitted` says so; an outcome always fits its topic.
    """

    command_id: UUID
    command_type: CommandType
    thread_id: str
    worker: str
    started_at: datetime
    finished_at: datetime
    state_cap: int

    def row(self, row: Row, notes: Sequence[Note] = ()) -> Outcome:
        """The outcome that a row at which work stopped tells, with what its notes ask."""
        checkpoint = row.checkpoint
        return self._of_checkpoint(
            row,
            status=OutcomeStatus(checkpoint.status.value),
            reason=_reason(checkpoint),
            node=checkpoint.suspended_node,
            wait=_wait(checkpoint),
            questions=[
                QuestionBody(id=question.id, path=question.path, payload=question.payload)
                for question in questions_in(notes)
            ],
            error=_error(checkpoint),
            state=checkpoint.frozen_state,
        )

    def exhausted(self, row: Row) -> Outcome:
        """`failed`: the command's work was recovered as often as it may be, and `row` is left running."""
        error = ErrorBody(kind=Reason.MAX_RECOVERIES, message=exhausted_message(row))
        return self.unfinishable(row, error)

    def lost(self, row: Row) -> Outcome:
        """`failed`: the resume left only the stamp `row`, and its run is dead."""
        return self.unfinishable(row, ErrorBody(kind=Reason.LOST_RUN, message=lost_message(row)))

    def unfinishable(self, row: Row, error: ErrorBody) -> Outcome:
        """`failed`: the command acted, and nothing here can bring its work to an end."""
        return self._of_checkpoint(
            row, status=OutcomeStatus.FAILED, node=row.checkpoint.innermost.next_node, error=error
        )

    def completed(self, state: str, graph: GraphIdentity | None, metadata: dict[str, str]) -> Outcome:
        """`completed` without a row, as graphs that checkpoint only boundaries do."""
        return self._outcome(
            status=OutcomeStatus.COMPLETED,
            graph=_graph(graph),
            metadata=metadata,
            run_id=str(self.command_id),
            state=state,
        )

    def failed(self, failed: Failed, graph: GraphIdentity | None, metadata: dict[str, str]) -> Outcome:
        """`failed` without a row: nothing could be written of the failure."""
        return self._outcome(
            status=OutcomeStatus.FAILED,
            node=failed.node,
            error=ErrorBody(kind=failed.kind.value, message=failed.message[:TEXT_LIMIT]),
            graph=_graph(graph),
            metadata=metadata,
            run_id=str(self.command_id),
        )

    def refused(self, reason: str, message: str, graph: GraphIdentity | None = None) -> Outcome:
        """`refused`: nothing was done, so no row is reported; `graph` is the thread's, if it has one."""
        return self._outcome(
            status=OutcomeStatus.REFUSED,
            reason=reason,
            error=ErrorBody(kind=reason, message=message[:TEXT_LIMIT]),
            graph=_graph(graph),
        )

    def _of_checkpoint(self, row: Row, **fields: Any) -> Outcome:  # noqa: ANN401 - fields of Outcome
        checkpoint = row.checkpoint
        return self._outcome(
            sequence=row.sequence,
            graph=_graph(checkpoint.graph),
            metadata=caller_metadata(checkpoint),
            run_id=mark(checkpoint, COMMAND_ID) or None,
            recovered=bool(mark(checkpoint, RECOVERY_ID)),
            **fields,
        )

    def _outcome(
        self,
        *,
        state: str | None = None,
        metadata: Mapping[str, str] | None = None,
        questions: Sequence[QuestionBody] = (),
        **fields: Any,  # noqa: ANN401 - fields of Outcome
    ) -> Outcome:
        return Outcome(
            command_id=self.command_id,
            command_type=self.command_type,
            thread_id=self.thread_id,
            worker=self.worker,
            started_at=self.started_at,
            finished_at=self.finished_at,
            **_capped(state, metadata or {}, questions, self.state_cap),
            **fields,
        )


def may_ask(checkpoint: Checkpoint) -> bool:
    """Whether questions may stand beside the row: its node waits before it has committed."""
    innermost = checkpoint.innermost
    is_before = innermost.suspended_node == innermost.next_node
    return checkpoint.status is Status.INTERRUPTED and is_before and innermost.wait is None


def _reason(checkpoint: Checkpoint) -> str | None:
    match checkpoint.status:
        case Status.CANCELLED:
            return mark(checkpoint, CANCEL_REASON)[:TEXT_LIMIT] or None
        case Status.ENDED:
            return mark(checkpoint, END_REASON)[:TEXT_LIMIT] or None
        case Status.INTERRUPTED | Status.FAILED | Status.COMPLETED | Status.RUNNING:
            return None
        case _:
            assert_never(checkpoint.status)


def _wait(checkpoint: Checkpoint) -> WaitBody | None:
    if checkpoint.status is not Status.INTERRUPTED:
        return None
    wait = checkpoint.innermost.wait
    if wait is None:
        return WaitBody(kind=WaitKind.HUMAN.value)
    return WaitBody(kind=wait.kind.value, event=wait.event_type, wake_at=wait.wake_at)


def _error(checkpoint: Checkpoint) -> ErrorBody | None:
    if checkpoint.status is not Status.FAILED:
        return None
    return ErrorBody(
        kind=mark(checkpoint, ERROR_KIND) or "fatal", message=mark(checkpoint, ERROR)[:TEXT_LIMIT]
    )


def _graph(identity: GraphIdentity | None) -> GraphName | None:
    return None if identity is None else GraphName(id=identity.id, version=identity.version)


def _capped(
    state: str | None, metadata: Mapping[str, str], questions: Sequence[QuestionBody], cap: int
) -> dict[str, Any]:
    """What is told of state, metadata and questions: all of it, or as much as the cap leaves."""
    tags, asked = len(orjson.dumps(metadata)), _size(questions)
    if len((state or "").encode()) + tags + asked <= cap:
        told = None if state is None else json.loads(state)
        return {"metadata": metadata, "state": told, "questions": list(questions) or None}
    if tags + asked > cap:
        questions = [question.model_copy(update={"payload": None}) for question in questions]
        asked = _size(questions)
    if tags + asked > cap:
        metadata = {}
    if asked > cap:
        questions = ()
    return {"metadata": metadata, "questions": list(questions) or None, "state_omitted": True}


def _size(questions: Sequence[QuestionBody]) -> int:
    return sum(len(question.model_dump_json().encode()) for question in questions)
