"""The worker's settings: arguments over `OUTCROP_…` variables over a TOML file over defaults.

The only place that reads a worker's settings from the environment. Durations are seconds as
numbers, or text with a unit (`50ms`, `30s`, `5m`, `2h`). A worker that starts has settings that
were checked whole, once: what contradicts each other is refused before anything connects.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from outcrop.engine.host import OLDEST, RetentionSettings
from outcrop.stores import documents
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.record import ThreadState
from outcrop.topics.names import TopicNames

from .errors import SettingsInvalid
from .logs import LogFormat  # noqa: TC001 - pydantic needs it at run time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PREFIX: Final = "OUTCROP_"
CONFIG: Final = "OUTCROP_CONFIG"
TTLS_BEFORE_A_PURGE: Final = 10
_LIVE: Final = frozenset({ThreadState.RUNNING, ThreadState.RESUMED, ThreadState.INTERRUPTED})


def _listed(value: object) -> object:
    """Text with commas, as the environment and the command line have it, as a list."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Duration = Annotated[documents.Duration, Field(gt=timedelta(0))]
Name = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Settings(BaseModel):
    """What a worker needs to know; frozen and valid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap: Name = Field("127.0.0.1:9092", description="Kafka's addresses, host:port with commas between")
    store: SecretStr = Field(SecretStr("sqlite:///outcrop.db"), description="the checkpoint store's URL")
    group: Name = Field("outcrop", description="the consumer group that shares the commands")
    commands_topic: Name = "threads.commands"
    outcomes_topic: Name = "threads.outcomes"
    dead_topic: Name = "threads.dead"
    events_topic: Name = "threads.events"
    events: Literal["off", "runs", "tokens"] = Field(
        "off", description="what goes to the events topic: run events, or those and what nodes stream"
    )
    auto_create: bool = Field(False, description="topics are made when first used (the embedded broker)")
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"

    worker: Name = Field(
        default_factory=lambda: f"{socket.gethostname()}/{os.getpid()}",
        description="this process's name in leases, outcomes and logs",
    )
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 64
    max_buffered: Annotated[int, Field(ge=2, le=1_000_000)] = 2_000
    lease_ttl: Annotated[Duration, Field(ge=timedelta(seconds=1))] = timedelta(seconds=30)
    max_recoveries: Annotated[int, Field(ge=1)] = 5
    wake_interval: Duration = timedelta(seconds=5)
    recovery_interval: Duration = timedelta(seconds=30)
    retention_older_than: Annotated[Duration, Field(le=OLDEST)] | None = Field(
        None, description="purge finished threads unchanged for so long; none purges nothing"
    )
    retention_states: Annotated[tuple[ThreadState, ...], BeforeValidator(_listed), Field(min_length=1)] = (
        ThreadState.COMPLETED,
        ThreadState.ENDED,
    )
    retention_interval: Duration = timedelta(hours=1)
    retention_batch_size: Annotated[int, Field(ge=1, le=1_000)] = 1_000
    commit_interval: Duration = timedelta(milliseconds=50)
    handover_timeout: Duration = timedelta(seconds=10)
    shutdown_timeout: Duration = timedelta(seconds=25)
    message_limit: Annotated[int, Field(ge=10_000)] = Field(
        1_000_000, description="bytes of a command; more goes to the dead letters"
    )
    state_limit: Annotated[int, Field(ge=1_000)] = Field(
        1_000_000, description="bytes of a state; a command that brings more is refused"
    )
    state_cap: Annotated[int, Field(ge=0)] = Field(
        500_000, description="bytes of state, metadata and questions in an outcome; more is left to the store"
    )
    dead_letter_limit: Annotated[int, Field(ge=0)] = Field(
        500_000, description="bytes of the original message that a dead letter keeps"
    )

    group_protocol: Literal["cooperative", "range", "consumer"] = Field(
        "cooperative", description="how partitions are shared: cooperative-sticky, eager range, or KIP-848"
    )
    group_instance_id: Name | None = Field(None, description="a fixed name makes the membership static")
    session_timeout: Duration = timedelta(seconds=10)
    heartbeat_interval: Duration = timedelta(seconds=1)
    max_poll_interval: Duration = timedelta(minutes=5)

    health_host: Name = "127.0.0.1"
    health_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        None, description="port of /healthz, /readyz and /metrics; 0 picks one, none serves nothing"
    )
    telemetry: bool = Field(
        False, description="runs are told to OpenTelemetry, as this process has it set up"
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: LogFormat = "text"

    @property
    def topics(self) -> TopicNames:
        """The topics' names, as the client and the topic administration take them."""
        return TopicNames(self.commands_topic, self.outcomes_topic, self.dead_topic, self.events_topic)

    @property
    def retention(self) -> RetentionSettings | None:
        """What the retention driver purges, or None when there is to be none."""
        if self.retention_older_than is None:
            return None
        return RetentionSettings(
            interval=self.retention_interval,
            batch_size=self.retention_batch_size,
            older_than=self.retention_older_than,
            states=self.retention_states,
        )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.delivery == "exactly_once":
            raise ValueError("delivery: exactly_once comes in a later release; use at_least_once")
        if self.max_buffered <= self.concurrency:
            raise ValueError("max_buffered must be above concurrency, or lanes starve")
        if self.heartbeat_interval * 3 > self.session_timeout:
            raise ValueError("session_timeout must be at least three heartbeat_intervals")
        if max(self.handover_timeout, self.shutdown_timeout) * 2 > self.max_poll_interval:
            raise ValueError("max_poll_interval must be at least twice handover_timeout and shutdown_timeout")
        if self.session_timeout > self.max_poll_interval:
            raise ValueError("max_poll_interval must not be below session_timeout")
        if live := sorted({*self.retention_states} & _LIVE):
            raise ValueError(f"retention_states has {', '.join(live)}: such threads are not finished")
        if self.retention_older_than and self.retention_older_than < self.lease_ttl * TTLS_BEFORE_A_PURGE:
            raise ValueError(
                f"retention_older_than must be at least {TTLS_BEFORE_A_PURGE} lease_ttls: a purge restarts a"
                " thread's tokens, which must not meet an old owner"
            )
        return self


