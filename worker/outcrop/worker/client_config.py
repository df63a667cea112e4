"""librdkafka's settings from the worker's: pure, so that each is checked without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from outcrop.topics.partitioner import LIBRDKAFKA_PARTITIONER

if TYPE_CHECKING:
    from datetime import timedelta

    from .settings import Settings

Config: TypeAlias = "dict[str, str | int | float | bool]"

_STRATEGIES = {"cooperative": "cooperative-sticky", "range": "range"}


def common_config(settings: Settings) -> Config:
    """What every client has."""
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": f"outcrop-{settings.worker}",
        # the embedded broker's own delays add up with the default second of pause between attempts
        "reconnect.backoff.max.ms": 2000,
        "log_level": 3,
    }


def consumer_config(settings: Settings) -> Config:
    """A member of the group that commits by itself and never skips or replays on its own account."""
    config = common_config(settings) | {
        "group.id": settings.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # a lost offset is an alarm; `starting_point` covers a new group
        "isolation.level": "read_committed",  # and so committed offsets are read as stable ones
        "max.poll.interval.ms": _milliseconds(settings.max_poll_interval),
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 16 * 1024,
        "allow.auto.create.topics": settings.auto_create,
    }
    if settings.group_instance_id is not None:
        config["group.instance.id"] = settings.group_instance_id
    if settings.group_protocol == "consumer":
        # heartbeats and the session timeout are the broker's own settings here (KIP-848)
        return config | {"group.protocol": "consumer"}
    return config | {
        "group.protocol": "classic",
        "partition.assignment.strategy": _STRATEGIES[settings.group_protocol],
        "session.timeout.ms": _milliseconds(settings.session_timeout),
        "heartbeat.interval.ms": _milliseconds(settings.heartbeat_interval),
    }


def producer_config(settings: Settings) -> Config:
    """An idempotent producer that puts a thread's messages where every client puts them."""
    return common_config(settings) | {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": LIBRDKAFKA_PARTITIONER,
        "linger.ms": 2,
        "delivery.timeout.ms": 30_000,
        # a command whose `reply_to` doesn't exist holds its thread that long
        "topic.metadata.propagation.max.ms": 3_000,
        # the capped part of a record, and room for its other fields and headers
        "message.max.bytes": max(settings.state_cap, settings.dead_letter_limit) + 500_000,
    }


def _milliseconds(duration: timedelta) -> int:
    return max(1, round(duration.total_seconds() * 1000))
