"""Settings: layers, units, checks, and that nothing secret is shown."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.worker.client_config import consumer_config, producer_config
from outcrop.worker.errors import SettingsInvalid
from outcrop.worker.settings import Settings, load_settings

if TYPE_CHECKING:
    from pathlib import Path


def load(arguments: dict[str, object] | None = None, environment: dict[str, str] | None = None) -> Settings:
    return load_settings(arguments, environment=environment or {})


def test_defaults() -> None:
    settings = load()
    assert settings.lease_ttl == timedelta(seconds=30)
    assert settings.health_host == "127.0.0.1"
    assert settings.worker == f"{socket.gethostname()}/{os.getpid()}"


def test_arguments_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "outcrop.toml"
    file.write_text('group = "file"\nconcurrency = 7\nbootstrap = "file:1"\n')
    settings = load_settings(
        {"group": "argument", "bootstrap": None},
        environment={"OUTCROP_GROUP": "environment", "OUTCROP_BOOTSTRAP": "environment:1"},
        config=file,
    )
    assert (settings.group, settings.bootstrap, settings.concurrency) == ("argument", "environment:1", 7)


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "outcrop.toml"
    file.write_text("concurrency = 7\n")
    assert load(environment={"OUTCROP_CONFIG": str(file)}).concurrency == 7


def test_the_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTCROP_GROUP", "mine")
    assert load_settings().group == "mine"


def test_other_variables_with_the_prefix_are_other_tools() -> None:
    load(environment={"OUTCROP_DEBUG": "1", "OUTCROP_TEST_KAFKA": "x", "OUTCROP_NO_SUCH": "x"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0), ("0.5", 0.5), ("50ms", 0.05), ("30s", 30.0), ("5m", 300.0), ("2 h", 7200.0),
        (" 1d ", 86400.0), (12, 12.0), (1.5, 1.5),
    ],
)  # fmt: skip
def test_durations_are_seconds_or_have_a_unit(text: object, seconds: float) -> None:
    assert load({"wake_interval": text}).wake_interval.total_seconds() == seconds


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"wake_interval": "soon"}, "wake_interval (from the argument)"),
        ({"wake_interval": 0}, "wake_interval"),
        ({"wake_interval": "-3s"}, "wake_interval"),
        ({"lease_ttl": "0.2ms"}, "lease_ttl"),
        ({"wake_interval": "9" * 20 + "d"}, "is not a duration: use a number of seconds"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 100, "max_buffered": 100}, "max_buffered must be above concurrency"),
        ({"group": " "}, "group"),
        ({"no_such": 1}, "no_such (from the argument): there is no such setting"),
        ({"group_protocol": "magic"}, "group_protocol"),
        ({"delivery": "exactly_once"}, "exactly_once comes in a later release"),
        ({"session_timeout": "3s", "heartbeat_interval": "2s"}, "session_timeout must be at least three"),
        ({"handover_timeout": "4m"}, "max_poll_interval must be at least twice"),
        ({"session_timeout": "10m"}, "max_poll_interval must not be below session_timeout"),
        ({"health_port": 70000}, "health_port"),
    ],
)
def test_what_is_off_is_told(arguments: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(arguments)
    assert told in str(caught.value)


def test_all_problems_are_told_at_once_each_with_its_layer() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load({"concurrency": -1}, {"OUTCROP_HEALTH_PORT": "x"})
    assert "concurrency (from the argument)" in str(caught.value)
    assert "health_port (from the environment)" in str(caught.value)


def test_unknown_keys_of_the_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "outcrop.toml"
    file.write_text("concurency = 7\n")
    with pytest.raises(SettingsInvalid, match=r"concurency \(from the file\): there is no such setting"):
        load_settings({}, environment={}, config=file)


@pytest.mark.parametrize("content", ["a = ", None])
def test_a_bad_file_is_told(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "outcrop.toml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsInvalid, match="settings file"):
        load_settings({}, environment={}, config=file)


def test_secrets_and_values_are_never_shown() -> None:
    settings = load({"store": "postgres://me:hunter2@host/db"})
    assert "hunter2" not in repr(settings) + str(settings) + settings.model_dump_json()
    with pytest.raises(SettingsInvalid) as caught:
        load({"store": ["hunter2"], "concurrency": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().group = "other"


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("cooperative", {"partition.assignment.strategy": "cooperative-sticky", "group.protocol": "classic"}),
        ("range", {"partition.assignment.strategy": "range", "session.timeout.ms": 10_000}),
        ("consumer", {"group.protocol": "consumer"}),
    ],
)
def test_group_protocols(protocol: str, expected: dict[str, object]) -> None:
    config = consumer_config(load({"group_protocol": protocol}))
    assert expected.items() <= config.items()
    if protocol == "consumer":
        assert (
            not {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
            & config.keys()
        )


def test_a_consumer_never_commits_or_resets_by_itself() -> None:
    config = consumer_config(load({"group_instance_id": "w-1"}))
    assert config["enable.auto.commit"] is False
    assert config["auto.offset.reset"] == "error"
    assert config["isolation.level"] == "read_committed"
    assert config["group.instance.id"] == "w-1"


def test_a_producer_is_idempotent_and_partitions_like_java() -> None:
    config = producer_config(load())
    assert (config["enable.idempotence"], config["acks"], config["partitioner"]) == (
        True,
        "all",
        "murmur2_random",
    )