def load_settings(
    arguments: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """Settings from all layers; None among the arguments means that it wasn't given.

    `config` is the TOML file, by default the one that `OUTCROP_CONFIG` names, if any. Raises
    `SettingsInvalid` with every problem, each with the layer it came from, and no value but a bad
    duration's.
    """
    variables = os.environ if environment is None else environment
    file = config if config is not None else variables.get(CONFIG)
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    layers: dict[str, Mapping[str, object]] = {
        "argument": given,
        "environment": _of_environment(variables),
        "file": {} if file is None else _of_file(file),
    }
    merged = {name: value for layer in reversed(layers.values()) for name, value in layer.items()}
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsInvalid(_problems(error, layers)) from None


def _of_environment(variables: Mapping[str, str]) -> dict[str, object]:
    """The variables that name a setting; others with the prefix belong to other tools."""
    return {
        name: variables[variable]
        for name in Settings.model_fields
        if (variable := PREFIX + name.upper()) in variables
    }


def _of_file(path: Path | str) -> dict[str, Any]:
    try:
        return documents.read_document(path)
    except InvalidRequest as error:
        raise SettingsInvalid(str(error)) from None


def _problems(error: ValidationError, layers: Mapping[str, Mapping[str, object]]) -> str:
    told: list[str] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(problem["loc"][0]) if problem["loc"] else ""
        layer = next((layer for layer, values in layers.items() if name in values), None)
        source = f" (from the {layer})" if layer else ""
        unknown = problem["type"] == "extra_forbidden"
        text = "there is no such setting" if unknown else documents.problem_text(problem["msg"])
        told.append(f"{name}{source}: {text}" if name else text)
    return "settings: " + "; ".join(told)
