from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from outcrop.topics import EmbeddedBroker, TopicNames

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def embedded() -> Iterator[str]:
    """The address of an embedded broker that the whole session shares."""
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def names() -> TopicNames:
    """Topic names of the test's own."""
    prefix = f"test-{uuid4().hex[:12]}"
    return TopicNames(f"{prefix}.commands", f"{prefix}.outcomes", f"{prefix}.dead", f"{prefix}.events")
