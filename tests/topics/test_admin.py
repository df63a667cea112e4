from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.topics import BrokerUnreachable, TopicRefused
from outcrop.topics.admin import TopicAdmin
from outcrop.topics.provisioning import TopicSettings

if TYPE_CHECKING:
    from outcrop.topics import TopicNames


@pytest.mark.kafka
async def test_creates_what_is_missing_and_leaves_the_rest_alone(
    kafka_bootstrap: str, names: TopicNames
) -> None:
    admin = TopicAdmin(kafka_bootstrap)
    settings = TopicSettings(names=names, partitions=3, retention=timedelta(hours=1))
    assert [str(difference) for difference in await admin.check_topics(settings)] == [
        f"{name}: missing" for name in (names.commands, names.outcomes, names.dead)
    ]
    first = await admin.create_topics(settings)
    assert first.created == [names.commands, names.outcomes, names.dead]
    assert (first.existing, first.differences) == ([], [])
    assert await admin.check_topics(settings) == []

    other = replace(settings, partitions=5, retention=timedelta(hours=2), with_events=True)
    second = await admin.create_topics(other)
    assert second.created == [names.events]
    assert second.existing == [names.commands, names.outcomes, names.dead]
    drift = {(difference.topic, difference.setting) for difference in second.differences}
    assert drift == {
        (names.commands, "partitions"),
        (names.commands, "retention.ms"),
        (names.outcomes, "partitions"),
        (names.outcomes, "retention.ms"),
        (names.dead, "partitions"),
    }
    assert await admin.check_topics(settings) == [], "an existing topic was changed"


@pytest.mark.kafka
async def test_refusal_of_the_broker_names_the_topic(kafka_bootstrap: str, names: TopicNames) -> None:
    with pytest.raises(TopicRefused, match=names.commands):
        await TopicAdmin(kafka_bootstrap).create_topics(TopicSettings(names=names, replication=30))


async def test_no_broker_is_told_with_its_address() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 "):
        await TopicAdmin("127.0.0.1:1", timeout=0.5).check_topics(TopicSettings())
