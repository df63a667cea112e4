"""The composition root: from settings and graphs to a worker that runs until it is told to stop.

The only place that knows all the adapters. Starts what others need first, and stops in
the opposite order: drivers, the group, the outbox, the store.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from outcrop.engine.cancellation import CancelToken
from outcrop.engine.clock import SystemClock
from outcrop.engine.threads import Threads
from outcrop.stores.url import open_store
from outcrop.topics.keys import encode_key
from outcrop.topics.messages import Recover, Wake
from outcrop.topics.partitioner import partition_for

from .cluster import Cluster
from .consumer import KafkaLog
from .drain import Drain, ExitCode
from .drivers.dispatch import Dispatch
from .drivers.recovery import RecoveryDriver
from .drivers.retention import RetentionDriver
from .drivers.rounds import Rounds
from .drivers.wake import WakeDriver
from .due import DueTimers
from .errors import SettingsInvalid
from .event_feed import EventFeed
from .handler import Handler
from .handling import HandlingSettings
from .health import HealthServer, Vitals, keep_vitals
from .loading import load_graphs
from .logs import EventLog, configure_logs
from .metrics import Metrics
from .outbox import KafkaOutbox
from .overtaking import overtakes
from .ports import Partition
from .publisher import Publisher
from .registry import Registry
from .watch import UNWATCHED, Watch
from .worker import Limits, Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from outcrop.engine.compiled import CompiledGraph
    from outcrop.engine.recorder import Telemetry
    from outcrop.stores.port import Store

    from .settings import Settings

__all__ = ["load_graphs", "run", "serve"]

_log = EventLog("app")


def run(settings: Settings, graphs: Sequence[CompiledGraph[Any]]) -> int:
    """Serve until a signal, as the whole of this process; returns its exit code.

    Returns only after a clean drain: the sync nodes of runs that were cut off may never end,
    and their threads would keep the interpreter from exiting.
    """
    code = asyncio.run(serve(settings, graphs))
    if code != ExitCode.CLEAN:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


async def serve(
    settings: Settings, graphs: Sequence[CompiledGraph[Any]], *, drain: Drain | None = None
) -> int:
    """Run a worker until it drains or fails; returns an `ExitCode`.

    Without a `drain` of the caller's, SIGTERM and SIGINT stop it (main thread only). Raises
    `OutcropError` for what keeps it from starting: settings, topics, the broker, the store.
    """
    configure_logs(settings.log_level, settings.log_format)
    async with AsyncExitStack() as stack:
        if drain is None:
            drain = Drain()
            stack.enter_context(drain.on_signals())
        store = await open_store(settings.store.get_secret_value())
        stack.push_async_callback(store.close)
        cluster = Cluster(settings)
        await cluster.check(_topics(settings))
        share = _Share(settings.commands_topic, await cluster.partition_count(settings.commands_topic))
        parts = _Parts(settings, graphs, store, cluster, share)
        stack.push_async_callback(parts.close)
        return await parts.run(drain)


class _Share:
    """Which threads' commands come to this worker."""

    def __init__(self, topic: str, count: int) -> None:
        self._topic = topic
        self.count = count
        self.worker: Worker | None = None

    def owns(self, thread_id: str) -> bool:
        """Whether the thread's partition is this worker's now."""
        number = partition_for(encode_key(thread_id), self.count)
        return self.worker is not None and Partition(self._topic, number) in self.worker.partitions


