"""Publishing until the brokers have it.

At least once: a record whose delivery is unknown is sent again. One that can never be
delivered (over the broker's limit, a topic that doesn't exist) becomes a dead letter of the
message that it answers, without a value, so that no message holds its partition for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcrop.engine.clock import sleep
from outcrop.topics.headers import dead_letter_headers

from .errors import PublishFailed
from .logs import EventLog
from .ports import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outcrop.engine.cancellation import CancelToken
    from outcrop.engine.clock import Clock

    from .errors import Undelivered
    from .metrics import Metrics
    from .ports import Message, Outbox

UNDELIVERABLE: Final = "undeliverable"
"""The kind of a dead letter for an answer that no topic takes."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_log = EventLog("publisher")


class Publisher:
    """Sends records through an outbox, as often as it takes."""

    def __init__(self, outbox: Outbox, *, dead: str, clock: Clock, metrics: Metrics) -> None:
        self._outbox = outbox
        self._dead = dead
        self._clock = clock
        self._metrics = metrics

    async def publish(self, records: Sequence[Record], *, source: Message, unless: CancelToken) -> None:
        """Return when all records are delivered, or `unless` has fired after a failure.

        `source` is the message that they answer.
        """
        pause = _FIRST_PAUSE
        while records:
            try:
                await self._outbox.publish(records)
            except PublishFailed as error:
                self._report(error.undelivered)
                records = tuple(self._again(error.undelivered, source))
            else:
                return
            if unless.fired:
                return
            await sleep(self._clock, pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _again(self, undelivered: Iterable[Undelivered], source: Message) -> Iterable[Record]:
        for failure in undelivered:
            record = failure.record
            if not failure.permanent:
                yield record
            elif record.topic != self._dead:
                yield self._dead_letter(record, failure.reason, source)
            else:  # the topic takes less than `dead_letter_limit`
                yield Record(self._dead, record.key, None, record.headers)

    def _dead_letter(self, record: Record, reason: str, source: Message) -> Record:
        self._metrics.count("outcrop_dead_letters_total", kind=UNDELIVERABLE)
        headers = dead_letter_headers(
            record.headers,
            topic=source.partition.topic,
            partition=source.partition.number,
            offset=source.offset,
            kind=UNDELIVERABLE,
            error=f"a record for the topic {record.topic}: {reason}",
            attempts=1,
            failed_at=self._clock.now(),
        )
        return Record(self._dead, record.key, None, headers)

    def _report(self, undelivered: Iterable[Undelivered]) -> None:
        for failure in undelivered:
            self._metrics.count("outcrop_publish_failures_total", permanent=str(failure.permanent).lower())
            _log.warning(
                "publish.failed",
                topic=failure.record.topic,
                reason=failure.reason,
                permanent=failure.permanent,
            )
