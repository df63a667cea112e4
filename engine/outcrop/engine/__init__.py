"""The graph engine: build a graph, compile it, run threads of it against a store.

    orders = Graph(Order, id="orders", version="1")
    threads = Threads(orders.compile(), store)
    result = await threads.run("order-1042", Order(amount=5))

Everything a caller needs is here; the modules below are the engine's own.
"""

from __future__ import annotations

from .admission_queue import NotAdmittedReason
from .cancellation import CancelReason, CancelToken
from .chunks import Chunk, ChunkStream, ChunkType
from .clock import Clock, ManualClock, SystemClock
from .compiled import CompiledGraph
from .composites import (
    BranchOutcome,
    Join,
    Joined,
    OutcomeStatus,
    Partial,
    all_of,
    first_matching,
    first_success,
    quorum,
)
from .definition import GraphDefinition
from .definition_reading import check_shape, read_definition
from .drawing import to_dot, to_mermaid
from .driven import Skipped
from .errors import (
    ChannelClosed,
    CompilationFailed,
    DefinitionInvalid,
    Fatal,
    GraphError,
    GraphInvalid,
    NodeError,
    StateError,
    Transient,
)
from .events import RunEvent
from .graph import Graph
from .history import HistoryEntry, HistoryTree, tree_of
from .leases import LeaseRenewer, LoopRenewer
from .node import LastFailure, NodeContext
from .options import Answer, CheckpointPolicy, LeaseOptions, RowMarks, RunOptions
from .outcome import (
    Cancelled,
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    RefusalCode,
    Refused,
    RunResult,
    Stopped,
)
from .questions import Question
from .recorder import Observer, RunTelemetry, Telemetry
from .recovery import Recovered, RecoverOptions, RecoverReport
from .retry import Backoff, Jitter, Retry
from .scheduler import (
    Admission,
    NotAdmitted,
    Scheduler,
    SchedulerHook,
    SchedulerOptions,
    SchedulerSnapshot,
    TenantSnapshot,
)
from .structure import Problem, ProblemKind, problems_of
from .thread_path import ThreadPath, thread_path
from .thread_renewer import ThreadRenewer
from .threads import Threads
from .wake import WakeOptions, WakeReason, WakeReport, Woken

__all__ = [
    "Admission",
    "Answer",
    "Backoff",
    "BranchOutcome",
    "CancelReason",
    "CancelToken",
    "Cancelled",
    "ChannelClosed",
    "CheckpointPolicy",
    "Chunk",
    "ChunkStream",
    "ChunkType",
    "Clock",
    "CompilationFailed",
    "CompiledGraph",
    "Completed",
    "DefinitionInvalid",
    "Failed",
    "FailureKind",
    "Fatal",
    "Graph",
    "GraphDefinition",
    "GraphError",
    "GraphInvalid",
    "HistoryEntry",
    "HistoryTree",
    "Interrupted",
    "Jitter",
    "Join",
    "Joined",
    "LastFailure",
    "LeaseOptions",
    "LeaseRenewer",
    "LoopRenewer",
    "ManualClock",
    "NodeContext",
    "NodeError",
    "NotAdmitted",
    "NotAdmittedReason",
    "Observer",
    "OutcomeStatus",
    "Partial",
    "Problem",
    "ProblemKind",
    "Question",
    "RecoverOptions",
    "RecoverReport",
    "Recovered",
    "RefusalCode",
    "Refused",
    "Retry",
    "RowMarks",
    "RunEvent",
    "RunOptions",
    "RunResult",
    "RunTelemetry",
    "Scheduler",
    "SchedulerHook",
    "SchedulerOptions",
    "SchedulerSnapshot",
    "Skipped",
    "StateError",
    "Stopped",
    "SystemClock",
    "Telemetry",
    "TenantSnapshot",
    "ThreadPath",
    "ThreadRenewer",
    "Threads",
    "Transient",
    "WakeOptions",
    "WakeReason",
    "WakeReport",
    "Woken",
    "all_of",
    "check_shape",
    "first_matching",
    "first_success",
    "problems_of",
    "quorum",
    "read_definition",
    "thread_path",
    "to_dot",
    "to_mermaid",
    "tree_of",
]
