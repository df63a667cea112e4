"""`outcrop send`: put a command on the topic, and with `--wait` show its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.topics.messages import DecisionBody, GraphRef

from .answers import exit_for, outcome_document, outcome_fields
from .configuration import BROKER, add_settings, settings_of
from .exits import Exit, UsageError
from .options import (
    Parser,
    add_command,
    add_json,
    command_id,
    graph_ref,
    instant,
    json_object,
    json_pair,
    json_source,
    seconds,
    sequence,
    text_pair,
)
from .terminal import Screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable

    from outcrop.topics.client import SendOptions, ThreadsClient
    from outcrop.topics.handle import Handle

    from .options import Subparsers

_WAIT_SECONDS = 60.0
_RUN_EXAMPLES = """
outcrop send run order-1042 --graph orders --state '{"amount": 250}' --wait
outcrop send run order-1043 --graph orders@1 --state @order.json --metadata tenant=acme
"""
_RESUME_EXAMPLES = """
outcrop send resume order-1042 --decision approve --by dana --wait
outcrop send resume order-1042 --decision reject --by dana --boundary approve
outcrop send resume order-1042 --decision approve --override 'amount=200'
outcrop send resume order-1042 --reply 'colour="red"' --wait
"""
_SIGNAL_EXAMPLES = """
outcrop send signal order-1042 payment.settled --payload '{"settled": true}' --wait
"""
_UPDATE_EXAMPLES = """
outcrop send update order-1042 --set amount=200 --wait
outcrop send update order-1042 --set amount=200 --as-node quote --at-sequence 3
"""
_RERUN_EXAMPLES = "outcrop send rerun order-1042 --at-sequence 3 --wait"


def add_commands(commands: Subparsers) -> None:
    """`send run|resume|signal|update|rerun|end|cancel`."""
    group = commands.add_parser("send", help="send a command to a thread")
    verbs = group.add_subparsers(metavar="VERB", required=True)
    _add_run(verbs)
    _add_resume(verbs)
    _add_signal(verbs)
    _add_update(verbs)
    _add_rerun(verbs)
    _add_end(verbs)
    _add_cancel(verbs)


def _add_run(verbs: Subparsers) -> None:
    run = add_command(verbs, "run", "start a new thread", examples=_RUN_EXAMPLES)
    run.add_argument(
        "--graph", type=graph_ref, required=True, metavar="ID[@VERSION]", help="the graph to run"
    )
    run.add_argument(
        "--state", type=json_source, required=True, metavar="JSON|@FILE|-", help="the state to start with"
    )
    _add_deadline(run)
    _finish(run, _run)


def _add_resume(verbs: Subparsers) -> None:
    resume = add_command(
        verbs,
        "resume",
        "answer the boundary a thread waits at, or retry a failed or cancelled thread",
        examples=_RESUME_EXAMPLES,
        details="Without --decision it is approved, by nobody.",
    )
    resume.add_argument("--decision", choices=("approve", "reject"), help="the answer")
    resume.add_argument("--by", metavar="NAME", help="who decided")
    resume.add_argument(
        "--override",
        action="append",
        default=[],
        type=json_pair,
        metavar="FIELD=JSON",
        help="replace a top-level field of the state (repeat for several)",
    )
    resume.add_argument(
        "--reply",
        action="append",
        default=[],
        type=json_pair,
        metavar="ID=JSON",
        help="the answer to a question of the thread's nodes (repeat for several)",
    )
    resume.add_argument("--boundary", metavar="NODE", help="only if the thread waits there")
    _add_expected(resume)
    _add_deadline(resume)
    _finish(resume, _resume)


def _add_signal(verbs: Subparsers) -> None:
    signal = add_command(verbs, "signal", "answer an event wait", examples=_SIGNAL_EXAMPLES)
    _finish(signal, _signal)
    signal.add_argument("event", metavar="EVENT", help="the type of the event")
    signal.add_argument(
        "--payload", type=json_object, metavar="JSON|@FILE|-", help="fields laid over the state's"
    )


def _add_update(verbs: Subparsers) -> None:
    update = add_command(
        verbs,
        "update",
        "replace fields of a thread's state, at its latest checkpoint or an earlier one",
        examples=_UPDATE_EXAMPLES,
        details="No node runs: a resume goes on from there.",
    )
    update.add_argument(
        "--set",
        action="append",
        default=[],
        type=json_pair,
        dest="values",
        metavar="FIELD=JSON",
        help="a top-level field of the state (repeat for several)",
    )
    update.add_argument("--as-node", metavar="NODE", help="as if this node had just left the state")
    update.add_argument("--at-sequence", type=sequence, metavar="N", help="the checkpoint to go back to")
    _add_expected(update)
    _finish(update, _update)


def _add_rerun(verbs: Subparsers) -> None:
    rerun = add_command(
        verbs,
        "rerun",
        "go back to an earlier checkpoint and run what follows it again",
        examples=_RERUN_EXAMPLES,
    )
    rerun.add_argument(
        "--at-sequence", type=sequence, required=True, metavar="N", help="the checkpoint to go back to"
    )
    _add_expected(rerun)
    _add_deadline(rerun)
    _finish(rerun, _rerun)


def _add_end(verbs: Subparsers) -> None:
    end = add_command(verbs, "end", "end a thread for good", examples="outcrop send end order-1042 --by dana")
    end.add_argument("--by", metavar="NAME", help="who ended it")
    _finish(end, _end)


def _add_cancel(verbs: Subparsers) -> None:
    cancel = add_command(
        verbs,
        "cancel",
        "stop a thread's run in flight; the thread can be resumed",
        examples="outcrop send cancel order-1042 --by dana --wait",
    )
    cancel.add_argument("--by", metavar="NAME", help="who cancelled it")
    _finish(cancel, _cancel)


def _add_expected(parser: Parser) -> None:
    parser.add_argument("--expected-sequence", type=sequence, metavar="N", help="only if that is the latest")


def _add_deadline(parser: Parser) -> None:
    parser.add_argument("--deadline", type=instant, metavar="TIME", help="cancel the run at this time")


def _finish(parser: Parser, verb: Callable[[ThreadsClient, Namespace], Awaitable[Handle]]) -> None:
    """Add what every verb takes, and what it does."""
    parser.add_argument("thread_id", metavar="THREAD")
    parser.add_argument(
        "--command-id",
        type=command_id,
        metavar="UUID",
        help="the ID of this intent, to send it again without doing it twice (default: a new one)",
    )
    parser.add_argument(
        "--metadata",
        action="append",
        default=[],
        type=text_pair,
        metavar="KEY=VALUE",
        help="metadata for the thread's checkpoints (repeat for several)",
    )
    parser.add_argument("--reply-to", metavar="TOPIC", help="a topic that gets a copy of the outcome")
    parser.add_argument("--wait", action="store_true", help="wait for the outcome and show it")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=_WAIT_SECONDS,
        metavar="SECONDS",
        help=f"how long to wait at most (default {_WAIT_SECONDS:g})",
    )
    add_settings(parser, BROKER)
    add_json(parser)
    parser.set_defaults(act=_send, verb=verb)


async def _send(arguments: Namespace) -> Exit:
    from outcrop.topics.client import ThreadsClient  # noqa: PLC0415 - needs the extra `kafka`

    settings = settings_of(arguments)
    screen = Screen(as_json=arguments.as_json)
    async with ThreadsClient(settings.bootstrap, topics=settings.topics) as client:
        handle: Handle = await arguments.verb(client, arguments)
        outcome = await handle.outcome(timeout=arguments.timeout) if arguments.wait else None
    if screen.as_json:
        screen.document(
            {
                "thread_id": handle.thread_id,
                "command_id": str(handle.command_id),
                "outcome": None if outcome is None else outcome_document(outcome),
            }
        )
    elif outcome is None:
        screen.line(f"sent to {handle.thread_id} as command {handle.command_id}")
    else:
        screen.fields(outcome_fields(outcome))
    return Exit.OK if outcome is None else exit_for(outcome)


async def _run(client: ThreadsClient, arguments: Namespace) -> Handle:
    graph_id, version = arguments.graph
    return await client.run(
        arguments.thread_id,
        graph=GraphRef(id=graph_id, version=version),
        state=arguments.state,
        deadline=arguments.deadline,
        **_options(arguments),
    )


async def _resume(client: ThreadsClient, arguments: Namespace) -> Handle:
    return await client.resume(
        arguments.thread_id,
        decision=_decision(arguments),
        answers=dict(arguments.reply),
        boundary=arguments.boundary,
        expected_sequence=arguments.expected_sequence,
        deadline=arguments.deadline,
        **_options(arguments),
    )


async def _signal(client: ThreadsClient, arguments: Namespace) -> Handle:
    return await client.signal(arguments.thread_id, arguments.event, arguments.payload, **_options(arguments))


async def _update(client: ThreadsClient, arguments: Namespace) -> Handle:
    return await client.update(
        arguments.thread_id,
        dict(arguments.values),
        as_node=arguments.as_node,
        at_sequence=arguments.at_sequence,
        expected_sequence=arguments.expected_sequence,
        **_options(arguments),
    )


async def _rerun(client: ThreadsClient, arguments: Namespace) -> Handle:
    return await client.rerun(
        arguments.thread_id,
        arguments.at_sequence,
        expected_sequence=arguments.expected_sequence,
        deadline=arguments.deadline,
        **_options(arguments),
    )


async def _end(client: ThreadsClient, arguments: Namespace) -> Handle:
    return await client.end(arguments.thread_id, by=arguments.by, **_options(arguments))


async def _cancel(client: ThreadsClient, arguments: Namespace) -> Handle:
    return await client.cancel(arguments.thread_id, by=arguments.by, **_options(arguments))


def _decision(arguments: Namespace) -> DecisionBody | None:
    if arguments.decision is None:
        if arguments.by is not None or arguments.override:
            raise UsageError("--by and --override belong to a decision: add --decision approve or reject")
        return None
    return DecisionBody(
        approved=arguments.decision == "approve",
        by=arguments.by or "",
        overrides=dict(arguments.override),
    )


def _options(arguments: Namespace) -> SendOptions:
    options: SendOptions = {"metadata": dict(arguments.metadata)}
    if arguments.command_id is not None:
        options["command_id"] = arguments.command_id
    if arguments.reply_to is not None:
        options["reply_to"] = arguments.reply_to
    return options
