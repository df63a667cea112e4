from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from outcrop.topics import TopicNames
from outcrop.topics.provisioning import FoundTopic, TopicSettings, TopicSpec, compare

SPEC = TopicSpec("threads.commands", 12, 3, {"retention.ms": "1000", "cleanup.policy": "delete"})
FOUND = FoundTopic(
    "threads.commands", 12, 3, {"retention.ms": "1000", "cleanup.policy": "delete", "segment.ms": "5"}
)


def test_topic_as_asked_for_has_no_differences() -> None:
    assert compare(SPEC, FOUND) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, "threads.commands: missing"),
        (replace(FOUND, partitions=6), "threads.commands: partitions is 6, wanted 12"),
        (replace(FOUND, replication=1), "threads.commands: replication is 1, wanted 3"),
        (
            replace(FOUND, config={"cleanup.policy": "compact", "retention.ms": "1000"}),
            "threads.commands: cleanup.policy is compact, wanted delete",
        ),
        (
            replace(FOUND, config={"cleanup.policy": "delete"}),
            "threads.commands: retention.ms is unset, wanted 1000",
        ),
    ],
)
def test_each_drift_is_told(found: FoundTopic | None, told: str) -> None:
    assert [str(difference) for difference in compare(SPEC, found)] == [told]


def test_brokers_own_replication_is_never_a_drift() -> None:
    assert compare(replace(SPEC, replication=None), replace(FOUND, replication=1)) == []


def test_specs_follow_the_settings() -> None:
    settings = TopicSettings(
        names=TopicNames("c", "o", "d", "e"),
        partitions=4,
        replication=2,
        retention=timedelta(hours=1),
        dead_retention=timedelta(hours=2),
        events_retention=timedelta(minutes=1),
        max_message_bytes=2048,
        with_events=True,
    )
    told = {
        spec.name: (spec.partitions, spec.replication, spec.config["retention.ms"])
        for spec in settings.specs()
    }
    assert told == {
        "c": (4, 2, "3600000"),
        "o": (4, 2, "3600000"),
        "d": (4, 2, "7200000"),
        "e": (4, 2, "60000"),
    }
    assert {spec.config["max.message.bytes"] for spec in settings.specs()} == {"2048"}


def test_events_are_off_unless_asked_for() -> None:
    assert [spec.name for spec in TopicSettings().specs()] == [
        "threads.commands",
        "threads.outcomes",
        "threads.dead",
    ]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="partitions is 0"):
        TopicSettings(partitions=0)
    with pytest.raises(ValueError, match="replication is 0"):
        TopicSettings(replication=0)