class _Parts:
    """Everything of one worker process, wired."""

    def __init__(
        self,
        settings: Settings,
        graphs: Sequence[CompiledGraph[Any]],
        store: Store,
        cluster: Cluster,
        share: _Share,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._share = share
        self._cluster = cluster
        telemetry = _telemetry() if settings.telemetry else None
        self._registry = Registry(
            graphs, lambda graph: Threads(graph, store, clock=self._clock, telemetry=telemetry)
        )
        self._outbox = KafkaOutbox(settings)
        self._watch = self._make_watch()
        self._source = KafkaLog(settings, cluster, [settings.commands_topic])
        wake = self._dispatch(Wake, settings.wake_interval)
        recover = self._dispatch(Recover, settings.recovery_interval)
        self._due = DueTimers(wake, self._clock)
        self._draining = False
        self._stop = CancelToken()
        self._worker = share.worker = self._make_worker()
        self._drivers = self._make_drivers(wake, recover)

    async def close(self) -> None:
        """Send what is left to send, for a bounded time."""
        if self._watch.feed is not None:
            await self._watch.feed.close()
        await self._outbox.close()

    async def run(self, drain: Drain) -> int:
        """Run until the drain is asked for or the worker fails."""
        vitals = Vitals(self._clock)
        health = self._health(vitals)
        background = [
            asyncio.create_task(
                keep_vitals(
                    vitals,
                    {"group": self._member, "store": self._reachable, "drain": self._serving},
                    self._clock,
                )
            ),
            asyncio.create_task(self._keep_counting()),
        ]
        try:
            await self._worker.start()
            drivers = [asyncio.create_task(driver.run(self._stop)) for driver in self._drivers]
            _log.info("worker.started", worker=self._settings.worker, group=self._settings.group)
            failure = await self._until_over(drain)
            self._draining, vitals.reasons = True, ("draining",)
            self._stop.fire()
            await self._due.close()
            clean = await self._worker.stop(self._settings.shutdown_timeout)
            await asyncio.wait(drivers, timeout=self._settings.shutdown_timeout.total_seconds())
        finally:
            for task in background:
                task.cancel()
            await asyncio.wait(background)
            if health is not None:
                health.close()
        code = ExitCode.FAILED if failure else ExitCode.CLEAN if clean else ExitCode.CUT_OFF
        _log.info("worker.stopped", worker=self._settings.worker, code=int(code), clean=clean)
        return code

    async def _until_over(self, drain: Drain) -> bool:
        """Wait for the drain or a failure; returns whether it was a failure."""
        asked = asyncio.create_task(drain.wait())
        failed = asyncio.create_task(self._worker.failed())
        await asyncio.wait((asked, failed), return_when=asyncio.FIRST_COMPLETED)
        over = failed.done()
        for task in (asked, failed):
            task.cancel()
        await asyncio.gather(asked, failed, return_exceptions=True)
        return over

    def _make_worker(self) -> Worker:
        settings = self._settings
        handler = Handler(
            store=self._store,
            registry=self._registry,
            topic_id=self._source.topic_id,
            settings=_handling(settings),
            clock=self._clock,
            metrics=self._metrics,
            waiting=self._due.add,
            watch=self._watch,
        )
        return Worker(
            self._source,
            Publisher(self._outbox, dead=settings.dead_topic, clock=self._clock, metrics=self._metrics),
            handler,
            overtakes=overtakes,
            limits=Limits(
                concurrency=settings.concurrency,
                max_buffered=settings.max_buffered,
                commit_interval=settings.commit_interval,
                handover_timeout=settings.handover_timeout,
            ),
            clock=self._clock,
            metrics=self._metrics,
        )

    def _make_watch(self) -> Watch:
        settings = self._settings
        if settings.events == "off":
            return UNWATCHED
        feed = EventFeed(self._outbox, settings.events_topic, clock=self._clock, metrics=self._metrics)
        return Watch(feed, tokens=settings.events == "tokens")

    def _dispatch(self, kind: type[Wake | Recover], interval: timedelta) -> Dispatch:
        """A driver's way to send; what it sent is sent again only after several rounds."""
        return Dispatch(
            kind,
            self._outbox,
            topic=self._settings.commands_topic,
            owns=self._share.owns,
            clock=self._clock,
            again_after=interval * 6,
            metrics=self._metrics,
        )

    def _make_drivers(self, wake: Dispatch, recover: Dispatch) -> list[Rounds]:
        settings, store, clock, metrics = self._settings, self._store, self._clock, self._metrics
        waking = WakeDriver(store, self._registry, wake, clock=clock)
        recovery = RecoveryDriver(
            store, self._registry, recover, max_recoveries=settings.max_recoveries, metrics=metrics
        )
        drivers = [
            self._rounds("wake", waking.round, settings.wake_interval),
            self._rounds("recovery", recovery.round, settings.recovery_interval),
        ]
        if settings.retention is not None:
            retention = RetentionDriver(
                store, settings.retention, clock=clock, metrics=metrics, stop=self._stop
            )
            drivers.append(self._rounds("retention", retention.round, settings.retention_interval))
        return drivers

    def _rounds(self, name: str, once: Callable[[], Awaitable[None]], interval: timedelta) -> Rounds:
        return Rounds(
            name, once, interval=interval, clock=self._clock, uniform=random.random, metrics=self._metrics
        )

    def _health(self, vitals: Vitals) -> HealthServer | None:
        if self._settings.health_port is None:
            return None
        server = HealthServer(vitals, self._metrics, self._settings.health_host, self._settings.health_port)
        server.start()
        _log.info("health.listening", host=self._settings.health_host, port=server.port)
        return server

    async def _serving(self) -> str | None:
        return "draining" if self._draining else None

    async def _member(self) -> str | None:
        return None if self._source.member else "not a member of the group"

    async def _reachable(self) -> str | None:
        await self._store.load("outcrop.ready")
        return None

    async def _keep_counting(self) -> None:
        """Follow the commands topic's partition count: it may grow while this worker runs."""
        while True:
            await asyncio.sleep(60)
            try:
                self._share.count = await self._cluster.partition_count(self._settings.commands_topic)
            except Exception as error:  # noqa: BLE001 - the count of a minute ago will do
                _log.warning("partitions.uncounted", kind=type(error).__name__)


def _telemetry() -> Telemetry:
    try:
        from outcrop.engine.telemetry import OpenTelemetry  # noqa: PLC0415 - needs the extra `telemetry`
    except ImportError as error:
        raise SettingsInvalid(f"telemetry: {error}") from None
    return OpenTelemetry()


def _topics(settings: Settings) -> tuple[str, ...]:
    """The topics that the worker can't do without."""
    needed = (settings.commands_topic, settings.outcomes_topic, settings.dead_topic)
    return needed if settings.events == "off" else (*needed, settings.events_topic)


def _handling(settings: Settings) -> HandlingSettings:
    return HandlingSettings(
        worker=settings.worker,
        topics=settings.topics,
        lease_ttl=settings.lease_ttl,
        max_recoveries=settings.max_recoveries,
        message_limit=settings.message_limit,
        state_limit=settings.state_limit,
        state_cap=settings.state_cap,
        dead_letter_limit=settings.dead_letter_limit,
    )
