"""Without the Kafka libraries the messages still work, and the rest says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outcrop import topics

BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("aiokafka", "confluent_kafka", "opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + code], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def test_messages_need_no_kafka_library() -> None:
    code = """
import outcrop.topics as topics
from outcrop.topics.tracing import current_traceparent
from outcrop.topics import schemas, provisioning
assert current_traceparent() is None
print(topics.TopicNames().commands)
"""
    assert _run(code) == "threads.commands"


@pytest.mark.parametrize(
    "use",
    [
        "import outcrop.topics.client",
        "from outcrop.topics import ThreadsClient",
        "import outcrop.topics.admin",
        "from outcrop.topics import EmbeddedBroker; EmbeddedBroker().start()",
    ],
)
def test_missing_extra_is_told_with_the_line_that_installs_it(use: str) -> None:
    code = f"""
from outcrop.topics import MissingExtra
try:
    {use}
except MissingExtra as error:
    print(error)
"""
    assert _run(code).endswith("run pip install 'outcrop[kafka]'")


def test_exported_names_are_sorted_and_there() -> None:
    assert topics.__all__ == sorted(topics.__all__)
    assert all(hasattr(topics, name) for name in topics.__all__)
    assert not hasattr(topics, "client_that_is_not_there")
