"""From a message to the records that answer it.

Owns decoding, dead letters, outcomes with their copies, and what happens when our own code
fails on a message. Knows no consumer. Invariant: no message and no node makes `handle` raise, and none
is lost: it ends in an outcome, in a dead letter, in both, or is left unfinished.
"""

from __future__ import annotations

import random
import traceback
from typing import TYPE_CHECKING

import orjson

from outcrop.engine.cancellation import is_dropped, task_cancels
from outcrop.topics.codec import decode_command, encode_outcome
from outcrop.topics.errors import BadCommand
from outcrop.topics.headers import TRACEPARENT, TYPE, header, outcome_headers
from outcrop.topics.keys import encode_key
from outcrop.topics.messages import CommandType
from outcrop.topics.tracing import continued, is_traceparent

from .control import Handled, Unfinished
from .deadletter import dead_letter
from .decisions import Reason
from .errand import Desk, Errand, Settled
from .logs import EventLog
from .marks import Coordinates
from .metrics import Metrics
from .outcomes import Telling
from .pauses import Pauses
from .ports import Record
from .verbs import Verbs
from .watch import UNWATCHED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from outcrop.engine.clock import Clock
    from outcrop.stores.port import Store
    from outcrop.stores.record import Row
    from outcrop.topics.messages import AnyCommand, Outcome

    from .control import Control, MessageHandler
    from .handling import HandlingSettings
    from .ports import Message
    from .registry import Registry
    from .watch import Watch


def _ignore(_row: Row) -> None:
    """Nobody keeps due times here: the wake driver finds them."""


