"""The poll thread: the only one that touches the consumer.

It polls all the time, whatever the event loop does, so that no run costs the membership. The
loop asks for things through a queue; news go to the loop in the order in which they came. A
revocation waits here, bounded, for the loop's handover, then commits and lets go. Requests
made for an earlier stay of a partition are dropped: they would move its offset backwards.

confluent-kafka 2.16 aborts the process when a callback that called the consumer itself is
followed by another callback in the same `poll` (its call state is gone by then). So those callbacks
end by raising `_Yield`, which makes `poll` return at once, and before `close`, which no callback
can leave, all that needs the consumer is done outside.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol

from outcrop.topics.errors import MissingExtra

from .client_values import client_offsets, client_partitions, reason_of, received
from .errors import CommitRefused, LogFailed, OffsetLost
from .logs import EventLog, client_logger
from .places import starting_positions
from .ports import Assigned, Message, Partition, Position

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException
except ImportError:  # pragma: no cover - the packaging tests install without extras
    raise MissingExtra("confluent-kafka", "kafka") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from confluent_kafka import Message as KafkaMessage
    from confluent_kafka import TopicPartition

    from .client_config import Config

_POLL: Final = 0.05
_BATCH: Final = 500
_OUTSTANDING: Final = 2_000  # messages handed over that the loop has not taken yet
_FOR_GOOD: Final = frozenset(
    (
        KafkaError._FATAL,  # noqa: SLF001 - the client's own name; such a message isn't `fatal()`
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
)
"""What polling and waiting don't end, such as another member with the same `group_instance_id`."""
_log = EventLog("consumer")


class _Yield(Exception):
    """Raised by a callback that called the consumer, once it is done."""


