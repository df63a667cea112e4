"""The graph engine: build a graph, compile it, run threads of it against a store.

    orders = Graph(Order, id="orders", version="1")
    threads = Threads(orders.compile(), store)
    result = await threads.run("order-1042", Order(amount=5))

Everything a caller needs is here; the modules below are the engine's own.
"""

from __future__ import annotations

from .cancellation import CancelReason, CancelToken
from .clock import Clock, ManualClock, SystemClock
from .compiled import CompiledGraph
from .driven import Skipped
from .errors import CompilationFailed, Fatal, GraphError, GraphInvalid, NodeError, StateError, Transient
from .graph import Graph
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
from .recovery import Recovered, RecoverOptions, RecoverReport
from .retry import Backoff, Jitter, Retry
from .thread_renewer import ThreadRenewer
from .threads import Threads
from .validate import Problem, ProblemKind
from .wake import WakeOptions, WakeReason, WakeReport, Woken

__all__ = [
    "Answer",
    "Backoff",
    "CancelReason",
    "CancelToken",
    "Cancelled",
    "CheckpointPolicy",
    "Clock",
    "CompilationFailed",
    "CompiledGraph",
    "Completed",
    "Failed",
    "FailureKind",
    "Fatal",
    "Graph",
    "GraphError",
    "GraphInvalid",
    "Interrupted",
    "Jitter",
    "LastFailure",
    "LeaseOptions",
    "LeaseRenewer",
    "LoopRenewer",
    "ManualClock",
    "NodeContext",
    "NodeError",
    "Problem",
    "ProblemKind",
    "RecoverOptions",
    "RecoverReport",
    "Recovered",
    "RefusalCode",
    "Refused",
    "Retry",
    "RowMarks",
    "RunOptions",
    "RunResult",
    "Skipped",
    "StateError",
    "Stopped",
    "SystemClock",
    "ThreadRenewer",
    "Threads",
    "Transient",
    "WakeOptions",
    "WakeReason",
    "WakeReport",
    "Woken",
]
