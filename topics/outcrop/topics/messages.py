"""The messages on the wire, as frozen pydantic models (worker.md section 3).

A command with a field it doesn't have is invalid: a typo must not be ignored. Readers of
outcomes ignore what they don't know, so that workers may be newer than clients.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID  # noqa: TC003 - pydantic needs it at run time

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from .instants import Instant  # noqa: TC001 - pydantic needs it at run time

VERSION: Literal[1] = 1
MAX_THREAD_ID = 256

ThreadId = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_THREAD_ID, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
Text = Annotated[str, StringConstraints(min_length=1)]

RESERVED_PREFIXES: Final = ("outcrop.", "strata.")
"""Metadata keys that start so belong to the worker and the engine."""

RESERVED_METADATA: Final = ("error", "error_kind", "attempts", "cancel_reason")
"""Metadata keys that the engine writes."""

_FREE_KEY: Final = "^(?!{})(?!({})$).+".format(
    "|".join(prefix.replace(".", r"\.") for prefix in RESERVED_PREFIXES), "|".join(RESERVED_METADATA)
)

# Checked by the codec, which tells this mistake from the others; the schema says it too.
Metadata = Annotated[dict[str, str], Field(json_schema_extra={"propertyNames": {"pattern": _FREE_KEY}})]


def _present(state: JsonValue) -> JsonValue:
    if state is None:  # absent and null are one on the wire
        raise ValueError("null is no state")
    return state


State = Annotated[JsonValue, AfterValidator(_present), Field(json_schema_extra={"not": {"type": "null"}})]


class CommandType(StrEnum):
    """What a command asks for; `wake` and `recover` are the drivers' own."""

    RUN = "run"
    RESUME = "resume"
    SIGNAL = "signal"
    UPDATE = "update"
    RERUN = "rerun"
    END = "end"
    CANCEL = "cancel"
    WAKE = "wake"
    RECOVER = "recover"


class OutcomeStatus(StrEnum):
    """How a command came out."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ENDED = "ended"
    REFUSED = "refused"


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants")


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class GraphName(_Read):
    """A graph, as outcomes name it."""

    id: Text
    version: str | None = None


class GraphRef(GraphName):
    """The graph that a run is for; no version means whichever the worker has."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DecisionBody(_Wire):
    """A person's answer to a boundary."""

    approved: bool
    by: str = ""
    overrides: dict[str, JsonValue] = Field(default_factory=dict)


class _Command(_Wire):
    version: Literal[1] = VERSION
    command_id: UUID
    thread_id: ThreadId
    sent_at: Instant
    metadata: Metadata = Field(default_factory=dict)
    reply_to: Text | None = None


class Run(_Command):
    """Start a new thread of `graph` with `state`."""

    type: Literal[CommandType.RUN] = CommandType.RUN
    graph: GraphRef
    state: State
    deadline: Instant | None = None
    on_existing: Literal["refuse"] = "refuse"


class Resume(_Command):
    """Answer the boundary the thread waits at, or retry a failed or cancelled thread.

    `answers` are to the questions that its nodes ask, by ID; `value`, if it isn't null, to the only one
    that is open.
    """

    type: Literal[CommandType.RESUME] = CommandType.RESUME
    decision: DecisionBody | None = None
    answers: dict[Text, JsonValue] = Field(default_factory=dict)
    value: JsonValue = None
    boundary: Text | None = None
    expected_sequence: Annotated[int, Field(ge=0)] | None = None
    deadline: Instant | None = None


class Signal(_Command):
    """Answer an event wait; `payload` is laid over the state's top-level fields."""

    type: Literal[CommandType.SIGNAL] = CommandType.SIGNAL
    event: Text
    payload: dict[str, JsonValue] = Field(default_factory=dict)


class Update(_Command):
    """Write a row with top-level fields of the state replaced, and run nothing.

    From the latest row, or that at `at_sequence`; with `as_node` as if that node had just left it.
    """

    type: Literal[CommandType.UPDATE] = CommandType.UPDATE
    values: dict[str, JsonValue] = Field(default_factory=dict)
    as_node: Text | None = None
    at_sequence: Annotated[int, Field(ge=0)] | None = None
    expected_sequence: Annotated[int, Field(ge=0)] | None = None


class Rerun(_Command):
    """Go back to the checkpoint at `at_sequence` and run what follows it again."""

    type: Literal[CommandType.RERUN] = CommandType.RERUN
    at_sequence: Annotated[int, Field(ge=0)]
    expected_sequence: Annotated[int, Field(ge=0)] | None = None
    deadline: Instant | None = None


class End(_Command):
    """End the thread for good."""

    type: Literal[CommandType.END] = CommandType.END
    by: str | None = None


class Cancel(_Command):
    """Stop the run in flight; the thread can be resumed."""

    type: Literal[CommandType.CANCEL] = CommandType.CANCEL
    by: str | None = None


class Wake(_Command):
    """Fire the timer or the timeout of the checkpoint at `sequence`."""

    type: Literal[CommandType.WAKE] = CommandType.WAKE
    sequence: Annotated[int, Field(ge=0)]


class Recover(_Command):
    """Continue the dead running thread whose latest row is at `sequence`."""

    type: Literal[CommandType.RECOVER] = CommandType.RECOVER
    sequence: Annotated[int, Field(ge=0)]


AnyCommand: TypeAlias = Run | Resume | Signal | Update | Rerun | End | Cancel | Wake | Recover
Command: TypeAlias = Annotated[AnyCommand, Field(discriminator="type")]


class WaitBody(_Read):
    """What an interrupted thread waits for, and when that is due."""

    kind: Literal["human", "event", "timer"]
    event: str | None = None
    wake_at: str | None = None


class ErrorBody(_Read):
    """Why a command failed or was refused; `kind` is stable."""

    kind: str
    message: str


class QuestionBody(_Read):
    """What a node of an interrupted thread asks; a resume answers it by `id`."""

    id: str
    path: str
    payload: JsonValue = None


class Outcome(_Read):
    """The one answer to a command.

    `run_id`, `worker`, the times and `recovered` may differ between two deliveries of one outcome;
    nothing else may. `state` is left out over the worker's size cap (and what questions ask, and
    `metadata`, where these alone are over it), and `state_omitted` says so: read it from the store.
    """

    version: Literal[1] = VERSION
    command_id: UUID
    command_type: CommandType
    thread_id: str
    status: OutcomeStatus
    reason: str | None = None
    node: str | None = None
    sequence: int | None = None
    wait: WaitBody | None = None
    questions: list[QuestionBody] | None = None
    error: ErrorBody | None = None
    state: JsonValue = None
    state_omitted: bool = False
    graph: GraphName | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    run_id: str | None = None
    worker: str
    started_at: Instant
    finished_at: Instant
    recovered: bool = False