class Ears(Protocol):
    """The loop's side; every method is called on the event loop."""

    def assigned(self, assigned: Assigned, stays: Mapping[Partition, int]) -> None:
        """Partitions came, each for the stay of that number."""
        ...

    def messages(self, messages: Sequence[Message]) -> None:
        """Messages came."""
        ...

    async def revoked(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        """Partitions are about to go; say what to commit."""
        ...

    def lost(self, partitions: Collection[Partition]) -> None:
        """Partitions are gone."""
        ...

    def failed(self, error: Exception) -> None:
        """The thread has ended, and this is why."""
        ...


class Poller:
    """Owns the consumer, from `start` until `close`."""

    def __init__(
        self,
        config: Config,
        topics: Sequence[str],
        ears: Ears,
        loop: asyncio.AbstractEventLoop,
        *,
        patience: float,
        eager: bool,
    ) -> None:
        self._config = config
        self._topics = list(topics)
        self._ears = ears
        self._loop = loop
        self._patience = patience
        self._eager = eager
        self._requests: SimpleQueue[Callable[[Consumer], None]] = SimpleQueue()
        self._stays: dict[Partition, int] = {}  # what is owned, and the how-manieth stay that is
        self._count = 0
        self._batch: list[Message] = []
        self._paused: set[Partition] = set()  # because the loop asked
        self._stalled = False  # all of it, because the loop takes nothing
        self._outstanding = 0
        self._lock = Lock()
        self._commits: list[Future[None]] = []  # sent, in order
        self._unanswered: set[Future[None]] = set()  # asked for
        self._over = False
        self._closing = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._thread = Thread(target=self._run, name="outcrop-poll", daemon=True)
        self.member = False

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    async def close(self) -> None:
        """Hand over what is owned, leave the group and end the thread; bounded, if no broker answers."""
        self._closing = True
        ended, _ = await asyncio.wait((self._ended,), timeout=self._patience)
        if not ended:
            _log.error("close.unanswered")

    def pause(self, partitions: frozenset[Partition]) -> None:
        """Stop fetching from partitions soon."""
        self._requests.put(lambda consumer: self._set_paused(consumer, self._paused | partitions))

    def resume(self, partitions: frozenset[Partition]) -> None:
        """Fetch from partitions again."""
        self._requests.put(lambda consumer: self._set_paused(consumer, self._paused - partitions))

    def commit(self, positions: Mapping[Partition, Position], stays: Mapping[Partition, int]) -> Future[None]:
        """Commit positions of those stays of their partitions."""
        done: Future[None] = Future()
        with self._lock:
            if self._over:
                done.set_exception(CommitRefused("the log is closed"))
                return done
            self._unanswered.add(done)
        done.add_done_callback(self._unanswered.discard)
        self._requests.put(lambda consumer: self._commit(consumer, positions, stays, done))
        return done

    # Everything below runs on the poll thread.

    def _run(self) -> None:
        try:
            consumer = Consumer(
                self._config | {"on_commit": self._on_commit, "error_cb": self._on_error},
                logger=client_logger(),
            )
            try:
                consumer.subscribe(
                    self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
                while not self._closing:
                    self._turn(consumer)
            finally:
                self._leave(consumer)
        except Exception as error:  # noqa: BLE001 - whatever ends the thread must reach the loop
            self._fail(error)
        finally:
            self.member = False
            self._refuse_all()
            self._tell(lambda: None if self._ended.done() else self._ended.set_result(None))

    def _turn(self, consumer: Consumer) -> None:
        self._serve(consumer)
        self._regulate(consumer)
        try:
            message = consumer.poll(_POLL)
            while message is not None:
                self._take(message)
                if len(self._batch) >= _BATCH:
                    break
                message = consumer.poll(0)
        except _Yield:
            pass
        self._flush()

    def _leave(self, consumer: Consumer) -> None:
        """Hand everything over and leave the group."""
        self._closing = True
        try:
            self._flush()
            self._hand_over(consumer, list(self._stays))
        finally:
            consumer.close()

    def _take(self, message: KafkaMessage) -> None:
        if self._closing:  # partitions that come now are assigned by the client, from nowhere
            return
        error = message.error()
        if error is None:
            self._batch.append(received(message))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - the client's own name
            where = Partition(message.topic() or "?", message.partition() or 0)
            raise OffsetLost(where, str(error.str()))
        elif error.fatal() or error.code() in _FOR_GOOD:
            raise LogFailed(f"Kafka refuses this member: {error.str()}")
        else:
            _log.warning("consumer.error", reason=str(error.str()), name=error.name())

    def _flush(self) -> None:
        """Hand the batch over; before any news about partitions, so that it keeps its stay."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        with self._lock:
            self._outstanding += len(batch)
        self._tell(lambda: self._hand(batch))

    def _hand(self, batch: Sequence[Message]) -> None:
        """Give a batch to the listener (on the loop)."""
        with self._lock:
            self._outstanding -= len(batch)
        self._ears.messages(batch)

    def _serve(self, consumer: Consumer, timeout: float = 0) -> None:
        """Do what the loop asked for; with a timeout, wait that long for a first request."""
        try:
            while True:
                (self._requests.get(timeout=timeout) if timeout else self._requests.get_nowait())(consumer)
                timeout = 0
        except Empty:
            return

    def _regulate(self, consumer: Consumer) -> None:
        """Fetch nothing while the loop takes nothing; polling goes on."""
        with self._lock:
            behind = self._outstanding
        stalled = behind >= _OUTSTANDING or (self._stalled and behind > 0)
        if stalled == self._stalled:
            return
        self._stalled = stalled
        open_ones = self._stays.keys() - self._paused
        (consumer.pause if stalled else consumer.resume)(client_partitions(open_ones))

    def _set_paused(self, consumer: Consumer, wanted: set[Partition] | frozenset[Partition]) -> None:
        wanted = set(wanted & self._stays.keys())
        if not self._stalled:
            consumer.pause(client_partitions(wanted - self._paused))
            consumer.resume(client_partitions((self._paused & self._stays.keys()) - wanted))
        self._paused = wanted

    def _commit(
        self,
        consumer: Consumer,
        positions: Mapping[Partition, Position],
        stays: Mapping[Partition, int],
        done: Future[None],
    ) -> None:
        current = {p: position for p, position in positions.items() if self._stays.get(p) == stays[p]}
        if len(current) < len(positions):
            done.set_exception(CommitRefused("this member doesn't own the partitions any more"))
            return
        try:
            consumer.commit(offsets=client_offsets(current), asynchronous=True)
        except KafkaException as error:
            done.set_exception(CommitRefused(reason_of(error)))
        else:
            self._commits.append(done)

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """A commit's answer; they come in the order of their requests."""
        if not self._commits:
            return
        done = self._commits.pop(0)
        if done.done():  # whoever asked has given up
            return
        failed = error or next((one.error for one in partitions if one.error), None)
        if failed is None:
            done.set_result(None)
        else:
            done.set_exception(CommitRefused(str(failed.str())))

    def _on_error(self, error: KafkaError) -> None:
        _log.warning("client.error", reason=str(error.str()), name=error.name())
        if error.fatal():
            self._fail(LogFailed(f"Kafka refuses this member: {error.str()}"))

    def _on_assign(self, consumer: Consumer, assigned: Sequence[TopicPartition]) -> None:
        if self._closing:
            return
        self._flush()
        partitions = [Partition(one.topic, one.partition) for one in assigned]
        positions = starting_positions(consumer, self._topics, partitions)
        for partition in partitions:
            self._count += 1
            self._stays[partition] = self._count
            self._paused.discard(partition)
        starts = client_offsets(positions)
        (consumer.assign if self._eager else consumer.incremental_assign)(starts)
        if self._stalled:
            consumer.pause(client_partitions(partitions))
        stays = {partition: self._stays[partition] for partition in partitions}
        self.member = True
        self._tell(lambda: self._ears.assigned(Assigned(positions), stays))
        raise _Yield

    def _on_revoke(self, consumer: Consumer, revoked: Sequence[TopicPartition]) -> None:
        if self._closing:
            return
        self._flush()
        self._hand_over(consumer, [Partition(one.topic, one.partition) for one in revoked])
        raise _Yield

    def _hand_over(self, consumer: Consumer, partitions: Sequence[Partition]) -> None:
        """Let the loop finish with partitions, and commit what it ends with."""
        if not partitions:
            return
        positions = self._handed_over(consumer, partitions)
        self._serve(consumer)
        if positions:
            try:
                consumer.commit(offsets=client_offsets(positions), asynchronous=False)
            except KafkaException as error:
                _log.warning("commit.failed", reason=reason_of(error), during="handover")
        self._let_go(partitions)

    def _handed_over(
        self, consumer: Consumer, partitions: Sequence[Partition]
    ) -> Mapping[Partition, Position]:
        """The loop's final positions; none if it doesn't answer in time, say in a blocking node."""
        try:
            asked = asyncio.run_coroutine_threadsafe(self._ears.revoked(partitions), self._loop)
        except RuntimeError:  # the loop is closed
            return {}
        until = time.monotonic() + self._patience
        while time.monotonic() < until:
            self._serve(consumer)
            try:
                return asked.result(timeout=_POLL)
            except NotInTime:
                if asked.done():
                    break
        asked.cancel()
        _log.error("handover.unanswered", partitions=len(partitions))
        self._tell(lambda: self._ears.lost(partitions))
        return {}

    def _on_lost(self, _: Consumer, lost: Sequence[TopicPartition]) -> None:
        self._flush()
        partitions = [Partition(one.topic, one.partition) for one in lost]
        self._let_go(partitions)
        self.member = False
        self._tell(lambda: self._ears.lost(partitions))

    def _let_go(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._stays.pop(partition, None)
            self._paused.discard(partition)

    def _refuse_all(self) -> None:
        """Answer what nobody will do any more."""
        with self._lock:
            self._over = True
            waiting = tuple(self._unanswered)
        for done in waiting:
            if not done.done():
                done.set_exception(CommitRefused("the log is closed"))

    def _fail(self, error: Exception) -> None:
        told = LogFailed(f"Kafka: {reason_of(error)}") if isinstance(error, KafkaException) else error
        self._tell(lambda: self._ears.failed(told))

    def _tell(self, news: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(news)
        except RuntimeError:  # the loop is closed: the process is ending
            return