class Handler:
    """Carries out the messages of one worker.

    `topic_id` tells the ID of a command topic; `waiting` hears of each row that waits for a time;
    `watch` is who follows the runs.
    """

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        topic_id: Callable[[str], Awaitable[str]],
        settings: HandlingSettings,
        clock: Clock,
        metrics: Metrics | None = None,
        waiting: Callable[[Row], None] = _ignore,
        watch: Watch = UNWATCHED,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._topic_id = topic_id
        self._topic_ids: dict[str, str] = {}
        self._settings = settings
        self._clock = clock
        self._metrics = metrics if metrics is not None else Metrics()
        self._watch = watch
        self._uniform = uniform
        self._log = EventLog("handling")
        self._desk = Desk(
            store=store,
            registry=registry,
            clock=clock,
            settings=settings,
            metrics=self._metrics,
            log=self._log,
            waiting=waiting,
        )

    async def handle(self, message: Message, control: Control) -> Handled | Unfinished:
        """Run the message to its outcome, waiting out leases and store failures as needed."""
        started_at = self._clock.now()
        try:
            limit = self._settings.message_limit
            command = decode_command(message.key, message.value, message.headers, limit=limit)
        except BadCommand as bad:
            return Handled(self._bad(message, bad, started_at))
        pauses, cancels = Pauses(self._clock, control, self._uniform), task_cancels()
        for attempt in range(1, self._settings.attempts + 1):
            try:
                return await self._carry_out(message, command, control, pauses)
            except BaseException as error:  # our own bug, and a node's exit, must not stop the worker
                if is_dropped(error, cancels):
                    raise
                self._failed(command, error, attempt)
            if attempt < self._settings.attempts:
                await pauses.take()
        return Handled(self._given_up(message, command, started_at))

    async def _carry_out(
        self, message: Message, command: AnyCommand, control: Control, pauses: Pauses
    ) -> Handled | Unfinished:
        topic_id = await self._known_topic_id(message.partition.topic, control, pauses)
        if topic_id is None:
            return Unfinished()
        coordinates = Coordinates(topic_id, message.partition.number, message.offset)
        verbs = Verbs(command, coordinates, control, self._settings, self._watch)
        with continued(_trace(message)):
            settled = await Errand(self._desk, verbs, pauses).settle()
        if settled is None:
            return Unfinished()
        return Handled(self._records(message, settled, command.reply_to))

    async def _known_topic_id(self, topic: str, control: Control, pauses: Pauses) -> str | None:
        """The topic's ID; a broker that can't tell it now is asked again until the message goes."""
        while topic not in self._topic_ids:
            if control.stop.fired or control.abandon.fired:
                return None
            try:
                self._topic_ids[topic] = await self._topic_id(topic)
            except Exception as error:  # noqa: BLE001 - whatever the client raises, it isn't the message's fault
                self._log.warning("topic_id_unknown", topic=topic, error=type(error).__name__)
                await pauses.take()
        return self._topic_ids[topic]

    def _records(self, message: Message, settled: Settled, reply_to: str | None = None) -> list[Record]:
        records: list[Record] = []
        if settled.dead is not None:
            records.append(self._dead(message, *settled.dead, attempts=1))
        if settled.outcome is not None:
            records += self._outcome(message, settled.outcome, reply_to)
        return records

    def _outcome(self, message: Message, outcome: Outcome, reply_to: str | None) -> list[Record]:
        kind, status = outcome.command_type.value, outcome.status.value
        self._metrics.count("outcrop_outcomes_total", type=kind, status=status)
        topics = self._settings.topics
        trace = _trace(message)
        record = Record(
            topics.outcomes,
            encode_key(outcome.thread_id),
            encode_outcome(outcome),
            outcome_headers(trace),
        )
        own = (topics.commands, topics.outcomes, topics.dead, topics.events, message.partition.topic)
        if reply_to is None or reply_to in own:  # a copy there would be taken for another message
            return [record]
        return [record, Record(reply_to, record.key, record.value, record.headers)]

    def _bad(self, message: Message, bad: BadCommand, started_at: datetime) -> Sequence[Record]:
        self._log.warning(
            "bad_command",
            kind=bad.kind.value,
            topic=message.partition.topic,
            partition=message.partition.number,
            offset=message.offset,
        )
        letter = self._dead(message, bad.kind.value, bad.message, attempts=1)
        command_type = _told_type(message)
        if bad.thread_id is None or bad.command_id is None or command_type is None:
            return [letter]
        telling = Telling(
            command_id=bad.command_id,
            command_type=command_type,
            thread_id=bad.thread_id,
            worker=self._settings.worker,
            started_at=started_at,
            finished_at=self._clock.now(),
            state_cap=self._settings.state_cap,
        )
        return [letter, *self._outcome(message, telling.refused(bad.kind.value, bad.message), None)]

    def _given_up(self, message: Message, command: AnyCommand, started_at: datetime) -> Sequence[Record]:
        attempts = self._settings.attempts
        text = f"this worker's own code failed on the command {attempts} time(s); its log says where"
        telling = Telling(
            command_id=command.command_id,
            command_type=command.type,
            thread_id=command.thread_id,
            worker=self._settings.worker,
            started_at=started_at,
            finished_at=self._clock.now(),
            state_cap=self._settings.state_cap,
        )
        letter = self._dead(message, Reason.HANDLER_ERROR, text, attempts=attempts)
        outcome = telling.refused(Reason.HANDLER_ERROR, text)
        return [letter, *self._outcome(message, outcome, command.reply_to)]

    def _dead(self, message: Message, kind: str, error: str, *, attempts: int) -> Record:
        self._metrics.count("outcrop_dead_letters_total", kind=kind)
        return dead_letter(
            message,
            topic=self._settings.topics.dead,
            kind=kind,
            error=error,
            attempts=attempts,
            failed_at=self._clock.now(),
            limit=self._settings.dead_letter_limit,
        )

    def _failed(self, command: AnyCommand, error: BaseException, attempt: int) -> None:
        """Say where our code failed; the error's own text may hold a state."""
        frames = traceback.extract_tb(error.__traceback__)
        self._log.error(
            "handler_failed",
            thread=command.thread_id,
            command=str(command.command_id),
            error=type(error).__name__,
            where=f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None,
            attempt=attempt,
        )


def _trace(message: Message) -> str | None:
    """The trace that the message belongs to, if it tells one."""
    told = (header(message.headers, TRACEPARENT) or b"").decode(errors="replace")
    return told if is_traceparent(told) else None


def _told_type(message: Message) -> CommandType | None:
    """The command type that a message tells although it is no command."""
    told = header(message.headers, TYPE)
    try:
        if told is not None:
            return CommandType(told.decode(errors="replace"))
        body = orjson.loads(message.value or b"")
        return CommandType(body["type"]) if isinstance(body, dict) and "type" in body else None
    except (ValueError, TypeError):
        return None


if TYPE_CHECKING:
    _conforms: type[MessageHandler] = Handler
