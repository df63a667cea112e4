"""The twin of strata-peer on this engine: the same command line, the same JSON.

`answer(argv)` runs one command in this process; `python -m support.twin ARGS` runs one as
a process (for `crash`, which aborts).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelToken,
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    LeaseOptions,
    RefusalCode,
    Refused,
    RunOptions,
    SystemClock,
    Threads,
)
from outcrop.engine.composites import Group
from outcrop.engine.recovery import RecoverOptions
from outcrop.engine.wake import WakeOptions
from outcrop.stores import Acquired, Lease, NotLatest, Wait, open_store
from support.twins import State, Variant, twin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outcrop.engine import CompiledGraph, NodeContext, RunResult
    from outcrop.engine.composites import Composite
    from outcrop.stores import Store

GRAPH_COMMANDS = {"run", "resume", "signal", "wake-due", "recover", "recover-stale", "end", "crash"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("command")
    for name in ("storage", "thread", "graph", "graph-id", "graph-version", "by", "event", "now", "lease"):
        parser.add_argument(f"--{name}")
    for name in ("state", "override"):
        parser.add_argument(f"--{name}", type=json.loads, default={})
    for name in ("every-node", "no-timeout-route", "approve", "reject", "due", "no-match-graph"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in (
        "timeout-ms",
        "stale-after-ms",
        "max-recoveries",
        "limit",
        "ttl-ms",
        "token",
        "deadline-ms",
        "max-hops",
        "run-max-hops",
    ):
        parser.add_argument(f"--{name}", type=int)
    for name in ("metadata", "field-override"):
        parser.add_argument(f"--{name}", action="append", default=[], type=lambda pair: pair.split("=", 1))
    parser.add_argument("--outer", action="append", default=[], type=_level)
    for name in ("run-id", "owner", "at", "cancel-at", "crash-at"):
        parser.add_argument(f"--{name}")
    return parser


def _level(text: str) -> tuple[str, Any]:
    """An override of an outer level; the outermost is `/`."""
    path, _, overrides = text.partition("=")
    return path.strip("/"), json.loads(overrides)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _graph(args: argparse.Namespace, cancel: CancelToken) -> CompiledGraph[State]:
    milliseconds = args.timeout_ms
    graph = twin(
        args.graph,
        Variant(
            graph_id=args.graph_id,
            graph_version=args.graph_version,
            every_node=args.every_node or args.command == "crash",
            timeout=None if milliseconds is None else timedelta(milliseconds=milliseconds),
            timeout_route=not args.no_timeout_route,
            max_hops=args.max_hops,
        ),
    )
    return _rigged(graph, crash_at=args.at or args.crash_at, cancel_at=args.cancel_at, cancel=cancel)


def _rigged(
    graph: CompiledGraph[State], *, crash_at: str | None, cancel_at: str | None, cancel: CancelToken
) -> CompiledGraph[State]:
    """The same graph, aborting the process or cancelling the run where a node starts."""
    if crash_at is None and cancel_at is None:
        return graph
    started = Counter[str]()

    def reached(place: str | None, ctx: NodeContext) -> bool:
        if place is None:
            return False
        if place.isdigit():
            return started["any"] == int(place)
        name, _, visit = place.partition("#")
        return name in {ctx.node, ctx.node_path} and started[name] == int(visit or 1)

    def rig(handler: Any) -> Any:
        async def rigged(state: State, ctx: NodeContext) -> State | None:
            started.update({"any", ctx.node, ctx.node_path})
            if reached(crash_at, ctx):
                os.abort()
            if reached(cancel_at, ctx):
                cancel.fire()
                await asyncio.Event().wait()
            result: State | None = await handler(state, ctx)
            return result

        return rigged

    return _with_handlers(graph, rig)


def _with_handlers(graph: CompiledGraph[State], rig: Callable[[Any], Any]) -> CompiledGraph[State]:
    """The same graph with every handler wrapped, those of branches and child graphs too."""

    def inside(composite: Composite[State]) -> Composite[State]:
        if isinstance(composite, Group):
            branches = tuple(replace(branch, handler=rig(branch.handler)) for branch in composite.branches)
            return replace(composite, branches=branches)
        return replace(composite, child=_with_handlers(composite.child, rig))

    nodes = {
        name: spec if name in graph.composites else replace(spec, handler=rig(spec.handler))
        for name, spec in graph.nodes.items()
    }
    composites = {name: inside(composite) for name, composite in graph.composites.items()}
    return replace(graph, nodes=nodes, composites=composites)


def _options(args: argparse.Namespace, cancel: CancelToken) -> RunOptions:
    lease = None
    if args.lease:
        owner, milliseconds = args.lease.rsplit(":", 1)
        lease = LeaseOptions(owner, timedelta(milliseconds=int(milliseconds)))
    deadline = None
    if args.deadline_ms is not None:
        deadline = datetime.now(UTC) + timedelta(milliseconds=args.deadline_ms)
    metadata = {} if args.command in {"wake-due", "recover-stale"} else dict(args.metadata)
    return RunOptions(
        metadata=metadata,
        lease=lease,
        run_id=args.run_id,
        cancellation=cancel,
        deadline=deadline,
        max_node_hops=args.run_max_hops,
    )


def _wait(wait: Wait | None) -> Any:
    return wait and {"kind": wait.kind.value, "event_type": wait.event_type, "wake_at": wait.wake_at}


def _refusal(result: Refused) -> dict[str, Any]:
    kind = "node_not_found" if result.code is RefusalCode.NO_THREAD else "execution_aborted"
    error = {"kind": kind, "message": result.message}
    return {"kind": "failed", "reason": kind, "state": None, "error": error}


def _failure(result: Failed) -> dict[str, Any]:
    if result.kind is FailureKind.HOP_LIMIT:
        return _hop_limit(result)
    error: dict[str, Any] = {"kind": result.kind.value, "message": result.message}
    if result.node is not None:
        error["node"] = result.node
    if result.attempts is not None:
        error["attempts"] = result.attempts
    return {"kind": "failed", "reason": result.kind.value, "state": None, "error": error}


def _hop_limit(result: Failed) -> dict[str, Any]:
    """A hop limit in the peer's words; the row's are the same on both sides."""
    kind, hops = "hop_limit_exceeded", result.hops or 0
    message = f"hop limit of {result.limit}: '{result.node}' would be hop {hops + 1}"
    error = {"kind": kind, "message": message, "node": result.node, "hops": hops, "limit": result.limit}
    return {"kind": "failed", "reason": kind, "state": None, "error": error}


def _result(result: RunResult[State]) -> dict[str, Any]:
    match result:
        case Completed():
            body: dict[str, Any] = {"kind": "completed", "reason": None, "state": result.state}
        case Interrupted():
            body = {
                "kind": "interrupted",
                "reason": result.wait.kind.value if result.wait else "human",
                "state": result.state,
                "suspended_node": result.suspended_node,
                "next_node": result.next_node or "",
                "waiting_at": list(result.waiting_at),
                "wait": _wait(result.wait),
            }
        case Failed():
            body = _failure(result)
        case Refused():
            body = _refusal(result)
        case Cancelled():
            body = {
                "kind": "cancelled",
                "reason": result.reason.value,
                "state": result.state,
                "node": result.node,
                "stopped_at": list(result.stopped_at),
            }
        case _:
            raise AssertionError(result)
    return body | {"thread_id": result.thread_id}


async def _latest(store: Store, thread: str) -> dict[str, Any] | None:
    row = await store.load(thread)
    if row is None:
        return None
    return {
        "sequence": row.sequence,
        "status": row.checkpoint.status.value,
        "state": row.checkpoint.state.value,
        "schema_version": row.checkpoint.schema_version,
    }


async def _driven(
    args: argparse.Namespace, threads: Threads[State], store: Store, options: RunOptions
) -> Any:
    match_graph = not args.no_match_graph
    if args.command == "wake-due":
        woken = await threads.wake_due(
            WakeOptions(
                options=options,
                now=_time(args.now),
                metadata=dict(args.metadata),
                match_graph=match_graph,
                limit=args.limit or 100,
            )
        )
        done = [
            {
                "thread_id": item.thread_id,
                "reason": item.reason,
                "result": _result(item.result) | {"latest": await _latest(store, item.thread_id)},
            }
            for item in woken.woken
        ]
        skipped = [{"thread_id": item.thread_id, "reason": item.reason} for item in woken.skipped]
        return {"kind": "woken", "woken": done, "skipped": skipped}
    stale = None if args.stale_after_ms is None else timedelta(milliseconds=args.stale_after_ms)
    report = await threads.recover_stale(
        RecoverOptions(
            options=options,
            now=_time(args.now),
            stale_after=stale,
            max_recoveries=args.max_recoveries,
            metadata=dict(args.metadata),
            match_graph=match_graph,
            limit=args.limit or 100,
        )
    )
    recovered: list[dict[str, Any]] = [
        {
            "thread_id": item.thread_id,
            "at": list(item.at),
            "recoveries": item.recoveries,
            "result": _result(item.result) | {"latest": await _latest(store, item.thread_id)},
        }
        for item in report.recovered
    ]
    skipped = [{"thread_id": item.thread_id, "reason": item.reason} for item in report.skipped]
    return {"kind": "recovered", "recovered": recovered, "skipped": skipped}


async def _verb(args: argparse.Namespace, threads: Threads[State], options: RunOptions) -> RunResult[State]:
    thread = args.thread
    match args.command:
        case "run" | "crash":
            return await threads.run(thread, args.state, options)
        case "resume" if args.due:
            return await threads.wake(thread, options, now=_time(args.now))
        case "resume":
            answer = Answer(
                approved=not args.reject,
                by=args.by or "",
                overrides=args.override,
                text_overrides=dict(args.field_override),
                levels=dict(args.outer),
            )
            return await threads.resume(thread, answer, options)
        case "signal":
            return await threads.signal(thread, args.event, args.override, options)
        case "recover":
            return await threads.recover(thread, options)
        case "end":
            return await threads.end(thread, by=args.by, options=options)
        case other:
            raise AssertionError(other)


async def _leases(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    if args.command == "lease-acquire":
        taken = await store.acquire_lease(args.thread, args.owner, timedelta(milliseconds=args.ttl_ms))
        assert not isinstance(taken, NotLatest)
        lease = {"owner": taken.lease.owner, "thread_id": args.thread, "token": taken.lease.token}
        return {"acquired": isinstance(taken, Acquired), "lease": lease}
    held = Lease(thread_id=args.thread, owner="", token=args.token, expires_at=datetime.now(UTC))
    return {"released": await store.release_lease(held)}


async def answer(argv: Sequence[str]) -> dict[str, Any]:
    """What the command comes to, as the peer would print it."""
    args = _parser().parse_args([str(word) for word in argv])
    store = await open_store(args.storage)
    try:
        if args.command not in GRAPH_COMMANDS:
            return await _leases(args, store)
        cancel = CancelToken()
        options = _options(args, cancel)
        threads = Threads(_graph(args, cancel), store, clock=SystemClock())
        if args.command in {"wake-due", "recover-stale"}:
            driven: dict[str, Any] = await _driven(args, threads, store, options)
            return driven
        result = await _verb(args, threads, options)
        return _result(result) | {"latest": await _latest(store, args.thread)}
    finally:
        await store.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(answer(sys.argv[1:])), sort_keys=True))
