"""The host's part of a settings document."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from outcrop.engine import LeaseOptions, RunOptions
from outcrop.engine.host import (
    HostSettings,
    MemoryRetentionSettings,
    RecoverySettings,
    RetentionSettings,
    WakeSettings,
)
from outcrop.stores.documents import read_document
from outcrop.stores.errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

FULL = """
something_else = 1
[runs.lease]
owner = "billing-1"
ttl = 30
[wake]
interval = 0.25
batch_size = 7
metadata = {tenant = "acme"}
match_graph = false
[recovery]
interval = "1 m"
batch_size = 8
stale_after = "10m"
max_recoveries = 3
metadata = {tenant = "acme"}
match_graph = false
[retention]
interval = "12h"
batch_size = 9
older_than = "30d"
states = ["completed"]
[memory]
dimensions = 3
[memory.retention]
interval = "90 s"
batch_size = 10
older_than = "1500ms"
namespace = "notes"
tenant = "acme"
"""


def test_a_full_document_gives_its_values(tmp_path: Path) -> None:
    """P1."""
    file = tmp_path / "strata.toml"
    file.write_text(FULL)
    settings = HostSettings.of(read_document(file))
    lease = LeaseOptions("billing-1", timedelta(seconds=30))
    assert settings.runs.options() == RunOptions(lease=lease)
    metadata = {"tenant": "acme"}
    assert settings.wake == WakeSettings(
        interval=timedelta(seconds=0.25), batch_size=7, metadata=metadata, match_graph=False
    )
    assert settings.recovery == RecoverySettings(
        interval=timedelta(minutes=1),
        batch_size=8,
        stale_after=timedelta(minutes=10),
        max_recoveries=3,
        metadata=metadata,
        match_graph=False,
    )
    assert settings.retention == RetentionSettings(
        interval=timedelta(hours=12), batch_size=9, older_than=timedelta(days=30), states=("completed",)
    )
    assert settings.memory.retention == MemoryRetentionSettings(
        interval=timedelta(seconds=90),
        batch_size=10,
        older_than=timedelta(seconds=1.5),
        namespace="notes",
        tenant="acme",
    )


def test_an_empty_document_gives_the_defaults() -> None:
    """P1."""
    settings = HostSettings.of({})
    assert settings.runs.options() == RunOptions()
    wake, recovery, retention = settings.wake, settings.recovery, settings.retention
    assert (wake.interval, wake.batch_size, wake.metadata) == (timedelta(seconds=5), 100, {})
    assert (recovery.interval, recovery.batch_size) == (timedelta(seconds=30), 100)
    assert (recovery.stale_after, recovery.max_recoveries) == (None, None)
    assert (wake.match_graph, recovery.match_graph) == (True, True)
    assert (retention.interval, retention.batch_size) == (timedelta(hours=1), 1000)
    assert (retention.older_than, retention.states) == (None, ())
    assert settings.memory.retention == MemoryRetentionSettings()


@pytest.mark.parametrize("variable", ["HOSTNAME", "COMPUTERNAME", None])
def test_a_lease_is_owned_by_this_process_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    """P1."""
    for name in ("HOSTNAME", "COMPUTERNAME"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "alpha")
    owner = f"{'host' if variable is None else 'alpha'}/{os.getpid()}"
    assert HostSettings.of({}).runs.lease.owner == owner
    lease = HostSettings.of({"runs": {"lease": {"ttl": "30s"}}}).runs.options().lease
    assert lease == LeaseOptions(owner, timedelta(seconds=30))


def test_durations_that_are_null_are_not_set() -> None:
    """P1."""
    document = {
        "runs": {"lease": {"ttl": None}},
        "recovery": {"stale_after": None},
        "retention": {"older_than": None},
    }
    settings = HostSettings.of(document)
    assert settings.runs.options().lease is None
    assert (settings.recovery.stale_after, settings.retention.older_than) == (None, None)


def test_what_cannot_be_read_is_told_all_at_once_by_key() -> None:
    """P2."""
    document: dict[str, object] = {"wake": {"interval": "soon"}, "retention": {"batch_size": "many"}}
    with pytest.raises(InvalidRequest) as caught:
        HostSettings.of(document)
    assert (
        "wake.interval: 'soon' is not a duration: use a number of seconds, or a number with ms, s, m, h or d"
        in str(caught.value)
    )
    assert "retention.batch_size: " in str(caught.value)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        setattr(HostSettings.of({}).wake, "batch_size", 3)  # noqa: B010 - a type checker refuses it otherwise


def test_a_duration_below_zero_is_refused_however_it_comes() -> None:
    for value in (-5, "-5s", timedelta(days=-5)):
        with pytest.raises(InvalidRequest, match=r"retention\.older_than"):
            HostSettings.of({"retention": {"older_than": value}})
