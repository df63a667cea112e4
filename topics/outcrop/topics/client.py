"""The producer's side: send commands to threads and await their outcomes.

Owns how an intent becomes a command (its ID, time, trace and JSON). Leaves bytes and their checks to
`codec`, sorting outcomes to `mailbox` and Kafka to `transport`. Invariant: the outcome topic is
followed from before the first send, so no outcome of this client's commands is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack, cast

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from .codec import DEFAULT_LIMIT, decode_command, decode_outcome, encode_command, problems
from .errors import (
    BadCommand,
    BadEvent,
    BadKind,
    BadOutcome,
    ClientClosed,
    MessageTooLarge,
    TopicsError,
)
from .events import Event, decode_event
from .handle import Handle
from .headers import command_headers
from .ids import new_command_id
from .keys import encode_key
from .mailbox import Mailbox
from .messages import (
    AnyCommand,
    Cancel,
    DecisionBody,
    End,
    GraphRef,
    Outcome,
    Rerun,
    Resume,
    Run,
    Signal,
    Update,
)
from .names import TopicNames
from .tracing import current_traceparent, is_traceparent
from .transport import Connection, Envelope, Reader, Sender

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from types import TracebackType
    from uuid import UUID

_LOG: Final = logging.getLogger(__name__)


class SendOptions(TypedDict, total=False):
    """What every command can be sent with.

    `command_id` names the intent: give it to send the same intent again, once more than once.
    `metadata` goes to the thread's checkpoints and the outcome, `reply_to` is a topic that gets
    a copy of the outcome, and `traceparent` takes the place of the current OpenTelemetry span.
    """

    command_id: UUID
    metadata: Mapping[str, str]
    reply_to: str
    traceparent: str


class ThreadsClient:
    """Starts, resumes, signals, ends and cancels threads, inside its `async with` block.

    Every verb returns when Kafka has the command. They raise `BadCommand` for what no worker would
    take and `MessageTooLarge` over `limit` bytes, both before anything is sent, and `SendFailed` when
    the broker doesn't confirm within `send_timeout`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        topics: TopicNames | None = None,
        security: Mapping[str, Any] | None = None,
        limit: int = DEFAULT_LIMIT,
        send_timeout: timedelta = timedelta(seconds=30),
        auto_create: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], UUID] = new_command_id,
    ) -> None:
        """Prepare a client.

        `security` is passed to aiokafka (`security_protocol`, `ssl_context`, `sasl_…`); `auto_create`
        is for the embedded broker, whose topics are made at their first use.
        """
        self._connection = Connection(bootstrap, dict(security or {}))
        self._topics = topics or TopicNames()
        self._limit = limit
        self._send_seconds = send_timeout.total_seconds()
        self._auto_create = auto_create
        self._now = now
        self._new_id = new_id
        self._running: _Running | None = None

    async def __aenter__(self) -> Self:
        """Connect; raises `BrokerUnreachable` or `TopicMissing`."""
        self._running = await _Running.open(
            self._connection, self._topics, self._limit, self._send_seconds, auto_create=self._auto_create
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is under way and disconnect; handles that still wait raise `ClientClosed`."""
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    async def run(
        self,
        thread_id: str,
        *,
        graph: str | GraphRef,
        state: object,
        deadline: datetime | None = None,
        **options: Unpack[SendOptions],
    ) -> Handle:
        """Start a new thread of `graph`; `state` is a pydantic model, a dataclass or JSON-like data."""
        reference = GraphRef(id=graph) if isinstance(graph, str) else graph
        return await self._send(
            Run, thread_id, options, graph=reference, state=_json(state), deadline=deadline
        )

    async def resume(
        self,
        thread_id: str,
        *,
        decision: DecisionBody | None = None,
        answers: Mapping[str, object] | None = None,
        value: object = None,
        boundary: str | None = None,
        expected_sequence: int | None = None,
        deadline: datetime | None = None,
        **options: Unpack[SendOptions],
    ) -> Handle:
        """Answer the boundary the thread waits at, or retry a failed or cancelled thread.

        Without a decision it is approved, by nobody. `boundary` and `expected_sequence` have the command
        refused as `stale` when the thread has moved on. `answers` are to the questions that an
        outcome tells, by ID; `value`, unless it is None, is to the only one that is open.
        """
        return await self._send(
            Resume,
            thread_id,
            options,
            decision=decision,
            answers=_json(dict(answers or {})),
            value=value,
            boundary=boundary,
            expected_sequence=expected_sequence,
            deadline=deadline,
        )

    async def signal(
        self,
        thread_id: str,
        event: str,
        payload: BaseModel | Mapping[str, Any] | None = None,
        **options: Unpack[SendOptions],
    ) -> Handle:
        """Answer an event wait; the payload's fields are laid over the state's."""
        return await self._send(Signal, thread_id, options, event=event, payload=_json(payload or {}))

    async def update(
        self,
        thread_id: str,
        values: BaseModel | Mapping[str, Any],
        *,
        as_node: str | None = None,
        at_sequence: int | None = None,
        expected_sequence: int | None = None,
        **options: Unpack[SendOptions],
    ) -> Handle:
        """Lay fields over the state, at the latest checkpoint or an earlier one; nothing runs."""
        return await self._send(
            Update,
            thread_id,
            options,
            values=_json(values),
            as_node=as_node,
            at_sequence=at_sequence,
            expected_sequence=expected_sequence,
        )

    async def rerun(
        self,
        thread_id: str,
        at_sequence: int,
        *,
        expected_sequence: int | None = None,
        deadline: datetime | None = None,
        **options: Unpack[SendOptions],
    ) -> Handle:
        """Go back to an earlier checkpoint and run what follows it again."""
        return await self._send(
            Rerun,
            thread_id,
            options,
            at_sequence=at_sequence,
            expected_sequence=expected_sequence,
            deadline=deadline,
        )

    async def end(self, thread_id: str, *, by: str | None = None, **options: Unpack[SendOptions]) -> Handle:
        """End the thread for good."""
        return await self._send(End, thread_id, options, by=by)

    async def cancel(
        self, thread_id: str, *, by: str | None = None, **options: Unpack[SendOptions]
    ) -> Handle:
        """Stop the thread's run in flight; it can be resumed."""
        return await self._send(Cancel, thread_id, options, by=by)

    async def send(self, command: AnyCommand, *, traceparent: str | None = None) -> Handle:
        """Send a command as it is."""
        running = self._open()
        value = _checked(command, self._limit)
        if traceparent is not None and not is_traceparent(traceparent):
            raise BadCommand(
                BadKind.INVALID, "traceparent: not of the W3C form", command.thread_id, command.command_id
            )
        slot = running.mailbox.slot(command.command_id)
        headers = command_headers(command, traceparent or current_traceparent())
        await running.sender.send(
            Envelope(self._topics.commands, command.thread_id, command.command_id, value, headers)
        )
        return Handle(command.thread_id, command.command_id, slot)

    async def outcomes(self) -> AsyncGenerator[Outcome]:
        """Follow the outcomes of all commands, whoever sent them, since this client connected.

        Goes on until it is closed. An outcome that this version can't read is left out and logged.
        """
        running = self._open()
        reader = Reader(self._connection, self._topics.outcomes)
        try:
            await reader.start_at(running.positions)
            while True:
                for value in await reader.read():
                    try:
                        yield decode_outcome(value)
                    except BadOutcome as error:
                        _LOG.warning("outcome.unreadable", extra={"command_id": str(error.command_id)})
        finally:
            await reader.close()

    @contextlib.asynccontextmanager
    async def events(self, thread_id: str | None = None) -> AsyncGenerator[AsyncGenerator[Event]]:
        """Follow what happens in runs from the beginning of the block on, of one thread or of all.

            async with client.events("order-1") as events:
                await client.run("order-1", …)
                async for event in events: …

        Workers publish events only if their setting `events` says so. One that this version can't
        read is left out and logged.
        """
        running = self._open()
        reader = Reader(self._connection, self._topics.events)
        try:
            await reader.start_at_end(await running.sender.partitions(self._topics.events))
            async with contextlib.aclosing(_events(reader, thread_id)) as events:
                yield events
        finally:
            await reader.close()

    async def _send(
        self, kind: type[AnyCommand], thread_id: str, options: SendOptions, **fields: object
    ) -> Handle:
        self._open()
        command_id = options.get("command_id") or self._new_id()
        try:
            command = kind.model_validate(
                {
                    "command_id": command_id,
                    "thread_id": thread_id,
                    "sent_at": self._now(),
                    "metadata": dict(options.get("metadata", {})),
                    "reply_to": options.get("reply_to"),
                    **fields,
                }
            )
        except ValidationError as error:
            raise BadCommand(BadKind.INVALID, problems(error), command_id=command_id) from None
        return await self.send(command, traceparent=options.get("traceparent"))

    def _open(self) -> _Running:
        if self._running is None:
            raise ClientClosed("the client isn't running: use it inside its `async with` block")
        return self._running


class _Running:
    """What an open client has: a producer, a reader of outcomes and the task between them."""

    def __init__(self, sender: Sender, reader: Reader, positions: Mapping[int, int]) -> None:
        self.sender = sender
        self.positions = positions
        self.mailbox = Mailbox()
        self._reader = reader
        self._pump = asyncio.create_task(self._deliver(), name="outcrop-outcomes")

    @classmethod
    async def open(
        cls, connection: Connection, topics: TopicNames, limit: int, seconds: float, *, auto_create: bool
    ) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            sender = Sender(connection, limit=limit, timeout=seconds)
            stack.push_async_callback(sender.close)
            await sender.start((topics.commands, topics.outcomes), auto_create=auto_create)
            reader = Reader(connection, topics.outcomes)
            stack.push_async_callback(reader.close)
            positions = await reader.start_at_end(await sender.partitions(topics.outcomes))
            stack.pop_all()
            return cls(sender, reader, positions)

    async def close(self) -> None:
        self.mailbox.close(ClientClosed("the client was closed before the outcome came"))
        self._pump.cancel()
        await asyncio.wait([self._pump])
        await self._reader.close()
        await self.sender.close()

    async def _deliver(self) -> None:
        try:
            while True:
                for value in await self._reader.read():
                    self.mailbox.deliver(value)
        except TopicsError as error:
            self.mailbox.close(error)


async def _events(reader: Reader, thread_id: str | None) -> AsyncGenerator[Event]:
    while True:
        for value in await reader.read():
            try:
                event = decode_event(value)
            except BadEvent as error:
                _LOG.warning("event.unreadable", extra={"reason": str(error)})
                continue
            if thread_id in (None, event.thread_id):
                yield event


def _json(value: object) -> JsonValue:
    try:
        return cast("JsonValue", to_jsonable_python(value, inf_nan_mode="constants"))
    except (PydanticSerializationError, ValueError) as error:
        raise BadCommand(BadKind.INVALID, f"the state or payload has no JSON form: {error}") from None


def _checked(command: AnyCommand, limit: int) -> bytes:
    """The command's bytes, read again as a worker will."""
    try:
        value = encode_command(command)
    except PydanticSerializationError:
        raise _unwritable(command) from None
    try:
        decode_command(encode_key(command.thread_id), value, limit=limit)
    except BadCommand as error:
        if error.kind is BadKind.TOO_LARGE:
            raise MessageTooLarge(f"thread '{command.thread_id}': {error.message}") from None
        if error.kind is BadKind.UNDECODABLE:
            raise _unwritable(command) from None
        raise
    return value


def _unwritable(command: AnyCommand) -> BadCommand:
    return BadCommand(
        BadKind.INVALID,
        "the command holds what JSON can't: NaN, an infinity, half a surrogate pair or endless nesting",
        command.thread_id,
        command.command_id,
    )
